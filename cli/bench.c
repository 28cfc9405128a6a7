/* SPDX-License-Identifier: MIT */
/*
 * bench.c - `pswap bench`: the rounds of each benchmark.
 *
 * A round takes one sample of every set, in the order of the plans below, so that whatever else
 * the machine does meets all sides alike.  What is measured and how stands in docs/benchmarks.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "bench_peer.h"
#include "cli.h"

#define CGROUP_MIN   (8UL << 20)  /* a process hardly lives with less */
#define SIZE_DEFAULT (1UL << 30)
#define SAMPLE_TRIES 3u
#define ROUNDS_DEFAULT 5u

struct plan {
	const char *name;
	enum bench_side side;
};

static const struct plan plan_munmap[] = {
	{ "pswap", SIDE_PSWAP },       { "pswap_entry", SIDE_PSWAP_ENTRY },
	{ "zram_4k", SIDE_ZRAM_4K },   { "zram_64k", SIDE_ZRAM_64K },
	{ "zram_thp", SIDE_ZRAM_THP }, { NULL, 0 },
};
static const struct plan plan_exit[] = {
	{ "pswap", SIDE_PSWAP },
	{ "zram_4k", SIDE_ZRAM_4K },
	{ "zram_64k", SIDE_ZRAM_64K },
	{ "zram_thp", SIDE_ZRAM_THP },
	{ NULL, 0 },
};
static const struct plan plan_fork[] = {
	{ "pswap", SIDE_PSWAP },
	{ "zram_4k", SIDE_ZRAM_4K },
	{ "zram_64k", SIDE_ZRAM_64K },
	{ NULL, 0 },
};
static const struct plan plan_pageout[] = {
	{ "pswap", SIDE_PSWAP },       { "pswap_4k", SIDE_PSWAP_4K }, { "zram_4k", SIDE_ZRAM_4K },
	{ "zram_64k", SIDE_ZRAM_64K }, { "zram_thp", SIDE_ZRAM_THP }, { NULL, 0 },
};
static const struct plan plan_limited[] = {
	{ "pswap", SIDE_PSWAP },
	{ "pswap_resident", SIDE_PSWAP_RESIDENT },
	{ "zram_4k", SIDE_ZRAM_4K },
	{ "zram_64k", SIDE_ZRAM_64K },
	{ "zram_resident_4k", SIDE_ZRAM_RESIDENT_4K },
	{ "zram_resident_64k", SIDE_ZRAM_RESIDENT_64K },
	{ NULL, 0 },
};

static const struct plan plan_truncate[] = {
	{ "pswap", SIDE_PSWAP },
	{ "pswap_every", SIDE_PSWAP_EVERY },
	{ "pswap_huge", SIDE_PSWAP_HUGE },
	{ "pswap_huge_every", SIDE_PSWAP_HUGE_EVERY },
	{ "memfd", SIDE_MEMFD },
	{ "memfd_unmapped", SIDE_MEMFD_UNMAPPED },
	{ "drain_0", SIDE_DRAIN_0 },
	{ "drain_1", SIDE_DRAIN_1 },
	{ "drain_8", SIDE_DRAIN_8 },
	{ NULL, 0 },
};

static const struct {
	const char *name, *unit;
	const struct plan *plan;
	enum bench_fill fill; /* the default */
} kinds[BENCH_NR] = {
	[BENCH_MUNMAP] = { "munmap", "ns", plan_munmap, FILL_SAME },
	[BENCH_PAGEOUT] = { "pageout", "ns", plan_pageout, FILL_MIXED },
	[BENCH_SCAN] = { "scan", "ns/page", plan_limited, FILL_MIXED },
	[BENCH_RANDOM] = { "random", "ns/access", plan_limited, FILL_MIXED },
	[BENCH_TRUNCATE] = { "truncate", "ns", plan_truncate, FILL_SAME },
	[BENCH_EXIT] = { "exit", "ns", plan_exit, FILL_SAME },
	[BENCH_FORK] = { "fork", "ns", plan_fork, FILL_MIXED },
};
static const char *const fills[FILL_NR] = { "same", "mixed", "random" };

const char *bench_kind_name(enum bench_kind kind)
{
	return kinds[kind].name;
}

enum bench_fill bench_used_fill(enum bench_kind kind, const struct bench_opts *o)
{
	return o->fill_given ? o->fill : kinds[kind].fill;
}

const char *bench_fill_name(enum bench_fill fill)
{
	return fills[fill];
}

const char *bench_unit(enum bench_kind kind)
{
	return kinds[kind].unit;
}

static void note(struct bench_result *r, const char *set, const char *what)
{
	if (r->n_notes < ARRAY_SIZE(r->notes))
		snprintf(r->notes[r->n_notes++], BENCH_WHY, "%.24s: %.160s", set, what);
}

/* Bytes allowed to a side; pool: the peak of pswap's pool in this round. */
static uint64_t side_limit(const struct bench_req *req, uint64_t pool)
{
	uint64_t half = req->size / 2;

	if (req->kind == BENCH_FORK)
		return bench_fork_limit(req->size);
	if (!bench_limited(req->kind))
		return 0;
	if (req->side != SIDE_ZRAM_4K && req->side != SIDE_ZRAM_64K)
		return half;
	return half > pool + CGROUP_MIN ? half - pool : CGROUP_MIN;
}

static void drop_peer(struct bench_result *r, const char *why)
{
	for (unsigned i = 0; i < r->n_sets; i++)
		if (bench_side_kernel(r->sets[i].side))
			r->sets[i].dropped = true;
	snprintf(r->zram_why, BENCH_WHY, "%s", why);
}

/* A set that the kernel cannot do; the others stay, and the notes say that one is missing. */
static void drop_set(struct bench_result *r, struct bench_set *set, const char *why)
{
	set->dropped = true;
	note(r, set->name, why);
	for (unsigned i = 0; i < r->n_sets; i++)
		if (bench_side_kernel(r->sets[i].side) && !r->sets[i].dropped)
			return;
	drop_peer(r, r->notes[r->n_notes - 1]);
}

/* 0: sampled, or dropped; -1: stopped by a signal. */
static int sample_kernel(struct bench_result *r, struct bench_set *set, struct bench_req *req,
			 struct peer *peer)
{
	struct bench_sample *s = &set->samples[set->n];

	/* Again on failure: in a small cgroup the kernel now and then finds all big folios
	 * referenced, and its OOM killer ends the process with half of it swapped. */
	for (unsigned i = 0; i < SAMPLE_TRIES; i++) {
		int ret = peer_sample(peer, req, s);

		if (ret < 0)
			return -1;
		if (ret > 0) {
			drop_peer(r, s->why);
			return 0;
		}
		if (s->ok) {
			set->n++;
			return 0;
		}
		set->retried++;
	}
	drop_set(r, set, s->why);
	return 0;
}

/* 0: sampled; -1: stopped, or pswap failed (said on standard error). */
static int sample_pswap(struct bench_result *r, struct bench_set *set, struct bench_req *req,
			struct bench_sample *shared, struct peer *peer)
{
	int ret = 1;

	/* The guardian has a cgroup for it, so that memory is counted alike on both sides. */
	if (req->kind == BENCH_FORK && peer && !*r->zram_why)
		ret = peer_sample(peer, req, shared);
	if (ret > 0)
		ret = bench_child(bench_worker_of(req), req, shared, -1, NULL);
	if (ret)
		return -1;
	if (!shared->ok) {
		cli_warn("bench %s: %s: %s", kinds[r->kind].name, set->name, shared->why);
		return -1;
	}
	set->samples[set->n++] = *shared;
	return 0;
}

static void plan_sets(struct bench_result *r, const struct peer *peer, const char *why)
{
	for (const struct plan *p = kinds[r->kind].plan; p->name; p++) {
		struct bench_set *set = &r->sets[r->n_sets++];
		unsigned kib = 0;

		set->name = p->name;
		set->side = p->side;
		if (!bench_side_kernel(p->side) || !peer)
			continue;
		if (p->side == SIDE_ZRAM_64K || p->side == SIDE_ZRAM_RESIDENT_64K)
			kib = 64;
		else if (p->side == SIDE_ZRAM_THP)
			kib = 2048;
		if (kib && !peer_has_folio(peer_look(peer), kib)) {
			set->dropped = true;
			note(r, p->name, "this kernel has no folios of that size");
		}
	}
	if (!peer)
		drop_peer(r, why);
	else
		snprintf(r->zram_algorithm, sizeof(r->zram_algorithm), "%s",
			 peer_look(peer)->algorithm);
}

/* Says so when the engine did not come back to where it began. */
static void note_left(struct bench_result *r, const struct bench_set *set)
{
	char text[BENCH_WHY];

	for (unsigned i = 0; i < set->n; i++) {
		const uint64_t *left = set->samples[i].left;

		if (!(left[0] | left[1] | left[2]))
			continue;
		snprintf(text, sizeof(text),
			 "left after the unmap: %lu slots, %lu frames, "
			 "%lu segments",
			 left[0], left[1], left[2]);
		note(r, set->name, text);
		return;
	}
}

/* fork: which memory is counted, when it is not the usual way. */
static void note_pss(struct bench_result *r)
{
	for (unsigned i = 0; i < r->n_sets; i++) {
		const struct bench_set *set = &r->sets[i];

		if (set->n && set->samples[set->n - 1].by_pss)
			note(r, set->name, "_mem is Pss_Anon and page tables, as there is no cgroup");
	}
}

static void free_result(struct bench_result *r)
{
	for (unsigned i = 0; r && i < r->n_sets; i++)
		free(r->sets[i].samples);
	free(r);
}

/* truncate: all samples of all sets. 0, or -1 (said on standard error, unless stopped). */
static int run_truncate(struct bench_result *r, struct bench_req *req, bool peer)
{
	char why[BENCH_WHY] = "";

	for (unsigned i = 0; i < r->n_sets; i++)
		if (!peer && strncmp(r->sets[i].name, "memfd", 5) == 0)
			r->sets[i].dropped = true;
	snprintf(r->zram_why, BENCH_WHY, "%s", peer ? "the peer of truncate is memfd" :
						       "--peer none");
	switch (bench_truncate_run(r, req, why)) {
	case 0:
		return 0;
	case 1:
		cli_warn("bench truncate: %s", why);
	}
	return -1;
}

/* The others need the library only, which can do with less. */
static bool can_fork(void)
{
	struct uffd_probe probe;
	char cure[400];

	uffd_probe(&probe);
	if (probe.access >= UFFD_DEVICE)
		return true;
	uffd_cure(&probe, cure, sizeof(cure));
	cli_warn("bench all: fork is left out: %s", cure);
	return false;
}

/* NULL: stopped, or failed with a line on standard error. */
static struct bench_result *run(enum bench_kind kind, const struct bench_opts *opts,
				struct peer *peer, const char *why, const uint64_t *sums)
{
	struct bench_result *r = calloc(1, sizeof(*r));
	struct bench_sample *shared = bench_shared(sizeof(*shared));
	struct bench_req req = { .kind = kind, .size = opts->size, .sums = sums };
	uint64_t pool = 0;

	if (!r || !shared)
		goto oom;
	r->kind = kind;
	r->opts = opts;
	req.fill = bench_used_fill(kind, opts);
	plan_sets(r, peer, why);
	for (unsigned i = 0; i < r->n_sets; i++) {
		unsigned n = kind == BENCH_TRUNCATE ? bench_truncate_samples(opts) : opts->rounds;

		r->sets[i].samples = calloc(n, sizeof(*r->sets[i].samples));
		if (!r->sets[i].samples)
			goto oom;
	}
	if (kind == BENCH_TRUNCATE) {
		if (run_truncate(r, &req, opts->peer_zram))
			goto fail;
		munmap(shared, sizeof(*shared));
		return r;
	}
	for (req.seed = 1; req.seed <= opts->rounds; req.seed++) {
		for (unsigned i = 0; i < r->n_sets; i++) {
			struct bench_set *set = &r->sets[i];

			if (set->dropped)
				continue;
			req.side = set->side;
			req.limit = side_limit(&req, pool);
			if (bench_side_kernel(set->side) ? sample_kernel(r, set, &req, peer)
							 : sample_pswap(r, set, &req, shared, peer))
				goto fail;
			if (set->side == SIDE_PSWAP)
				pool = shared->peak_pool_bytes;
		}
	}
	for (unsigned i = 0; i < r->n_sets; i++)
		note_left(r, &r->sets[i]);
	note_pss(r);
	munmap(shared, sizeof(*shared));
	return r;
oom:
	cli_warn("bench: out of memory");
fail:
	if (shared)
		munmap(shared, sizeof(*shared));
	free_result(r);
	return NULL;
}

static uint64_t *make_sums(const struct bench_args *p)
{
	const struct bench_opts *o = &p->opts;
	enum bench_fill fill = bench_used_fill(BENCH_SCAN, o);
	uint64_t pages = o->size / BENCH_PAGE, *sums = bench_shared(pages * sizeof(*sums));

	for (uint64_t i = 0; sums && i < pages; i++)
		sums[i] = bench_page_sum(fill, i);
	return sums;
}

/* What was not given, or does not fit. */
static struct bench_opts bench_opts_of(const struct bench_args *p, enum bench_kind kind)
{
	struct bench_opts o = p->opts;

	if (!o.rounds)
		o.rounds = kind == BENCH_TRUNCATE ? 1 : ROUNDS_DEFAULT;
	if (kind == BENCH_TRUNCATE)
		o.size = (o.size + BENCH_OBJECT - 1) & ~(BENCH_OBJECT - 1);
	return o;
}

static int run_all(struct bench_args *p)
{
	struct bench_result *res[BENCH_NR];
	struct bench_opts opts[BENCH_NR];
	char why[BENCH_WHY] = "--peer none";
	struct peer *peer = NULL;
	uint64_t *sums = NULL;
	unsigned n = 0;
	int ret = 0;

	/* Before the guardian is forked: its measured processes read them. */
	if (p->kinds[BENCH_SCAN] && !(sums = make_sums(p))) {
		cli_warn("bench: out of memory");
		return EXIT_PSWAP;
	}
	if (p->opts.peer_zram && (p->all || !p->kinds[BENCH_TRUNCATE]))
		peer = peer_start(p->opts.size, why);
	for (unsigned k = 0; k < BENCH_NR && !ret && !bench_stop; k++) {
		if (!p->kinds[k] || (p->all && k == BENCH_FORK && !can_fork()))
			continue;
		opts[k] = bench_opts_of(p, k);
		res[n] = run(k, &opts[k], peer, why, sums);
		if (res[n])
			n++;
		else
			ret = EXIT_PSWAP;
	}
	peer_stop(peer);
	if (bench_stop)
		ret = EXIT_PSWAP;
	if (!ret && p->opts.json) {
		ret = bench_print_json(&p->opts, res, n, p->all);
	} else if (!ret) {
		for (unsigned i = 0; i < n; i++) {
			if (i)
				putchar('\n');
			bench_print_table(res[i]);
		}
		ret = bench_flush();
	}
	for (unsigned i = 0; i < n; i++)
		free_result(res[i]);
	if (sums)
		munmap(sums, p->opts.size / BENCH_PAGE * sizeof(*sums));
	return ret;
}

int cmd_bench(int argc, char **argv)
{
	struct bench_args p = { .opts = { .size = SIZE_DEFAULT, .peer_zram = true } };
	int ret;

	if (argc > 1 && !strcmp(argv[1], "compare"))
		return cmd_bench_compare(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], BENCH_FORK_PROGRAM))
		return bench_fork_program(argc - 1, argv + 1);
	bench_parse(argc, argv, &p);
	bench_signals();
	ret = run_all(&p);
	if (bench_stop) {
		/* Everything is put back: now end by the signal, as the sender expects. */
		sigset_t set;
		int sig = bench_stop;

		signal(sig, SIG_DFL);
		raise(sig);
		sigemptyset(&set);
		sigaddset(&set, sig);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
	}
	return ret;
}
