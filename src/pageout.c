/* SPDX-License-Identifier: MIT */
/*
 * pageout.c - see pageout.h.
 *
 * Taking out is one MOVE of up to 2 MiB: whoever touches a page meanwhile faults and waits.  The
 * kernel refuses pages that are shared after a fork or pinned for DMA (EBUSY).  The first kind can
 * be made ours by MADV_POPULATE_WRITE; what is refused after that is pinned and stays.
 */
#include <sys/uio.h>

#include "pageout.h"
#include "account.h"
#include "fault.h"
#include "group.h"
#include "learn.h"
#include "log.h"
#include "lru.h"
#include "pagetable.h"
#include "reclaim.h"
#include "region.h"
#include "swap_cache.h"
#include "vma.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SKIP_PASSES 8  /* reclaim passes an extent is left alone when nothing could be taken */
#define INCOMPRESSIBLE_NS 4000000000ULL /* memory that did not shrink is not tried again before */
#define PIECE_PAGES 128U /* small pages moved, or written, before looking whether a fault waits */
#define MAX_REFUSED 64 /* pages refused in one pass before the rest is left alone */

struct take {
	struct ps_ctx *ctx;
	struct extent *e;
	struct frame *f;
	u64 moved[PTRS_PER_PMD / 64]; /* API: pages moved, from what we knew to be present */
	unsigned refused;
	bool shared; /* met EBUSY, worth one MADV_POPULATE_WRITE */
	bool again;  /* cut short, by an event (EAGAIN) or a fault that waits: nothing can be said */
	bool final;  /* second try: EBUSY means pinned */
};

/* ---- out of view ---- */

static bool inflight(struct pswap *ps, u64 start, u64 end)
{
	for (unsigned i = 0; i < PS_INFLIGHT; i++) {
		u64 s = atomic_load(&ps->inflight[i].start);

		if (s && s < end && atomic_load(&ps->inflight[i].end) > start)
			return true;
	}
	return false;
}

static void note_moved(struct take *t, unsigned p, unsigned n)
{
	for (; n; p++, n--)
		if (present_test(t->e, p))
			t->moved[p / 64] |= 1ULL << (p % 64);
}

/* MOVE refused page p for a reason of its mapping. Returns the page to go on from, and lowers *end
 * of the piece to move when a border of VMAs is all that is wrong. */
static unsigned after_refusal(struct take *t, unsigned p, unsigned *end)
{
	struct pswap *ps = t->ctx->ps;
	u64 addr = pt_addr(t->e, p), extent_end = t->e->addr + PMD_SIZE;
	struct vma v;

	t->refused++;
	if (vma_query(ps->maps_fd, addr, &v))
		return *end;
	if (v.start > addr)
		return v.start >= extent_end ? *end : pt_index(v.start);
	if (v.shared || v.inode || v.prot != (PROT_READ | PROT_WRITE))
		return v.end >= extent_end ? *end : pt_index(v.end);
	if (v.end < pt_addr(t->e, *end - 1) + PAGE_SIZE) {
		*end = pt_index(v.end);
		return p;
	}
	return p + 1; /* locked, a guard, or something we do not know */
}

/* What came back in parts is small pages and is moved in several pieces; the rest may be a huge page,
 * which a MOVE of less would split. */
static unsigned piece_from(struct take *t, unsigned p, unsigned end)
{
	return t->e->full || !t->e->hits ? end : MIN(end, p + PIECE_PAGES);
}

/* Moves pages [p, end) of the extent; fewer when a fault waits for it. */
static void move_pages(struct take *t, unsigned p, unsigned end)
{
	struct pswap *ps = t->ctx->ps;
	unsigned piece = piece_from(t, p, end);

	while (p < end && t->refused < MAX_REFUSED) {
		u64 off = (u64)p << PAGE_SHIFT;
		s64 ret = uffd_move(t->e->mm->uffd, (u64)(uintptr_t)t->f->mem + off,
				    t->e->addr + off, (u64)(piece - p) << PAGE_SHIFT, false);

		if (ret > 0) {
			note_moved(t, p, ret >> PAGE_SHIFT);
			p += ret >> PAGE_SHIFT;
			if (p == piece)
				piece = piece_from(t, p, end);
			if (p < end && ps_mutex_is_contended(&t->e->io)) {
				t->again = true;
				return;
			}
			continue;
		}
		if (ret == -EAGAIN) {
			relaxed_store(&ps->pending_events, 1);
			t->again = true;
			return;
		}
		if (ret == -ESRCH || ret == -ENOMEM)
			return;
		if (ret == -EBUSY) {
			if (!t->final) {
				t->shared = true;
				return;
			}
			stat_inc(ps->stat, pages_pinned);
			t->refused++;
			p++;
			continue;
		}
		p = after_refusal(t, p, &piece);
		if (p >= piece)
			piece = piece_from(t, p, end);
	}
}

/* For memory of the API we know which pages are there; others are not to be moved, for nobody would
 * know that they were. */
static void move_present(struct take *t, unsigned p, unsigned end)
{
	while (p < end) {
		unsigned n = 0;

		while (p + n < end && present_test(t->e, p + n))
			n++;
		if (n)
			move_pages(t, p, p + n);
		p += n + 1;
	}
}

/*
 * Without MOVE (kernels before 6.8), for memory of the API: write-protect, copy, drop.  A writer
 * meanwhile faults and waits for e->io.  Unlike MOVE this does not notice pages that are pinned for
 * DMA, so programs of others are not served this way.
 */
static void copy_pages(struct take *t, unsigned p, unsigned end)
{
	struct pswap *ps = t->ctx->ps;
	int fd = t->e->mm->uffd;

	while (p < end) {
		unsigned n = 0;
		u64 addr = pt_addr(t->e, p), len;
		struct iovec local, remote;

		while (p + n < end && present_test(t->e, p + n))
			n++;
		if (!n) {
			p++;
			continue;
		}
		len = (u64)n << PAGE_SHIFT;
		local = (struct iovec){ t->f->mem + ((u64)p << PAGE_SHIFT), len };
		remote = (struct iovec){ (void *)(uintptr_t)addr, len };
		if (uffd_writeprotect(fd, addr, len, true, false) < 0)
			return;
		if (sys_call6(SYS_process_vm_readv, ps->pid, SYS_ARG(&local), 1, SYS_ARG(&remote),
			      1, 0) != (long)len)
			memcpy(local.iov_base, remote.iov_base, len);
		sys_madvise(remote.iov_base, len, MADV_DONTNEED);
		/* Who waited to write finds the page missing now. */
		uffd_writeprotect(fd, addr, len, false, true);
		uffd_wake(fd, addr, len);
		note_moved(t, p, n);
		p += n;
	}
}

/* The parts of [lo, hi) that may be moved: not pinned by us. */
static void move_unpinned(struct take *t, unsigned lo, unsigned hi)
{
	while (lo < hi) {
		unsigned end = hi;

		if (t->e->pmd == PMD_TABLE) {
			while (lo < hi && pte_kind(pte_get(t->e, lo)) == PTE_PINNED)
				lo++;
			for (end = lo; end < hi && pte_kind(pte_get(t->e, end)) != PTE_PINNED;)
				end++;
		}
		if (lo < end && t->ctx->ps->caps.move && t->ctx->ps->cfg.foreign_program)
			move_pages(t, lo, end);
		else if (lo < end && t->ctx->ps->caps.move)
			move_present(t, lo, end);
		else if (lo < end && t->ctx->ps->caps.wp)
			copy_pages(t, lo, end);
		lo = end;
	}
}

/* Records what arrived in the frame. Gate and io held. Returns the number of pages. */
static unsigned note_frame(struct take *t)
{
	struct pswap *ps = t->ctx->ps;
	struct extent *e = t->e;
	unsigned n = 0;

	/* Behind our back anything may have been mapped: ask the kernel what is there. */
	if (ps->cfg.foreign_program &&
	    pages_present(ps, (u64)(uintptr_t)t->f->mem, t->moved) < 0)
		ps_assert(!"/proc/self/pagemap cannot be read any more");
	for (unsigned w = 0; w < PTRS_PER_PMD / 64; w++)
		n += __builtin_popcountll(t->moved[w]);
	if (!n) {
		/* What we took for resident is not there, unless something refused to move. */
		if (!t->refused && !t->again && !t->shared && ps->cfg.foreign_program) {
			ps_mutex_lock(&e->lock);
			present_clear(e, 0, PTRS_PER_PMD);
			ps_mutex_unlock(&e->lock);
			folio_recount(&e->folio);
		}
		return 0;
	}
	ps_mutex_lock(&e->lock);
	extent_set_frame(e, t->f);
	t->f->nr_pages = n;
	t->f->huge = n == PTRS_PER_PMD && e->full;
	if (n == PTRS_PER_PMD && e->pmd == PMD_NONE) {
		present_clear(e, 0, PTRS_PER_PMD);
		pmd_set_cached(e);
	} else {
		for (unsigned i = 0; i < PTRS_PER_PMD; i++) {
			if (!(t->moved[i / 64] >> (i % 64) & 1))
				continue;
			if (pte_kind(pte_get(e, i)) == PTE_SWAP)
				free_swap_and_cache_nr(&ps->swap, pte_to_swp(pte_get(e, i)), 1);
			present_clear(e, i, 1);
			pte_set(e, i, pte_make(PTE_CACHED));
		}
	}
	ps_mutex_unlock(&e->lock);
	relaxed_add(&ps->cache.nr_pages, n);
	return n;
}

static unsigned take_once(struct take *t)
{
	struct pswap *ps = t->ctx->ps;
	struct extent *e = t->e;
	struct ps_mm *mm = e->mm;
	u64 end = e->addr + PMD_SIZE;
	struct region *r;
	unsigned n;

	ps_rwlock_read_lock(&mm->gate);
	/* Set under the gate, by a DONTNEED that no hook announced. */
	if (ps_now_ns() < e->quiet_until) {
		ps_rwlock_read_unlock(&mm->gate);
		return 0;
	}
	for (r = region_after(mm, e->addr);
	     r && r < mm->regions + mm->nr_regions && r->start < end; r++) {
		u64 lo = MAX(r->start, e->addr), hi = MIN(r->end, end);

		if ((r->flags & REGION_LOCKED) || inflight(ps, lo, hi))
			continue;
		if (t->ctx->only && r->group != t->ctx->only)
			continue;
		move_unpinned(t, pt_index(lo), hi == end ? PTRS_PER_PMD : pt_index(hi));
	}
	n = note_frame(t);
	ps_rwlock_read_unlock(&mm->gate);
	return n;
}

/* Pages that a fork left shared become ours alone: each run of pages that we know to be there, so
 * that no fault of ours waits for a handler. */
static void unshare_pages(struct extent *e)
{
	for (unsigned i = 0; i < PTRS_PER_PMD;) {
		unsigned n = 0;

		while (i + n < PTRS_PER_PMD && present_test(e, i + n))
			n++;
		if (n)
			sys_madvise((void *)(uintptr_t)pt_addr(e, i), n * PAGE_SIZE,
				    MADV_POPULATE_WRITE);
		i += n + 1;
	}
}

static unsigned take_with_frame(struct ps_ctx *ctx, struct extent *e, bool final, bool *shared,
				bool *again)
{
	struct pswap *ps = ctx->ps;
	struct take t = { .ctx = ctx, .e = e, .final = final };
	unsigned n = 0;

	t.f = frame_alloc(ps, e);
	if (!t.f)
		return 0;
	n = take_once(&t);
	*shared = t.shared;
	*again = t.again;
	if (!n)
		frame_release(ps, t.f);
	return n;
}

static bool is_control(const struct ps_ctx *ctx)
{
	return ctx->id >= PS_MAX_HANDLERS + PS_MAX_WORKERS;
}

unsigned extent_take_out(struct ps_ctx *ctx, struct extent *e, bool wait)
{
	struct pswap *ps = ctx->ps;
	bool shared = false, again = false, worker = ctx->id >= PS_MAX_HANDLERS;
	unsigned n = 0;

	if (e->mm->foreign || reclaim_is_off(ps) ||
	    (!ps->caps.move && ps->cfg.foreign_program))
		return 0;
	for (int attempt = 0; attempt < 2; attempt++) {
		if (wait)
			ps_mutex_lock(&e->io);
		else if (!ps_mutex_trylock(&e->io))
			return 0;
		if (e->frame || (!ps->cfg.foreign_program && !e->nr_present) ||
		    ps_now_ns() < e->quiet_until) {
			ps_mutex_unlock(&e->io);
			return 0;
		}
		n = take_with_frame(ctx, e, attempt || !worker, &shared, &again);
		if (n) {
			learn_out(ctx, e);
			folio_deactivate(&ps->lru, &e->folio);
		} else if (!again && (!shared || attempt)) {
			e->skip = SKIP_PASSES;
			if (!ps->cfg.foreign_program && !e->nr_present)
				folio_del_lru(&e->folio);
		}
		ps_mutex_unlock(&e->io);
		/* Without locks, freeze included: if a page is missing after all, a handler serves
		 * us. Handlers therefore never do this; a fork in between is harmless. (The control
		 * thread is the one that freezes.) */
		if (n || !shared || !worker)
			break;
		if (ps->cfg.foreign_program && !is_control(ctx))
			ps_rwlock_read_unlock(&ps->freeze);
		unshare_pages(e);
		if (ps->cfg.foreign_program && !is_control(ctx))
			ps_rwlock_read_lock(&ps->freeze);
	}
	return n;
}

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
	got = swap_alloc_pages(sf, first, ctx->id, n, ents);
	for (unsigned k = 1; k < got; k++) {
		if (swp_type(ents[k]) == swp_type(ents[0]))
			continue;
		for (unsigned j = k; j < got; j++)
			swapcache_free(sf, ents[j], 1);
		return k;
	}
	return got;
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
	e->quiet_until = ps_now_ns() + INCOMPRESSIBLE_NS;
}

/*
 * The pages of frame f of e to slots.  A huge page at once, so that it gets a cluster of its own; small
 * ones in pieces, and not all of them when a fault waits for the extent.  0, -ENOSPC or -E2BIG (does
 * not shrink, and there is only memory to put it to).  *written: pages that have slots now.
 */
static int write_frame(struct ps_ctx *ctx, struct extent *e, struct frame *f, bool forced,
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
	ret = write_frame(ctx, e, f, wait, &written);
	if (ret == -E2BIG) {
		put_back(ctx, e);
		ret = 0;
	}
	f = e->frame;
	if (f && f->nr_live == 0) {
		ret = f->nr_pages;
		ps_mutex_lock(&e->lock);
		extent_set_frame(e, NULL);
		ps_mutex_unlock(&e->lock);
		frame_release(ps, f);
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
