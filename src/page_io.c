/* SPDX-License-Identifier: MIT */
/*
 * page_io.c - see pageout.h: the second half of a page-out, from a frame to slots of a store.
 */
#include <sys/uio.h>

#include "pageout.h"
#include "account.h"
#include "fault.h"
#include "group.h"
#include "lru.h"
#include "pagetable.h"
#include "swap_cache.h"
#include "workingset.h"

#define INCOMPRESSIBLE_NS 4000000000ULL /* memory that did not shrink is not tried again before */

/* ---- to a store ---- */

/* The first max pages of e that still are in the swap cache: their indexes to ctx->index. Those of one
 * group, when it is reclaimed. */
static unsigned collect_cached(struct ps_ctx *ctx, struct extent *e, unsigned max)
{
	unsigned n = 0;

	ps_mutex_lock(&e->lock);
	for (unsigned i = 0; i < PTRS_PER_PMD && n < max; i++)
		if (pte_kind(pte_get(e, i)) == PTE_CACHED &&
		    (!ctx->only || extent_group(e, i) == ctx->only))
			ctx->index[n++] = i;
	ps_mutex_unlock(&e->lock);
	return n;
}

/*
 * Makes pages [from, from + n) of ctx->index readable at ctx->pages.  A huge page is read in place;
 * small pages that were just moved are dear to touch, the kernel's own map of them is not (FACTS), so
 * they are copied out first.
 */
static void stage_pages(struct ps_ctx *ctx, struct frame *f, unsigned from, unsigned n)
{
	struct iovec remote[PS_BUF_PAGES], local = { ctx->buf, n * PAGE_SIZE };
	unsigned iovs = 0;

	for (unsigned k = from; k < from + n; k++)
		ctx->pages[k] = f->mem + ctx->index[k] * PAGE_SIZE;
	if (f->huge)
		return;
	for (unsigned k = from; k < from + n; iovs++) {
		unsigned run = 1;

		while (k + run < from + n && ctx->index[k + run] == ctx->index[k] + run)
			run++;
		remote[iovs].iov_base = ctx->pages[k];
		remote[iovs].iov_len = run * PAGE_SIZE;
		k += run;
	}
	/* Not permitted (ptrace restrictions): read in place. */
	if (sys_call6(SYS_process_vm_readv, ctx->ps->pid, SYS_ARG(&local), 1, SYS_ARG(remote), iovs,
		      0) == (long)(n * PAGE_SIZE))
		for (unsigned k = 0; k < n; k++)
			ctx->pages[from + k] = ctx->buf + k * PAGE_SIZE;
}

/* The areas to begin with for these pages: past the RAM store when they would not shrink, or when
 * the pool has grown to all it may have. */
static int choose_area(struct ps_ctx *ctx, struct frame *f, unsigned n, bool forced,
		       unsigned *first)
{
	struct pswap *ps = ctx->ps;
	unsigned size = 0, seen = 0;
	u64 word;

	*first = 0;
	if (ps->ram_area != 0)
		return 0;
	/* The other process has the page still: compressed, ours would be more than there was before. */
	if (f && f->copies && ps->nr_stores > 1) {
		*first = 1;
		return 0;
	}
	for (unsigned k = 0; seen < 4; seen++, k += MAX(n / 4, 1U)) {
		unsigned c;

		if (k >= n)
			break;
		if (f)
			stage_pages(ctx, f, k, 1);
		if (codec_same_filled(ctx->pages[k], &word))
			continue;
		c = codec_compress(&ctx->probe, ctx->pages[k], ctx->probe_out);
		size += c ? c : PAGE_SIZE;
	}
	if (size > seen * (PAGE_SIZE * 7 / 8) && !forced) {
		/* Memory that does not shrink gains nothing in memory, unless the pool is not
		 * counted. */
		if (ps->nr_stores == 1)
			return ps->cfg.count == PS_COUNT_RESIDENT ? 0 : -E2BIG;
		*first = 1;
	} else if (account_pool(ps) > account_pool_cap(ps)) {
		if (ps->nr_stores == 1)
			return -ENOSPC;
		*first = 1;
	}
	return 0;
}

/* Slots for up to n pages, all in one area: entries to ctx->entries + done. Returns how many. */
static unsigned alloc_slots(struct ps_ctx *ctx, unsigned first, unsigned done, unsigned n)
{
	struct swapfile *sf = &ctx->ps->swap;
	swp_entry_t *ents = ctx->entries + done;
	unsigned got;

	if (n == PTRS_PER_PMD && swap_alloc_order(sf, first, ctx->id, 9, ents) == 0) {
		for (got = 1; got < PTRS_PER_PMD; got++)
			ents[got].val = ents[0].val + got;
		return got;
	}
	return swap_alloc_of_one(sf, first, ctx->id, n, ents);
}

/* Writes pages [done, done + got) to the slots allocated for them, a buffer at a time. Returns how
 * many; the slots of the others are free again. */
static unsigned write_slots(struct ps_ctx *ctx, struct frame *f, unsigned done, unsigned got)
{
	struct swapfile *sf = &ctx->ps->swap;
	swp_entry_t *ents = ctx->entries + done;
	struct store *st = swap_store(sf, ents[0]);
	unsigned w = 0;

	for (unsigned k = 0; k < got; k++)
		ctx->slots[k] = swp_offset(ents[k]);
	while (w < got) {
		unsigned n = f && !f->huge ? MIN(got - w, PS_BUF_PAGES) : got - w;
		int ret;

		if (f)
			stage_pages(ctx, f, done + w, n);
		ret = st->ops->write(st, ctx->id, ctx->slots + w,
				     (const void *const *)ctx->pages + done + w, n);
		w += MAX(ret, 0);
		if (ret < (int)n)
			break;
	}
	for (unsigned k = w; k < got; k++)
		swapcache_free(sf, ents[k], 1);
	return w;
}

/* Slots for n pages (of frame f, at ctx->index; or at ctx->pages when f is NULL) and their data.
 * Returns how many, from the first, are written; their entries in ctx->entries, cache flag on. */
static unsigned write_from(struct ps_ctx *ctx, struct frame *f, unsigned n, unsigned first)
{
	struct pswap *ps = ctx->ps;
	unsigned done = 0;

	while (done < n && first < ps->nr_stores) {
		unsigned got = alloc_slots(ctx, first, done, n - done), type, w;

		if (!got)
			break;
		type = swp_type(ctx->entries[done]);
		w = write_slots(ctx, f, done, got);
		done += w;
		if (w < got)
			first = type + 1;
	}
	return done;
}

int swap_out_page(struct ps_ctx *ctx, const void *page, swp_entry_t *entry)
{
	unsigned first;

	ctx->pages[0] = (void *)(uintptr_t)page;

	/* The caller has no other place for it: what choose_area thinks wise does not matter. */
	if (choose_area(ctx, NULL, 1, false, &first) || write_from(ctx, NULL, 1, first) != 1)
		if (write_from(ctx, NULL, 1, 0) != 1)
			return -ENOSPC;
	*entry = ctx->entries[0];
	swap_duplicate(&ctx->ps->swap, *entry, 1);
	swapcache_free(&ctx->ps->swap, *entry, 1);
	return 0;
}

static bool whole_cluster(struct ps_ctx *ctx, unsigned n)
{
	return n == PTRS_PER_PMD && swp_offset(ctx->entries[0]) % SWAPFILE_CLUSTER == 0 &&
	       ctx->entries[PTRS_PER_PMD - 1].val == ctx->entries[0].val + PTRS_PER_PMD - 1;
}

/* The written pages get their slots as ptes, those that are still there. Returns how many. */
static unsigned install(struct ps_ctx *ctx, struct extent *e, unsigned n)
{
	struct swapfile *sf = &ctx->ps->swap;
	unsigned installed = 0;

	ps_rwlock_read_lock(&e->mm->gate);
	ps_mutex_lock(&e->lock);
	if (e->pmd == PMD_CACHED && whole_cluster(ctx, n)) {
		swap_duplicate(sf, ctx->entries[0], n);
		pmd_set_swap(e, ctx->entries[0]);
		if (groups_on(ctx->ps))
			group_charge_swap(e, 0, ctx->entries[0], n);
		installed = n;
	} else {
		for (unsigned k = 0; k < n; k++) {
			if (pte_kind(pte_get(e, ctx->index[k])) != PTE_CACHED)
				continue;
			swap_duplicate(sf, ctx->entries[k], 1);
			pte_set(e, ctx->index[k], pte_swap(ctx->entries[k]));
			if (groups_on(ctx->ps))
				group_charge_swap(e, ctx->index[k], ctx->entries[k], 1);
			installed++;
		}
	}
	ps_mutex_unlock(&e->lock);
	ps_rwlock_read_unlock(&e->mm->gate);
	for (unsigned k = 0; k < n;) {
		unsigned nr = swap_entry_batch(sf, ctx->entries + k, n - k);

		swapcache_free(sf, ctx->entries[k], nr);
		k += nr;
	}
	return installed;
}

/* Memory that does not shrink, and no store but memory: back into view, and left alone for a while, or
 * it would fill the inactive list. */
static void put_back(struct ps_ctx *ctx, struct extent *e)
{
	for (unsigned tries = 0; tries < PTRS_PER_PMD && e->frame; tries++) {
		if (!collect_cached(ctx, e, PTRS_PER_PMD))
			break;
		if (fault_return_cached(ctx, e, ctx->index[0]))
			break;
	}
	relaxed_store(&e->quiet_until, ps_now_ns() + INCOMPRESSIBLE_NS);
}

int frame_write(struct ps_ctx *ctx, struct extent *e, struct frame *f, bool forced,
		unsigned *written)
{
	unsigned max = f->huge ? PTRS_PER_PMD : PIECE_PAGES, first = PS_MAX_STORES, n;

	*written = 0;
	while ((n = collect_cached(ctx, e, max))) {
		unsigned w;

		if (first == PS_MAX_STORES) {
			int ret = choose_area(ctx, f, n, forced, &first);

			if (ret)
				return ret;
		}
		w = write_from(ctx, f, n, first);
		if (!w)
			return -ENOSPC;
		w = install(ctx, e, w);
		*written += w;
		stat_add(ctx->ps->stat, pages_out, w);
		if (!forced && ps_mutex_is_contended(&e->io))
			break;
	}
	return 0;
}

void extent_lru_settle(struct extent *e)
{
	if (e->nr_present)
		folio_activate(&e->mm->ps->lru, &e->folio);
	else
		folio_del_lru(&e->folio);
}

void frame_drop(struct extent *e)
{
	struct frame *f = e->frame;

	ps_mutex_lock(&e->lock);
	extent_set_frame(e, NULL);
	ps_mutex_unlock(&e->lock);
	frame_release(e->mm->ps, f);
}

int extent_write_out(struct ps_ctx *ctx, struct extent *e, bool wait)
{
	struct pswap *ps = ctx->ps;
	unsigned written;
	struct frame *f;
	int ret = 0;

	if (wait)
		ps_mutex_lock(&e->io);
	else if (!ps_mutex_trylock(&e->io))
		return 0;
	f = e->frame;
	if (!f)
		goto out;
	ret = frame_write(ctx, e, f, wait, &written);
	if (ret == -E2BIG) {
		put_back(ctx, e);
		ret = 0;
	}
	f = e->frame;
	if (f && f->nr_live == 0) {
		ret = f->nr_pages;
		frame_drop(e);
		if (!wait && written)
			workingset_evict(e, written);
		extent_lru_settle(e);
	} else if (f && !ret && ctx->only) {
		/* What is left is of other groups, or comes next time. */
		ret = (int)written;
		folio_deactivate(&ps->lru, &e->folio);
	} else if (f && !ret && !wait) {
		/* Cut short: the rest when the fault has been served. */
		folio_rotate_tail(&ps->lru, &e->folio);
	}
out:
	if (!e->frame && folio_lru(&e->folio) == LRU_INACTIVE)
		extent_lru_settle(e);
	ps_mutex_unlock(&e->io);
	return ret;
}
