/* SPDX-License-Identifier: MIT */
/* bench_args.c - the options of `pswap bench`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cli.h"

#define MAX_ROUNDS 1000u
#define LIMIT_MIN  (16UL << 20) /* least memory_limit of pswap_open */
#define NAMES	   "munmap, pageout, scan, random, truncate, exit, fork"

static bool parse_size(const char *s, uint64_t *out)
{
	unsigned long long v;
	unsigned shift = 0;
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno)
		return false;
	switch (*end) {
	case 'T':
		shift += 10; /* fall through */
	case 'G':
		shift += 10; /* fall through */
	case 'M':
		shift += 10; /* fall through */
	case 'K':
		shift += 10;
		end++;
	}
	if (*end || !v || v > (1ULL << 47) >> shift)
		return false;
	*out = v << shift;
	return true;
}

enum {
	OPT_SIZE = 256,
	OPT_FILL,
	OPT_ROUNDS,
	OPT_PEER,
	OPT_JSON
};

static const struct argp_option options[] = {
	{ "size", OPT_SIZE, "SIZE", 0, "Bytes of memory, with K, M, G or T (default 1G)", 0 },
	{ "fill", OPT_FILL, "FILL", 0,
	  "same, mixed or random (default: same for munmap, truncate and exit, else mixed)", 0 },
	{ "rounds", OPT_ROUNDS, "N", 0,
	  "Samples of each side; truncate: of each object (default 5; truncate: 1)", 0 },
	{ "peer", OPT_PEER, "PEER", 0, "zram (default; needs root) or none", 0 },
	{ "json", OPT_JSON, NULL, 0, "Print JSON", 0 },
	{ 0 },
};

static void parse_name(struct bench_args *p, const char *arg)
{
	if (p->name)
		cli_fail("bench: %s: only one NAME can be given", arg);
	p->name = arg;
	p->all = !strcmp(arg, "all");
	for (unsigned i = 0; i < BENCH_NR; i++)
		if (p->all || !strcmp(arg, bench_kind_name(i)))
			p->kinds[i] = true;
	if (p->all)
		return;
	for (unsigned i = 0; i < BENCH_NR; i++)
		if (p->kinds[i])
			return;
	/* It needs a dozen programs of the distribution, so it is a script of the source tree. */
	if (!strcmp(arg, "apps"))
		cli_fail(
			"bench: apps: run bench/apps.sh of the source tree; --help lists the rest");
	cli_fail("bench: %s: NAME is one of " NAMES ", all; or compare FILE FILE", arg);
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct bench_args *p = state->input;
	struct bench_opts *o = &p->opts;
	unsigned long n;
	char *end;

	switch (key) {
	case OPT_SIZE:
		if (!parse_size(arg, &o->size) || o->size < BENCH_PMD)
			cli_fail("bench: --size %s: takes a SIZE of at least 2M, with K, M, G or T",
				 arg);
		/* Whole huge pages: every side maps, fills and unmaps the same range. */
		o->size = (o->size + BENCH_PMD - 1) & ~(BENCH_PMD - 1);
		return 0;
	case OPT_FILL:
		for (unsigned i = 0; i < FILL_NR; i++) {
			if (!strcmp(arg, bench_fill_name(i))) {
				o->fill = i;
				o->fill_given = true;
				return 0;
			}
		}
		cli_fail("bench: --fill %s: takes same, mixed or random", arg);
	case OPT_ROUNDS:
		errno = 0;
		n = strtoul(arg, &end, 10);
		if (*arg < '0' || *arg > '9' || *end || errno || !n || n > MAX_ROUNDS)
			cli_fail("bench: --rounds %s: takes a number from 1 to %u", arg,
				 MAX_ROUNDS);
		o->rounds = (unsigned)n;
		return 0;
	case OPT_PEER:
		o->peer_zram = !strcmp(arg, "zram");
		if (!o->peer_zram && strcmp(arg, "none"))
			cli_fail("bench: --peer %s: takes zram or none", arg);
		return 0;
	case OPT_JSON:
		o->json = true;
		return 0;
	case ARGP_KEY_ARG:
		parse_name(p, arg);
		return 0;
	case ARGP_KEY_END:
		if (!p->name)
			cli_fail("bench: NAME is missing: one of " NAMES ", all");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse_opt,
	.args_doc = "NAME",
	.doc = "Measures pswap beside the kernel's own swap on zram.\v"
	       "NAME is " NAMES
	       ", or all of these; `pswap bench compare --help` is about comparing "
	       "saved results.  The zram device, huge page settings and cgroup that the kernel's "
	       "side "
	       "needs are set up for each sample and put back, also on a signal.",
};

/* The filled region, what becomes of it, and some room: else it is the OOM killer we measure. */
static void check_memory(const struct bench_args *p)
{
	uint64_t kib = sample_field("/proc/meminfo", "MemAvailable", 0) / 1024, most = kib - kib / 8;

	if (kib && p->opts.size / 1024 > most)
		cli_fail("bench: --size: takes at most the memory that is free, %s now",
			 cli_size(most << 10));
	if ((p->kinds[BENCH_SCAN] || p->kinds[BENCH_RANDOM]) && p->opts.size < 2 * LIMIT_MIN)
		cli_fail("bench: --size: scan and random take at least %s",
			 cli_size(2 * LIMIT_MIN));
}

/* What is wrong ends the process. */
void bench_parse(int argc, char **argv, struct bench_args *p)
{
	/* NAME last: getopt's reordering would make cli_parse name the wrong word in an error. */
	if (argc > 2 && argv[1][0] != '-') {
		char *arg = argv[1];

		memmove(&argv[1], &argv[2], (size_t)(argc - 2) * sizeof(argv[0]));
		argv[argc - 1] = arg;
	}
	cli_parse(&argp, "bench", argc, argv, false, p);
	check_memory(p);
}
