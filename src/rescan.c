/* SPDX-License-Identifier: MIT */
/* rescan.c - see rescan.h. */
#include "rescan.h"
#include "lru.h"
#include "pagetable.h"
#include "region.h"
#include "swap_cache.h"

/* Of pages [lo, hi) from addr, which is that of an extent, on. True: some are there, or are guards. */
static bool read_pagemap(struct pswap *ps, u64 addr, unsigned lo, unsigned hi, u64 map[PTRS_PER_PMD])
{
	long size = (hi - lo) * sizeof(u64);

	if (sys_pread(ps->pagemap_fd, map + lo, size, ((addr >> PAGE_SHIFT) + lo) * sizeof(u64)) != size)
		return false;
	for (unsigned i = lo; i < hi; i++)
		if (map[i] & (PM_PRESENT | PM_SWAP | PM_GUARD))
			return true;
	return false;
}

static void rescan_extent(struct ps_ctx *ctx, u64 addr, unsigned lo, unsigned hi)
{
	struct pswap *ps = ctx->ps;
	struct ps_mm *mm = &ps->mm;
	u64 map[PTRS_PER_PMD];
	struct extent *e;
	bool again;

	/* Where nothing is there are to be no extents. */
	if (!read_pagemap(ps, addr, lo, hi, map) || !(e = pt_get(mm, addr)))
		return;
	/* With io nothing of it is on its way out or in, with the gate nothing is dropped. */
	ps_mutex_lock(&e->io);
	ps_rwlock_read_lock(&mm->gate);
	ps_mutex_lock(&e->lock);
	again = read_pagemap(ps, addr, lo, hi, map);
	for (unsigned i = lo; again && i < hi; i++) {
		if ((map[i] & PM_GUARD) && pte_kind(pte_get(e, i)) == PTE_NONE)
			pte_set(e, i, pte_make(PTE_GUARD));
		else if (map[i] & (PM_PRESENT | PM_SWAP))
			present_set(e, i, 1);
	}
	ps_mutex_unlock(&e->lock);
	ps_rwlock_read_unlock(&mm->gate);
	folio_add_lru(&ps->lru, &e->folio);
	ps_mutex_unlock(&e->io);
}

void rescan_range(struct ps_ctx *ctx, u64 start, u64 end)
{
	for (u64 addr = start & PMD_MASK; addr < end; addr += PMD_SIZE)
		rescan_extent(ctx, addr, addr < start ? pt_index(start) : 0,
			      addr + PMD_SIZE > end ? pt_index(end) : PTRS_PER_PMD);
}

void rescan_all(struct ps_ctx *ctx)
{
	u64 start, end;

	for (u64 addr = 0; region_next(&ctx->ps->mm, addr, &start, &end); addr = end)
		rescan_range(ctx, start, end);
}

void rescan_later(struct extent *e)
{
	struct pswap *ps = e->mm->ps;

	if (e->mm->foreign || !e->nr_present)
		return;
	relaxed_store(&e->unsure, true);
	if (!relaxed_load(&ps->rescan_ns))
		relaxed_store(&ps->rescan_ns, relaxed_load(&e->quiet_until));
}

static void rescan_regions_of(struct ps_ctx *ctx, struct extent *e)
{
	u64 extent_end = e->addr + PMD_SIZE, start, end;

	for (u64 a = e->addr; a < extent_end && region_next(e->mm, a, &start, &end) && start < extent_end; a = end)
		rescan_range(ctx, start, MIN(end, extent_end));
}

void rescan_due(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;
	struct ps_mm *mm = &ps->mm;
	u64 due = relaxed_load(&ps->rescan_ns), start, end, next = 0;

	if (!due || ps_now_ns() < due)
		return;
	/* Before looking: who has more to look for after this sets it again. */
	relaxed_store(&ps->rescan_ns, 0);
	ps_rwlock_read_lock(&ps->freeze);
	for (u64 addr = 0; region_next(mm, addr, &start, &end); addr = end) {
		struct extent *e;

		for (u64 a = start; a < end && (e = pt_next(mm, a, end)); a = e->addr + PMD_SIZE) {
			u64 until = relaxed_load(&e->quiet_until);

			if (!relaxed_load(&e->unsure))
				continue;
			if (ps_now_ns() < until) {
				next = next ? MIN(next, until) : until;
				continue;
			}
			relaxed_store(&e->unsure, false);
			rescan_regions_of(ctx, e);
		}
	}
	ps_rwlock_read_unlock(&ps->freeze);
	if (next && !relaxed_load(&ps->rescan_ns))
		relaxed_store(&ps->rescan_ns, next);
}
