/* SPDX-License-Identifier: MIT */
/* zap.c - see zap.h. */
#include "zap.h"
#include "account.h"
#include "arena.h"
#include "folio_batch.h"
#include "group.h"
#include "log.h"
#include "lru.h"
#include "pageout.h"
#include "pagetable.h"
#include "region.h"
#include "swap_cache.h"

/* The length of the run of swap entries at page i: consecutive slots of one area, cluster and
 * group (the kernel's swap_pte_batch). */
static unsigned swap_pte_batch(struct swapfile *sf, struct extent *e, unsigned i, unsigned end)
{
	swp_entry_t ents[PTRS_PER_PMD];
	unsigned nr = 0;
	pte_t pte;

	/* Only what can belong to the run is handed on for the cluster and group borders. */
	while (i + nr < end && pte_kind(pte = pte_get(e, i + nr)) == PTE_SWAP) {
		ents[nr] = pte_to_swp(pte);
		if (nr && ents[nr].val != ents[nr - 1].val + 1)
			break;
		nr++;
	}
	return swap_entry_batch(sf, ents, nr);
}

static void zap_pte_range(struct extent *e, unsigned i, unsigned end, unsigned flags)
{
	struct swapfile *sf = &e->mm->ps->swap;

	while (e->pmd == PMD_TABLE && (i = pte_skip(e, i)) < end) {
		pte_t pte = pte_get(e, i);
		unsigned nr = 1;

		switch (pte_kind(pte)) {
		case PTE_NONE:
			break;
		case PTE_SWAP:
			nr = swap_pte_batch(sf, e, i, end);
			for (unsigned k = 0; k < nr; k++)
				pte_set(e, i + k, pte_make(PTE_NONE));
			free_swap_and_cache_nr(sf, pte_to_swp(pte), nr);
			break;
		case PTE_GUARD:
			if (flags & ZAP_KEEP_GUARDS)
				break;
			/* fall through */
		default:
			pte_set(e, i, pte_make(PTE_NONE));
		}
		i += nr;
	}
}

/* Whole extents, the fast path: one free for a whole cluster. */
static void zap_pmd(struct extent *e, unsigned flags)
{
	struct swapfile *sf = &e->mm->ps->swap;

	if (e->pmd == PMD_SWAP) {
		swp_entry_t first = e->swap;

		pmd_clear(e);
		swap_free_runs(sf, first, PTRS_PER_PMD);
	} else if (e->pmd == PMD_CACHED) {
		pmd_clear(e);
	} else if (e->pmd == PMD_TABLE) {
		zap_pte_range(e, 0, PTRS_PER_PMD, flags);
	}
}

/* A frame that lost its last page: give it back now if no one is at the extent, else leave it to
 * reclaim, first in its queue. */
static void drop_dead_frame(struct extent *e)
{
	struct pswap *ps = e->mm->ps;
	struct frame *f = e->frame;

	if (!f || f->nr_live)
		return;
	if (!ps->cfg.foreign_program && ps_mutex_trylock(&e->io)) {
		/* Whoever had io may have released it meanwhile. */
		f = e->frame;
		if (f && !f->nr_live) {
			extent_set_frame(e, NULL);
			frame_release(ps, f);
			extent_lru_settle(e);
		}
		ps_mutex_unlock(&e->io);
		return;
	}
	folio_rotate_tail(&ps->lru, &e->folio);
	relaxed_store(&ps->reap, 1);
	ps_event_wake(&ps->reclaim_ev);
}

/* Unmapping waits for memory more than for anything else: ask for an extent six ahead, of which one
 * line will do (see struct extent), and for the cluster of one three ahead, which has come by then.
 */
static void prefetch_next(struct ps_mm *mm, struct extent *e, u64 end)
{
	u64 near = e->addr + 3 * PMD_SIZE, far = e->addr + 6 * PMD_SIZE;
	struct extent *next = near < end ? pt_find(mm, near) : NULL;
	struct extent *after = far < end ? pt_find(mm, far) : NULL;

	if (after)
		__builtin_prefetch(after, 1);
	if (next && next->pmd == PMD_SWAP)
		swap_prefetch(&mm->ps->swap, next->swap);
}

/* Which of pages [i, end) of e are in memory and go now: a bit each. */
static void pages_going(struct extent *e, unsigned i, unsigned end, unsigned flags,
			u64 bits[PTRS_PER_PMD / 64])
{
	bool cached = e->frame && e->frame->nr_live;

	for (unsigned w = 0; w < PTRS_PER_PMD / 64; w++)
		bits[w] = flags & ZAP_KEEP_PRESENT ? 0 : e->present[w];
	for (unsigned k = i; cached && k < end; k++)
		if (pte_kind(pte_get(e, k)) == PTE_CACHED)
			bits[k / 64] |= 1ULL << (k % 64);
	for (unsigned w = 0; w < PTRS_PER_PMD / 64; w++) {
		unsigned lo = w * 64, hi = lo + 64;

		if (hi <= i || lo >= end)
			bits[w] = 0;
		else if (i > lo)
			bits[w] &= ~0ULL << (i - lo);
		if (lo < end && end < hi)
			bits[w] &= ~0ULL >> (hi - end);
	}
}

/*
 * How many folios go with pages [i, end) of e: one of order 9 where the extent came as a whole, one
 * of order 4 for each whole block of 64 KiB, else one a page.  Memory that is to have small pages
 * has folios of order 0 only.
 */
static unsigned folios_going(struct extent *e, unsigned i, unsigned end, unsigned flags)
{
	u64 bits[PTRS_PER_PMD / 64];
	struct region *r;
	unsigned n = 0, pages = 0;
	bool small;

	/* Swapped out as a whole, as most of a big range is. */
	if (!relaxed_load(&e->folio.pages))
		return 0;
	pages_going(e, i, end, flags, bits);
	r = region_after(e->mm, pt_addr(e, i));
	small = r && (r->flags & (REGION_NOHUGE | REGION_RANDOM));
	for (unsigned w = 0; w < PTRS_PER_PMD / 64; w++) {
		pages += __builtin_popcountll(bits[w]);
		for (unsigned shift = 0; bits[w] && shift < 64; shift += BLOCK_PAGES) {
			unsigned block = bits[w] >> shift & 0xffff;

			n += !small && block == 0xffff ? 1 : __builtin_popcount(block);
		}
	}
	return pages == PTRS_PER_PMD && e->full && !small ? 1 : n;
}

static void release_folios(struct lru *lru, struct folio_batch *fb, struct folio *f, unsigned n)
{
	while (n--)
		if (!folio_batch_add(fb, f))
			folio_batch_release(lru, fb);
}

void zap_range(struct ps_mm *mm, u64 start, u64 end, unsigned flags)
{
	struct lru *lru = &mm->ps->lru;
	struct folio_batch fb;
	struct extent *e;
	u64 addr = start;

	folio_batch_init(&fb);
	for (; addr < end && (e = pt_next(mm, addr, end)); addr = e->addr + PMD_SIZE) {
		unsigned i = e->addr < start ? pt_index(start) : 0;
		unsigned last = e->addr + PMD_SIZE > end ? pt_index(end) : PTRS_PER_PMD;

		unsigned folios;

		prefetch_next(mm, e, end);
		ps_mutex_lock(&e->lock);
		folios = folios_going(e, i, last, flags);
		if (!(flags & ZAP_KEEP_PRESENT))
			present_clear(e, i, last - i);
		if (i == 0 && last == PTRS_PER_PMD) {
			zap_pmd(e, flags);
			e->full = false;
			relaxed_store(&e->fill, 0);
		} else if (e->pmd != PMD_NONE) {
			/* Part of a whole fact: pte_set turns it into a table first. */
			if (e->pmd != PMD_TABLE)
				pte_set(e, i, pte_get(e, i));
			zap_pte_range(e, i, last, flags);
		}
		drop_dead_frame(e);
		release_folios(lru, &fb, &e->folio, folios);
		if (!folios && !e->nr_present && !e->frame)
			folio_del_lru(&e->folio);
		ps_mutex_unlock(&e->lock);
	}
	folio_batch_release(lru, &fb);
}

static void set_locked(struct extent *e, unsigned i, pte_t pte)
{
	ps_mutex_lock(&e->lock);
	pte_set(e, i, pte);
	ps_mutex_unlock(&e->lock);
}

/*
 * A page in the frame of e whose address moves to `to`: it goes to a slot.  Not by COPY to its new
 * place, because another event may wait to be read, which makes COPY fail, and this step must not.
 * Only with every store full is COPY tried.
 */
static void cached_to(struct ps_ctx *ctx, struct extent *e, unsigned i, struct ps_mm *mm, u64 to)
{
	struct pswap *ps = mm->ps;
	struct extent *d = pt_get(mm, to);
	const char *page = e->frame->mem + i * PAGE_SIZE;
	swp_entry_t entry;

	ps_assert(d);
	if (swap_out_page(ctx, page, &entry) == 0) {
		ps_mutex_lock(&d->lock);
		pte_set(d, pt_index(to), pte_swap(entry));
		if (groups_on(ps))
			group_charge_swap(d, pt_index(to), entry, 1);
		ps_mutex_unlock(&d->lock);
		return;
	}
	if (uffd_copy(mm->uffd, to, page, PAGE_SIZE, true, false) == (s64)PAGE_SIZE) {
		account_add(ps, PAGE_SIZE);
		ps_mutex_lock(&d->lock);
		present_set(d, pt_index(to), 1);
		ps_mutex_unlock(&d->lock);
		folio_add_lru(&ps->lru, &d->folio);
		return;
	}
	ps_log("a page moved to %x by mremap is lost: every store is full", to);
	set_locked(d, pt_index(to), pte_make(PTE_POISON));
}

void zap_remap(struct ps_ctx *ctx, struct ps_mm *mm, u64 from, u64 to, u64 len)
{
	u64 end = from + len, addr = from;
	struct extent *e;

	/* Whatever was known of the target went with the UNMAP of what lay there. */
	for (; addr < end && (e = pt_next(mm, addr, end)); addr = e->addr + PMD_SIZE) {
		unsigned i = e->addr < from ? pt_index(from) : 0;
		unsigned last = e->addr + PMD_SIZE > end ? pt_index(end) : PTRS_PER_PMD;
		u64 base = to + (pt_addr(e, 0) - from);

		if (i == 0 && last == PTRS_PER_PMD && !(base & ~PMD_MASK) && e->pmd == PMD_SWAP) {
			struct extent *d = pt_get(mm, base);
			swp_entry_t first = e->swap;

			ps_assert(d);
			ps_mutex_lock(&e->lock);
			pmd_clear(e);
			ps_mutex_unlock(&e->lock);
			ps_mutex_lock(&d->lock);
			pmd_set_swap(d, first);
			ps_mutex_unlock(&d->lock);
			d->order = e->order;
			d->proven = e->proven;
			relaxed_store(&d->in_part, relaxed_load(&e->in_part));
			continue;
		}
		for (; i < last; i++) {
			u64 dst = to + (pt_addr(e, i) - from);
			struct extent *d;
			pte_t pte = pte_get(e, i);

			if (pte_kind(pte) == PTE_NONE && !present_test(e, i))
				continue;
			d = pt_get(mm, dst);
			ps_assert(d);
			if (present_test(e, i)) {
				ps_mutex_lock(&e->lock);
				present_clear(e, i, 1);
				ps_mutex_unlock(&e->lock);
				ps_mutex_lock(&d->lock);
				present_set(d, pt_index(dst), 1);
				ps_mutex_unlock(&d->lock);
				folio_add_lru(&mm->ps->lru, &d->folio);
			}
			if (pte_kind(pte) == PTE_NONE)
				continue;
			if (pte_kind(pte) == PTE_CACHED)
				cached_to(ctx, e, i, mm, dst);
			else
				set_locked(d, pt_index(dst), pte);
			set_locked(e, i, pte_make(PTE_NONE));
		}
		if (e->frame && !e->frame->nr_live) {
			folio_rotate_tail(&mm->ps->lru, &e->folio);
			relaxed_store(&mm->ps->reap, 1);
			ps_event_wake(&mm->ps->reclaim_ev);
		}
		folio_recount(&e->folio);
	}
}
