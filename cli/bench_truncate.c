/* SPDX-License-Identifier: MIT */
/*
 * bench_truncate.c - `pswap bench truncate`: objects of 4 MiB, every page touched, each dropped and
 * timed on its own.
 *
 * A round is sixteen groups of sixteen objects (16 directories of 16 files, as in the benchmark that
 * this one follows).  Each group has a process of its own, and the sets take turns group by group,
 * forth and back, so that no set has a time of day, or a certain predecessor, of its own.  Before
 * the timed objects of a group one more is dropped, for what only the first drop of a process pays.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "folio_batch.h"
#include "lru.h"
#include "pswap.h"

/* What a measured process fills in: sample.value is not used. */
struct group {
	struct bench_sample sample; /* first: bench_child() knows it only */
	unsigned n;
	double v[BENCH_GROUP_MAX];
};

static struct group *group_of(struct bench_sample *s)
{
	return (struct group *)s;
}

/* ---- pswap ---- */

static bool side_huge(enum bench_side side)
{
	return side == SIDE_PSWAP_HUGE || side == SIDE_PSWAP_HUGE_EVERY;
}

static bool side_every(enum bench_side side)
{
	return side == SIDE_PSWAP_EVERY || side == SIDE_PSWAP_HUGE_EVERY;
}

static bool timed_drops(struct pswap *ps, struct group *g, char *const *obj)
{
	struct pswap_stat st = { .size = sizeof(st) };
	uint64_t drains, cpu;

	if (pswap_truncate(ps, obj[g->n], BENCH_OBJECT, 0) || pswap_stat(ps, &st))
		return false;
	drains = st.lru_drains;
	cpu = bench_cpu();
	for (unsigned i = 0; i < g->n; i++) {
		uint64_t t = bench_now();

		if (pswap_truncate(ps, obj[i], BENCH_OBJECT, 0))
			return false;
		g->v[i] = (double)(bench_now() - t);
	}
	g->sample.cpu_ns = (bench_cpu() - cpu) / g->n;
	if (pswap_stat(ps, &st))
		return false;
	g->sample.drains = (double)(st.lru_drains - drains) / g->n;
	g->sample.metadata_bytes = st.metadata_bytes;
	g->sample.ok = true;
	return true;
}

static void pswap_group(const struct bench_req *req, struct group *g)
{
	static const char *const ram_only[] = { "ram" };
	struct pswap_options opt = { .size = sizeof(opt), .stores = ram_only, .n_stores = 1 };
	char *obj[BENCH_GROUP_MAX + 1];
	struct pswap *ps;

	setenv("PSWAP_DRAIN", side_every(req->side) ? "every" : "once", 1);
	/* Nothing but the drops is to cause work. */
	opt.memory_limit = 4 * (g->n + 1) * BENCH_OBJECT + (1UL << 30);
	g->sample.limit_bytes = opt.memory_limit;
	if (pswap_open(&ps, &opt)) {
		bench_fail(&g->sample, "pswap_open: %s", pswap_strerror());
		return;
	}
	for (unsigned i = 0; i <= g->n; i++) {
		obj[i] = pswap_mmap(ps, BENCH_OBJECT, NULL,
				    side_huge(req->side) ? 0 : PSWAP_MAP_NOHUGE);
		if (obj[i] == MAP_FAILED) {
			bench_fail(&g->sample, "pswap_mmap: %s", pswap_strerror());
			return;
		}
		bench_fill_range(req->fill, obj[i], BENCH_OBJECT);
	}
	if (!timed_drops(ps, g, obj)) {
		bench_fail(&g->sample, "%s", pswap_strerror());
		return;
	}
	for (unsigned i = 0; i <= g->n; i++)
		for (unsigned long p = 0; p < BENCH_OBJECT; p += BENCH_PAGE)
			if (obj[i][p])
				bench_fail(&g->sample, "a dropped page is not zero");
	pswap_close(ps);
}

/* ---- memfd ---- */

static char *memfd_object(enum bench_fill fill, int *fd, struct bench_sample *s)
{
	char *p;

	*fd = memfd_create("pswap-bench", MFD_CLOEXEC);
	if (*fd < 0 || ftruncate(*fd, BENCH_OBJECT)) {
		bench_fail(s, "memfd: %s", strerror(errno));
		return NULL;
	}
	p = mmap(NULL, BENCH_OBJECT, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (p == MAP_FAILED) {
		bench_fail(s, "mmap: %s", strerror(errno));
		return NULL;
	}
	/* Pages of 4 KiB, as the pswap sets have. */
	madvise(p, BENCH_OBJECT, MADV_NOHUGEPAGE);
	bench_fill_range(fill, p, BENCH_OBJECT);
	return p;
}

static void memfd_group(const struct bench_req *req, struct group *g)
{
	int fd[BENCH_GROUP_MAX + 1];
	uint64_t cpu;

	for (unsigned i = 0; i <= g->n; i++) {
		char *p = memfd_object(req->fill, &fd[i], &g->sample);

		if (!p)
			return;
		if (req->side == SIDE_MEMFD_UNMAPPED)
			munmap(p, BENCH_OBJECT);
	}
	if (ftruncate(fd[g->n], 0)) {
		bench_fail(&g->sample, "ftruncate: %s", strerror(errno));
		return;
	}
	cpu = bench_cpu();
	for (unsigned i = 0; i < g->n; i++) {
		uint64_t t = bench_now();

		if (ftruncate(fd[i], 0)) {
			bench_fail(&g->sample, "ftruncate: %s", strerror(errno));
			return;
		}
		g->v[i] = (double)(bench_now() - t);
	}
	g->sample.cpu_ns = (bench_cpu() - cpu) / g->n;
	g->sample.ok = true;
}

/* ---- a needless drain alone ---- */

#define DRAINS	    1000U /* timed together: one takes nanoseconds */
#define ADDER_FOLIOS 62U

static struct lru drain_lru;
static _Atomic bool adders_stop;

/* A thread that keeps on adding folios: full batches move, others lie about half full. */
static void *adder(void *arg)
{
	struct folio *f = arg;

	while (!relaxed_load(&adders_stop)) {
		for (unsigned i = 0; i < ADDER_FOLIOS; i++)
			folio_add_lru(&drain_lru, &f[i]);
		for (unsigned i = 0; i < ADDER_FOLIOS; i++)
			folio_del_lru(&f[i]);
	}
	return NULL;
}

static unsigned side_adders(enum bench_side side)
{
	return side == SIDE_DRAIN_8 ? 8 : side == SIDE_DRAIN_1 ? 1 : 0;
}

/* What PSWAP_DRAIN=every pays at each refill: lru_add_drain while none of our folios waits. */
static void drain_group(const struct bench_req *req, struct group *g)
{
	static struct folio folios[8][ADDER_FOLIOS];
	pthread_t threads[8];
	unsigned n = side_adders(req->side), started = 0;
	uint64_t cpu;

	for (unsigned i = 0; i < 8 * ADDER_FOLIOS; i++) {
		folio_init(&folios[0][i], &drain_lru.root);
		folios[0][i].pages = 1;
	}
	while (started < n && !pthread_create(&threads[started], NULL, adder, folios[started]))
		started++;
	if (started < n)
		bench_fail(&g->sample, "a thread cannot be started");
	usleep(started ? 20000 : 0);
	cpu = bench_cpu();
	for (unsigned i = 0; i < g->n; i++) {
		uint64_t t = bench_now();

		for (unsigned k = 0; k < DRAINS; k++)
			lru_add_drain(&drain_lru);
		g->v[i] = (double)(bench_now() - t) / DRAINS;
	}
	g->sample.cpu_ns = (bench_cpu() - cpu) / g->n;
	g->sample.drains = 1;
	g->sample.ok = started == n;
	relaxed_store(&adders_stop, true);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

static void group_worker(const struct bench_req *req, struct bench_sample *s)
{
	struct group *g = group_of(s);

	g->n = (unsigned)req->limit; /* objects of this group */
	if (bench_side_drain(req->side))
		drain_group(req, g);
	else if (req->side == SIDE_MEMFD || req->side == SIDE_MEMFD_UNMAPPED)
		memfd_group(req, g);
	else
		pswap_group(req, g);
}

/* ---- groups and rounds ---- */

unsigned bench_truncate_samples(const struct bench_opts *o)
{
	return (unsigned)(o->size / BENCH_OBJECT) * o->rounds;
}

static int sample_group(struct bench_set *set, struct bench_req *req, struct group *g)
{
	if (bench_child(group_worker, req, &g->sample, -1, NULL))
		return -1;
	if (!g->sample.ok)
		return 1;
	for (unsigned i = 0; i < g->n; i++) {
		struct bench_sample *s = &set->samples[set->n++];

		*s = g->sample;
		s->value = g->v[i];
	}
	return 0;
}

/* One group of each set that is not dropped, of drains or of the others. As bench_truncate_run. */
static int sample_groups(struct bench_result *r, struct bench_req *req, struct group *g, bool back,
			 bool drains, char why[BENCH_WHY])
{
	for (unsigned i = 0; i < r->n_sets; i++) {
		struct bench_set *set = &r->sets[back ? r->n_sets - 1 - i : i];
		int ret;

		if (set->dropped || bench_side_drain(set->side) != drains)
			continue;
		req->side = set->side;
		ret = sample_group(set, req, g);
		if (ret == 1)
			snprintf(why, BENCH_WHY, "%.24s: %.160s", set->name, g->sample.why);
		if (ret)
			return ret;
	}
	return 0;
}

/* Fills the sets of r. 0; -1: stopped; 1: failed, why says so. */
int bench_truncate_run(struct bench_result *r, struct bench_req *req, char why[BENCH_WHY])
{
	unsigned objects = (unsigned)(req->size / BENCH_OBJECT), left;
	unsigned groups = objects < 16 ? objects : 16;
	int ret = 0;
	struct group *g = NULL;

	if (objects > groups * BENCH_GROUP_MAX)
		groups = (objects + BENCH_GROUP_MAX - 1) / BENCH_GROUP_MAX;
	g = bench_shared(sizeof(*g));
	if (!g) {
		strcpy(why, "out of memory");
		return 1;
	}
	/* The drains last: their threads would disturb who comes after them. */
	for (unsigned round = 0; round < 2 * r->opts->rounds && !ret; round++) {
		left = objects;
		for (unsigned k = 0; k < groups && !ret; k++) {
			req->limit = left / (groups - k);
			left -= (unsigned)req->limit;
			ret = sample_groups(r, req, g, k % 2, round >= r->opts->rounds, why);
		}
	}
	munmap(g, sizeof(*g));
	return ret;
}
