/* SPDX-License-Identifier: MIT */
/*
 * bench_pswap.c - a sample of pswap's side: the library as any program would use it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "pswap.h"

/* MADV_PAGEOUT of the whole region until all of it is out, or it does not get further. */
static bool page_out(struct pswap *ps, const struct bench_req *req, void *addr,
		     struct pswap_stat *st, struct bench_sample *s)
{
	uint64_t pages = req->size / BENCH_PAGE;
	unsigned tries = req->kind == BENCH_PAGEOUT ? 1 : 4;

	while (tries--) {
		uint64_t cpu = bench_cpu(), t = bench_now();

		if (pswap_madvise(ps, addr, req->size, MADV_PAGEOUT)) {
			bench_fail(s, "MADV_PAGEOUT: %s", pswap_strerror());
			return false;
		}
		s->value = (double)(bench_now() - t);
		s->cpu_ns = bench_cpu() - cpu;
		if (pswap_stat(ps, st)) {
			bench_fail(s, "pswap_stat: %s", pswap_strerror());
			return false;
		}
		if (st->swapped_pages >= pages)
			break;
	}
	/* The rule is the same on the kernel's side. */
	if (st->swapped_pages < pages - pages / 100) {
		bench_fail(s, "only %lu of %lu pages were swapped",
			   (unsigned long)st->swapped_pages, (unsigned long)pages);
		return false;
	}
	return true;
}

static bool measure(struct pswap *ps, const struct bench_req *req, void *addr, bool *mapped,
		    struct pswap_stat *st, struct bench_sample *s)
{
	uint64_t t, cpu;

	if (bench_limited(req->kind)) {
		if (!bench_timed_passes(req, addr, s))
			return false;
		if (pswap_stat(ps, st)) {
			bench_fail(s, "pswap_stat: %s", pswap_strerror());
			return false;
		}
		return true;
	}
	if (!page_out(ps, req, addr, st, s))
		return false;
	if (req->kind == BENCH_PAGEOUT || req->kind == BENCH_EXIT)
		return true;
	cpu = bench_cpu();
	t = bench_now();
	if (pswap_munmap(ps, addr, req->size)) {
		bench_fail(s, "munmap: %s", pswap_strerror());
		return false;
	}
	s->value = (double)(bench_now() - t);
	if (pswap_purge(ps)) {
		bench_fail(s, "pswap_purge: %s", pswap_strerror());
		return false;
	}
	s->returned = (double)(bench_now() - t);
	s->cpu_ns = bench_cpu() - cpu; /* until the memory is back: nothing hidden in a thread */
	*mapped = false;
	return true;
}

void bench_pswap_worker(const struct bench_req *req, struct bench_sample *s)
{
	static const char *const ram_only[] = { "ram" };
	struct pswap_options opt = { .size = sizeof(opt) };
	struct pswap_stat st = { .size = sizeof(st) }, end = { .size = sizeof(end) };
	struct pswap *ps;
	bool mapped = true;
	void *addr;

	if (req->side == SIDE_PSWAP_ENTRY)
		setenv("PSWAP_FREE", "entry", 1);
	else
		unsetenv("PSWAP_FREE");
	if (bench_limited(req->kind)) {
		/* Default stores: what does not fit under the limit must have a place to go. */
		opt.memory_limit = req->limit;
		if (req->side == SIDE_PSWAP_RESIDENT)
			opt.flags |= PSWAP_COUNT_RESIDENT;
	} else {
		/* Nothing but the timed calls is to cause work, and all of it stays in memory as
		 * it does with zram: pages that do not compress too, which pswap's pool takes
		 * only while it is not counted. */
		opt.flags |= PSWAP_COUNT_RESIDENT;
		opt.memory_limit = 4 * req->size + (1UL << 30);
		opt.stores = ram_only;
		opt.n_stores = 1;
	}
	s->limit_bytes = opt.memory_limit;
	if (pswap_open(&ps, &opt)) {
		bench_fail(s, "pswap_open: %s", pswap_strerror());
		return;
	}
	addr = pswap_mmap(ps, req->size, NULL, req->side == SIDE_PSWAP_4K ? PSWAP_MAP_NOHUGE : 0);
	if (addr == MAP_FAILED) {
		bench_fail(s, "pswap_mmap: %s", pswap_strerror());
		pswap_close(ps);
		return;
	}
	if (req->side != SIDE_PSWAP_4K)
		pswap_madvise(ps, addr, req->size, MADV_HUGEPAGE);
	bench_fill_range(req->fill, addr, req->size);

	s->ok = measure(ps, req, addr, &mapped, &st, s);
	if (s->ok) {
		s->swapped_pages = st.swapped_pages;
		s->pool_bytes = st.pool_bytes;
		s->metadata_bytes = st.metadata_bytes;
		s->peak_pool_bytes = st.peak_pool_bytes;
		s->peak_bytes = st.peak_footprint_bytes;
	}
	if (req->kind == BENCH_EXIT)
		return;
	if (mapped)
		pswap_munmap(ps, addr, req->size);
	pswap_purge(ps);
	for (unsigned i = 0; i < 100 && !pswap_stat(ps, &end); i++) {
		s->pool_after_bytes = end.pool_bytes;
		s->left[0] = end.slots_used;
		s->left[1] = end.frames_used;
		s->left[2] = end.segments_used;
		if (!(s->left[0] | s->left[1] | s->left[2]))
			break;
		/* Engine threads may be at work on something still. */
		usleep(20000);
		pswap_purge(ps);
	}
	pswap_close(ps);
}
