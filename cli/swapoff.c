/* SPDX-License-Identifier: MIT */
/*
 * swapoff.c - pswap swapoff PID, pswap swapon PID: a program's memory all in and kept there, for a
 * debugger or gcore, which cannot wait for a page, and back to normal.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

#define POLL_NS 10000000L
#define SILENT_POLLS 1000 /* 10 s in which nothing comes in */

struct swapoff_args {
	pid_t pid;
	const char *name;
};

static error_t parse_arg(int key, char *arg, struct argp_state *state)
{
	struct swapoff_args *a = state->input;

	if (key != ARGP_KEY_ARG)
		return ARGP_ERR_UNKNOWN;
	if (a->pid)
		cli_fail("%s: takes one process id", a->name);
	a->pid = cli_pid(a->name, arg);
	return 0;
}

static struct ps_member *member_of(struct ps_shm *shm, pid_t pid)
{
	for (u32 i = 0; i < MIN(relaxed_load(&shm->nr_members), PS_SHM_MEMBERS); i++) {
		struct ps_member *m = &shm->members[i];

		if (relaxed_load(&m->pid) == (u32)pid && shm_member_alive(shm, m))
			return m;
	}
	return NULL;
}

static struct ps_member *find(int argc, char **argv, struct swapoff_args *a, struct ps_shm **tree,
			      const char *doc)
{
	static const struct argp_option options[] = { { 0 } };
	const struct argp argp = {
		.options = options, .parser = parse_arg, .args_doc = "PID", .doc = doc
	};
	struct ps_member *m;
	struct ps_shm *shm;
	char why[128];

	cli_parse(&argp, a->name, argc, argv, false, a);
	if (!a->pid)
		cli_fail("%s: needs the process id of a program that runs under pswap", a->name);
	shm = shm_of_pid(a->pid, true, why, sizeof(why));
	if (!shm)
		cli_fail("%s: %s", a->name, why);
	*tree = shm;
	m = member_of(shm, a->pid);
	if (!m)
		cli_fail("%s: process %d is not swapped itself; `pswap stat %d` lists those that are",
			 a->name, (int)a->pid, (int)a->pid);
	return m;
}

/* An engine that has not taken anything out yet answers too; where there is none, nothing is out. */
static bool has_engine(struct ps_member *m)
{
	u32 state = relaxed_load(&m->state);

	return state == PS_MEMBER_ENGINE || state == PS_MEMBER_ARMED;
}

int cmd_swapoff(int argc, char **argv)
{
	struct swapoff_args a = { .name = "swapoff" };
	const struct timespec nap = { .tv_nsec = POLL_NS };
	struct ps_member *m;
	struct ps_shm *shm;
	unsigned silent = 0;
	u64 in = 0;
	u32 done;

	m = find(argc, argv, &a, &shm,
		 "Brings all memory of process PID in, over its limit, and takes nothing out until "
		 "`pswap swapon PID`: for a debugger or gcore, which cannot wait for a page.");
	relaxed_store(&m->swapoff, PS_SWAPOFF_ASKED);
	while ((done = relaxed_load(&m->swapoff)) == PS_SWAPOFF_ASKED && has_engine(m)) {
		u64 now = relaxed_load(&m->pages_in) + relaxed_load(&m->pages_cache_in);

		if (!shm_member_alive(shm, m))
			cli_fail("swapoff: process %d has ended", (int)a.pid);
		silent = now == in ? silent + 1 : 0;
		in = now;
		if (silent == SILENT_POLLS)
			cli_fail("swapoff: the engine of process %d does not answer; it will do what "
				 "was asked when it can", (int)a.pid);
		nanosleep(&nap, NULL);
	}
	if (done == PS_SWAPOFF_PARTLY)
		cli_fail("swapoff: some pages of process %d could not be brought in", (int)a.pid);
	return 0;
}

int cmd_swapon(int argc, char **argv)
{
	struct swapoff_args a = { .name = "swapon" };
	struct ps_member *m;
	struct ps_shm *shm;

	m = find(argc, argv, &a, &shm, "Ends what `pswap swapoff PID` began: PID is swapped again.");
	relaxed_store(&m->swapoff, PS_SWAPOFF_NO);
	return 0;
}
