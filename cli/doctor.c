/* SPDX-License-Identifier: MIT */
/* doctor.c - what this machine lets pswap do, and what `pswap run` would do here. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cli.h"

enum {
	OPT_JSON = 0x100
};

struct report {
	struct utsname uts;
	struct uffd_probe uffd;
	char unprivileged[16], thp[64], zram[64];
	struct memory_limit limit;
	const char *file_dir;
	u64 run_limit;
	long cpus;
	char cure[400];
	bool can_run;
};

static error_t parse_arg(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case OPT_JSON:
		*(bool *)state->input = true;
		return 0;
	case ARGP_KEY_ARG:
		cli_fail("doctor: takes no argument, so not '%s'", arg);
	}
	return ARGP_ERR_UNKNOWN;
}

/* The first line of a file; "" when it cannot be read. */
static void first_line(const char *path, char *out, size_t size)
{
	FILE *f = fopen(path, "re");

	out[0] = 0;
	if (!f)
		return;
	if (!fgets(out, (int)size, f))
		out[0] = 0;
	out[strcspn(out, "\n")] = 0;
	fclose(f);
}

/* "always [madvise] never" -> "madvise" */
static void chosen(char *text)
{
	char *l = strchr(text, '['), *r = l ? strchr(l, ']') : NULL;

	if (!r)
		return;
	*r = 0;
	memmove(text, l + 1, strlen(l + 1) + 1);
}

static void examine(struct report *r)
{
	memset(r, 0, sizeof(*r));
	uname(&r->uts);
	uffd_probe(&r->uffd);
	first_line("/proc/sys/vm/unprivileged_userfaultfd", r->unprivileged,
		   sizeof(r->unprivileged));
	first_line("/sys/kernel/mm/transparent_hugepage/enabled", r->thp, sizeof(r->thp));
	chosen(r->thp);
	if (!access("/sys/class/zram-control", F_OK) || !access("/sys/block/zram0", F_OK))
		snprintf(r->zram, sizeof(r->zram), "%s", geteuid() ? "there, needs root" : "yes");
	else
		snprintf(r->zram, sizeof(r->zram), "no");
	limit_of_machine(&r->limit);
	r->run_limit = (r->limit.bytes - r->limit.bytes / 10) & PAGE_MASK;
	r->file_dir = limit_file_dir();
	r->cpus = sysconf(_SC_NPROCESSORS_ONLN);
	r->can_run = r->uffd.access >= UFFD_DEVICE && r->run_limit >= PS_LIMIT_MIN;
	if (r->uffd.access < UFFD_DEVICE)
		uffd_cure(&r->uffd, r->cure, sizeof(r->cure));
}

static const char *access_text(enum uffd_access a)
{
	switch (a) {
	case UFFD_SYSCALL:
		return "full (system call)";
	case UFFD_DEVICE:
		return "full (/dev/userfaultfd)";
	case UFFD_USER_ONLY:
		return "user mode only";
	case UFFD_NONE:
		break;
	}
	return "none";
}

static const char *access_word(enum uffd_access a)
{
	return (const char *const[]){ "none", "user-only", "device", "syscall" }[a];
}

static const char *yes(bool b)
{
	return b ? "yes" : "no";
}

static void print_text(const struct report *r)
{
	printf("kernel        %s %s, %ld CPUs\n", r->uts.sysname, r->uts.release, r->cpus);
	printf("userfaultfd   %s; vm.unprivileged_userfaultfd=%s\n", access_text(r->uffd.access),
	       *r->unprivileged ? r->unprivileged : "?");
	printf("  move        %s\n",
	       r->uffd.move ? "yes"
			    : "no (before Linux 6.8): API regions work; run mode only for programs "
			      "without O_DIRECT, io_uring and vmsplice");
	printf("  fork events %s\n",
	       r->uffd.event_fork ? "yes" : "no (needs CAP_SYS_PTRACE): by hooks");
	printf("  poison      %s\n", yes(r->uffd.poison));
	printf("  wp async    %s\n", yes(r->uffd.wp_async));
	printf("huge pages    %s\n", *r->thp ? r->thp : "not in this kernel");
	printf("zram          %s (only the peer of `pswap bench`)\n", r->zram);
	printf("memory        %s, from %s\n", cli_size(r->limit.bytes), r->limit.from);
	printf("file store    %s\n",
	       r->file_dir ? r->file_dir : "no directory on disk that can be written");
	if (r->can_run)
		printf("pswap run     works; without -m its limit would be %s, stores: ram%s%s\n",
		       cli_size(r->run_limit), r->file_dir ? ", a file in " : "",
		       r->file_dir ? r->file_dir : "");
	else
		printf("pswap run     does not work: %s\n",
		       *r->cure ? r->cure : "less memory than the least limit, 16M");
}

static void print_json(const struct report *r)
{
	json_t *o = json_object();
	json_t *u =
		json_pack("{s:s,s:s,s:b,s:b,s:b,s:b,s:I}", "access", access_word(r->uffd.access),
			  "unprivileged", r->unprivileged, "move", r->uffd.move, "event_fork",
			  r->uffd.event_fork, "poison", r->uffd.poison, "wp_async",
			  r->uffd.wp_async, "features", (json_int_t)r->uffd.features);

	json_object_set_new(o, "kernel", json_string(r->uts.release));
	json_object_set_new(o, "cpus", json_integer(r->cpus));
	json_object_set_new(o, "userfaultfd", u);
	json_object_set_new(o, "thp", json_string(r->thp));
	json_object_set_new(o, "zram", json_string(r->zram));
	json_object_set_new(o, "memory_bytes", json_integer((json_int_t)r->limit.bytes));
	json_object_set_new(o, "memory_from", json_string(r->limit.from));
	json_object_set_new(o, "run_limit_bytes", json_integer((json_int_t)r->run_limit));
	json_object_set_new(o, "file_dir", r->file_dir ? json_string(r->file_dir) : json_null());
	json_object_set_new(o, "can_run", json_boolean(r->can_run));
	json_object_set_new(o, "cure", *r->cure ? json_string(r->cure) : json_null());
	json_dumpf(o, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(o);
}

int cmd_doctor(int argc, char **argv)
{
	static const struct argp_option options[] = {
		{ "json", OPT_JSON, NULL, 0, "as JSON", 0 },
		{ 0 },
	};
	static const struct argp argp = {
		.options = options,
		.parser = parse_arg,
		.doc = "Says what this machine lets pswap do. Exit status 0 when `pswap run` works "
		       "here, else 1.",
	};
	struct report r;
	bool json = false;

	cli_parse(&argp, "doctor", argc, argv, false, &json);
	examine(&r);
	if (json)
		print_json(&r);
	else
		print_text(&r);
	return r.can_run ? 0 : 1;
}
