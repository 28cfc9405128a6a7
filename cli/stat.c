/* SPDX-License-Identifier: MIT */
/* stat.c - pswap stat PID, pswap top [PID...]. */
#include <curses.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

enum {
	OPT_JSON = 0x100,
	OPT_PROMETHEUS
};

enum format {
	FORMAT_TEXT,
	FORMAT_JSON,
	FORMAT_PROMETHEUS
};

#define MAX_TREES 64

struct stat_args {
	enum format format;
	pid_t pids[MAX_TREES];
	unsigned nr_pids, max_pids;
	const char *name;
};

static error_t parse_arg(int key, char *arg, struct argp_state *state)
{
	struct stat_args *a = state->input;

	switch (key) {
	case OPT_JSON:
		a->format = FORMAT_JSON;
		return 0;
	case OPT_PROMETHEUS:
		a->format = FORMAT_PROMETHEUS;
		return 0;
	case ARGP_KEY_ARG:
		if (a->nr_pids == a->max_pids)
			cli_fail("%s: takes at most %u process ids", a->name, a->max_pids);
		a->pids[a->nr_pids++] = cli_pid(a->name, arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static void print_text(struct ps_shm *shm, const struct tree_stat *t)
{
	printf("limit      %s\n", cli_size(t->limit_bytes));
	printf("footprint  %s (peak %s): resident %s, pool %s (peak %s), metadata %s\n",
	       cli_size(t->footprint_bytes), cli_size(t->peak_footprint_bytes),
	       cli_size(t->resident_bytes), cli_size(t->pool_bytes), cli_size(t->peak_pool_bytes),
	       cli_size(t->metadata_bytes));
	printf("swapped    %s; out %s, in %s, same-filled %s, dropped clean %s\n",
	       cli_size(t->swapped_pages * PAGE_SIZE), cli_size(t->pages_out * PAGE_SIZE),
	       cli_size(t->pages_in * PAGE_SIZE), cli_size(t->pages_same_filled * PAGE_SIZE),
	       cli_size(t->pages_clean_dropped * PAGE_SIZE));
	printf("faults     %llu, %llu of them first touches; half within %.1f us, 99 %% within "
	       "%.1f us\n",
	       (unsigned long long)t->faults, (unsigned long long)t->faults_zero,
	       (double)stats_percentile(t, 50) / 1000, (double)stats_percentile(t, 99) / 1000);
	for (unsigned i = 0; i < t->nr_stores; i++)
		printf("store      %s: %s used, %llu errors\n", t->stores[i].name,
		       cli_size(t->stores[i].used_bytes),
		       (unsigned long long)t->stores[i].io_errors);
	for (u32 i = 0; i < MIN(relaxed_load(&shm->nr_members), PS_SHM_MEMBERS); i++) {
		const struct ps_member *m = &shm->members[i];

		if (shm_member_alive(shm, m))
			printf("process    %u %.16s: footprint %s, out %s, in %s\n",
			       relaxed_load(&m->pid), m->comm,
			       cli_size(relaxed_load(&m->footprint_bytes)),
			       cli_size(relaxed_load(&m->pages_out) * PAGE_SIZE),
			       cli_size(relaxed_load(&m->pages_in) * PAGE_SIZE));
	}
}

int cmd_stat(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "json", OPT_JSON, NULL, 0, "JSON, as of pswap run -o", 0 },
		{ "prometheus", OPT_PROMETHEUS, NULL, 0, "the text format of Prometheus", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_arg,
		.args_doc = "PID",
		.doc = "Figures of the tree that process PID belongs to.",
	};
	struct stat_args a = { .name = "stat", .max_pids = 1 };
	struct tree_stat t;
	struct ps_shm *shm;
	char why[128];

	cli_parse(&argp, "stat", argc, argv, false, &a);
	if (!a.nr_pids)
		cli_fail("stat: needs the process id of a program that runs under pswap");
	shm = shm_of_pid(a.pids[0], false, why, sizeof(why));
	if (!shm)
		cli_fail("stat: %s", why);
	stats_sum(&t, shm, NULL);
	if (a.format == FORMAT_JSON)
		return stats_json(stdout, shm, &t, NULL) ? 0 : EXIT_PSWAP;
	if (a.format == FORMAT_PROMETHEUS)
		stats_prometheus(stdout, &t);
	else
		print_text(shm, &t);
	return fflush(stdout) ? EXIT_PSWAP : 0;
}

struct tree {
	pid_t pid; /* of `pswap run`, or the one given */
	struct ps_shm *shm;
	struct tree_stat now, before;
};

struct top {
	struct tree trees[MAX_TREES];
	unsigned nr;
};

static void top_add(struct top *top, pid_t pid)
{
	char why[128];
	struct ps_shm *shm;

	for (unsigned i = 0; i < top->nr; i++) {
		if (top->trees[i].pid == pid)
			return;
	}
	if (top->nr == MAX_TREES)
		return;
	shm = shm_of_pid(pid, false, why, sizeof(why));
	if (!shm)
		return;
	top->trees[top->nr] = (struct tree){ .pid = pid, .shm = shm };
	stats_sum(&top->trees[top->nr++].now, shm, NULL);
}

/* All `pswap run` of this machine that we may look into. */
static void top_find(struct top *top)
{
	struct dirent *e;
	DIR *d = opendir("/proc");

	while (d && (e = readdir(d))) {
		char comm[16] = "";
		pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);

		if (pid > 0 && shm_starttime(pid, comm) && !strcmp(comm, "pswap") &&
		    pid != getpid())
			top_add(top, pid);
	}
	if (d)
		closedir(d);
}

static void top_show(struct top *top, void (*line)(const char *text))
{
	char text[160];

	snprintf(text, sizeof(text), "%8s %-15s %7s %9s %8s %7s %8s %8s %8s", "PID", "COMMAND",
		 "LIMIT", "FOOTPRINT", "RESIDENT", "POOL", "SWAPPED", "OUT/s", "IN/s");
	line(text);
	for (unsigned i = 0; i < top->nr; i++) {
		struct tree *t = &top->trees[i];
		char comm[16] = "(ended)";

		shm_starttime(t->pid, comm);
		if (!strcmp(comm, "pswap") && relaxed_load(&t->shm->nr_members))
			memcpy(comm, t->shm->members[0].comm, sizeof(comm) - 1);
		t->before = t->now;
		stats_sum(&t->now, t->shm, NULL);
		snprintf(text, sizeof(text), "%8d %-15.15s %7s %9s %8s %7s %8s %8s %8s",
			 (int)t->pid, comm, cli_size(t->now.limit_bytes),
			 cli_size(t->now.footprint_bytes), cli_size(t->now.resident_bytes),
			 cli_size(t->now.pool_bytes), cli_size(t->now.swapped_pages * PAGE_SIZE),
			 cli_size((t->now.pages_out - t->before.pages_out) * PAGE_SIZE),
			 cli_size((t->now.pages_in - t->before.pages_in) * PAGE_SIZE));
		line(text);
	}
}

static void line_plain(const char *text)
{
	puts(text);
}

static void line_curses(const char *text)
{
	addnstr(text, COLS - 1);
	addch('\n');
}

int cmd_top(int argc, char **argv)
{
	static const struct argp_option options[] = { { 0 } };
	static const struct argp argp = {
		.options = options,
		.parser = parse_arg,
		.args_doc = "[PID...]",
		.doc = "Watches the trees that the processes belong to, or all that run under "
		       "pswap here. q ends; without a terminal it prints once.",
	};
	struct stat_args a = { .name = "top", .max_pids = MAX_TREES };
	static struct top top;
	char why[128];

	cli_parse(&argp, "top", argc, argv, false, &a);
	for (unsigned i = 0; i < a.nr_pids; i++) {
		if (!shm_of_pid(a.pids[i], false, why, sizeof(why)))
			cli_fail("top: %s", why);
		top_add(&top, a.pids[i]);
	}
	if (!a.nr_pids)
		top_find(&top);
	if (!isatty(STDOUT_FILENO) || !initscr()) {
		top_show(&top, line_plain);
		return 0;
	}
	noecho();
	curs_set(0);
	timeout(1000);
	do {
		if (!a.nr_pids)
			top_find(&top);
		erase();
		top_show(&top, line_curses);
		refresh();
	} while (getch() != 'q');
	endwin();
	return 0;
}
