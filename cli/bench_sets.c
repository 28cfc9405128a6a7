/* SPDX-License-Identifier: MIT */
/*
 * bench_sets.c - from samples to what is reported: figures of each set, the better of the kernel's
 * configurations, ratios.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_sets.h"

#define AT(field) offsetof(struct bench_sample, field)

static const struct out_figure sample_figures[] = {
	{ "", AT(value), false },
	{ "_exit", AT(fork_exit), false },
	{ "_returned", AT(returned), false },
	{ "_read", AT(fork_read), false },
	{ "_mem", AT(mem), true },
	{ "_mem_read", AT(mem_read), true },
};
#define N_FIGURES (sizeof(sample_figures) / sizeof(sample_figures[0]))

static bool has_figure(enum bench_kind kind, enum bench_side side, const struct out_figure *f)
{
	if (f->at == AT(value))
		return true;
	if (f->at == AT(returned))
		return side == SIDE_PSWAP && (kind == BENCH_MUNMAP || kind == BENCH_FORK);
	return kind == BENCH_FORK;
}

const char *bench_set_unit(enum bench_kind kind, const struct bench_set *set)
{
	return bench_side_drain(set->side) ? "ns/drain" : bench_unit(kind);
}

double bench_sample_value(const struct out_set *s, unsigned i)
{
	const char *sample = (const char *)&s->set->samples[i];

	return *(const double *)(sample + s->figure->at);
}

static void figures(struct out_set *s)
{
	unsigned n = s->set->n;
	double *v = malloc(n * sizeof(*v));

	if (!v)
		abort();
	for (unsigned i = 0; i < n; i++)
		v[i] = bench_sample_value(s, i);
	bench_sort(v, n);
	s->f.min = v[0];
	s->f.max = v[n - 1];
	s->f.median = bench_quantile(v, n, 0.5);
	s->f.spread = s->f.median > 0 ? (s->f.max - s->f.min) / s->f.median : 0;
	free(v);
}

static struct out_set *find(struct out *o, const char *name)
{
	for (unsigned i = 0; i < o->n; i++)
		if (!strcmp(o->sets[i].name, name))
			return &o->sets[i];
	return NULL;
}

static struct out_set *add(struct out *o, enum bench_kind kind, const char *name,
			   const struct bench_set *set, const struct out_figure *f)
{
	struct out_set *s = &o->sets[o->n++];

	*s = (struct out_set){ .set = set, .figure = f };
	snprintf(s->name, sizeof(s->name), "%s%s", name, f->suffix);
	s->unit = f->bytes ? "bytes" : bench_set_unit(kind, set);
	figures(s);
	return s;
}

/* For each figure the set of the smallest median among names (NULL-terminated), again under its own
 * name. */
static void add_best(struct out *o, enum bench_kind kind, const char *name,
		     const char *const *names)
{
	for (const struct out_figure *f = sample_figures; f < sample_figures + N_FIGURES; f++) {
		struct out_set *best = NULL, *s;
		char full[sizeof(s->name)];

		for (unsigned i = 0; names[i]; i++) {
			snprintf(full, sizeof(full), "%s%s", names[i], f->suffix);
			s = find(o, full);
			if (s && (!best || s->f.median < best->f.median))
				best = s;
		}
		if (best)
			add(o, kind, name, best->set, f)->config = best->name;
	}
}

/* Over 1: `ours` takes less than `theirs`; a small difference of memory may be none. */
static void add_ratio(struct out *o, const char *name, const char *ours, const char *theirs)
{
	struct out_set *a = find(o, ours), *b = find(o, theirs);

	if (!a || !b || a->f.median <= 0 || b->f.median <= 0)
		return;
	o->ratio[o->n_ratio].name = name;
	o->ratio[o->n_ratio++].value = b->f.median / a->f.median;
}

#define KIND(k) (1U << BENCH_##k)
#define EACH ((1U << BENCH_NR) - 1)

/* Which ratios a benchmark has, in the order in which they are reported; those of sets that it has. */
static const struct {
	unsigned kinds;
	const char *name, *ours, *theirs;
} ratios[] = {
	{ EACH, "vs_zram", "pswap", "zram" },
	{ KIND(TRUNCATE), "vs_every", "pswap", "pswap_every" },
	{ KIND(TRUNCATE), "vs_memfd", "pswap", "memfd" },
	{ KIND(TRUNCATE), "vs_memfd_unmapped", "pswap", "memfd_unmapped" },
	{ KIND(TRUNCATE), "huge_vs_every", "pswap_huge", "pswap_huge_every" },
	{ KIND(TRUNCATE), "huge_vs_memfd", "pswap_huge", "memfd" },
	{ KIND(TRUNCATE), "huge_vs_memfd_unmapped", "pswap_huge", "memfd_unmapped" },
	{ KIND(MUNMAP), "vs_entry", "pswap", "pswap_entry" },
	{ KIND(MUNMAP), "returned_vs_zram", "pswap_returned", "zram" },
	{ KIND(MUNMAP), "vs_zram_thp", "pswap", "zram_thp" },
	{ KIND(FORK), "exit_vs_zram", "pswap_exit", "zram_exit" },
	{ KIND(FORK), "returned_vs_zram", "pswap_returned", "zram_exit" },
	{ KIND(FORK), "read_vs_zram", "pswap_read", "zram_read" },
	{ KIND(FORK), "mem_vs_zram", "pswap_mem", "zram_mem" },
	{ KIND(FORK), "mem_read_vs_zram", "pswap_mem_read", "zram_mem_read" },
	{ KIND(PAGEOUT), "pswap_4k_vs_zram", "pswap_4k", "zram" },
	{ KIND(PAGEOUT), "pswap_4k_vs_zram_4k", "pswap_4k", "zram_4k" },
	{ KIND(SCAN) | KIND(RANDOM), "resident_vs_zram", "pswap_resident", "zram_resident" },
	{ KIND(SCAN) | KIND(RANDOM), "vs_zram_resident", "pswap", "zram_resident" },
};

void bench_derive(const struct bench_result *r, struct out *o)
{
	static const char *const two[] = { "zram_4k", "zram_64k", NULL };
	static const char *const three[] = { "zram_4k", "zram_64k", "zram_thp", NULL };
	static const char *const resident[] = { "zram_resident_4k", "zram_resident_64k", NULL };

	memset(o, 0, sizeof(*o));
	for (unsigned i = 0; i < r->n_sets; i++) {
		const struct bench_set *set = &r->sets[i];

		if (set->dropped || !set->n)
			continue;
		for (unsigned k = 0; k < N_FIGURES; k++)
			if (has_figure(r->kind, set->side, &sample_figures[k]))
				add(o, r->kind, set->name, set, &sample_figures[k]);
	}
	add_best(o, r->kind, "zram",
		 r->kind == BENCH_PAGEOUT || r->kind == BENCH_EXIT ? three : two);
	add_best(o, r->kind, "zram_resident", resident);

	for (unsigned i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++)
		if (ratios[i].kinds >> r->kind & 1)
			add_ratio(o, ratios[i].name, ratios[i].ours, ratios[i].theirs);
}

const char *bench_counted(enum bench_kind kind)
{
	switch (kind) {
	case BENCH_TRUNCATE:
		return "wall time to drop one object of 4 MiB, every page of it touched: "
		       "pswap_truncate, of 4 KiB folios or (huge) of huge pages, with one drain of the "
		       "CPU's folio batches an object or (every) one a refill; memfd: ftruncate of a "
		       "mapped file, unmapped: of one no longer mapped; drain_N: a drain alone while N "
		       "threads add folios";
	case BENCH_MUNMAP:
		return "wall time of munmap of a region that is swapped out whole; pswap_returned: "
		       "until its pool memory is back at the system, which the kernel's time holds "
		       "too";
	case BENCH_EXIT:
		return "wall time from the call of _exit by a process that is swapped out whole to the "
		       "return of its parent's waitpid: all its memory, swap slots and pool are back at "
		       "the system by then";
	case BENCH_FORK:
		return "a process that is swapped out whole forks: wall time of the call in the parent; "
		       "_exit: until waitpid of a child that ends at once; _returned: until its memory "
		       "is back at the system, which the kernel's _exit holds too; _read: until waitpid "
		       "of a child that first reads a word of one page in 16; _mem: memory that parent "
		       "and child take more than the parent alone; _mem_read: the same after the child "
		       "has read";
	case BENCH_PAGEOUT:
		return "wall time of madvise(MADV_PAGEOUT) on a region just filled; pswap uses its "
		       "worker threads, the kernel the calling thread (see the CPU time)";
	case BENCH_SCAN:
		return "wall time to read every page, in order, twice; pswap: half the size for "
		       "memory and pool together; zram: a cgroup of that less pswap's peak pool; "
		       "*_resident: half the size, pool not counted";
	default:
		return "wall time to read a word of a page drawn at random; pswap: half the size "
		       "for "
		       "memory and pool together; zram: a cgroup of that less pswap's peak pool; "
		       "*_resident: half the size, pool not counted";
	}
}
