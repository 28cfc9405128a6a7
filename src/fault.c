/* SPDX-License-Identifier: MIT */
/*
 * fault.c - see fault.h.
 *
 * While e->io is held nobody else moves pages of the extent; while the gate is held shared no VM
 * event is applied.  With both, ptes stand still, so "look, COPY or MOVE, change the pte" is one
 * step.  Reading from a store happens under io alone: afterwards each pte is looked at again, and a
 * slot cannot have been reused meanwhile because SWAP_HAS_CACHE is on it.
 */
#include "fault.h"
#include "account.h"
#include "arena.h"
#include "cow.h"
#include "group.h"
#include "learn.h"
#include "log.h"
#include "lru.h"
#include "pagetable.h"
#include "reclaim.h"
#include "region.h"
#include "swap_cache.h"
#include "workingset.h"

#define RETRY 1 /* nothing was decided: the toucher is to fault again */

/*
 * Puts n pages at page i of e, from src.  Returns how many, from the first, are there now (an EEXIST
 * means the kernel has a page there, which is as good); *err why not more.
 */
static unsigned put_pages(struct extent *e, unsigned i, unsigned n, const char *src, int *err)
{
	struct ps_mm *mm = e->mm;
	unsigned done = 0, chunk = n;
	s64 ret;

	*err = 0;
	while (done < n) {
		ret = uffd_copy(mm->uffd, pt_addr(e, i + done), src + done * PAGE_SIZE,
				chunk * PAGE_SIZE, true, false);
		if (ret > 0) {
			done += ret >> PAGE_SHIFT;
		} else if (ret == -EEXIST) {
			/* Nothing was copied, so nobody was woken. */
			uffd_wake(mm->uffd, pt_addr(e, i + done), PAGE_SIZE);
			done++;
		} else if (ret == -ENOENT && chunk > 1) {
			/* A border of VMAs lies inside: COPY stops short of it (trap 3). */
			chunk /= 2;
			continue;
		} else {
			*err = (int)ret;
			if (ret == -EAGAIN)
				relaxed_store(&mm->ps->pending_events, 1);
			break;
		}
		chunk = n - done;
	}
	return done;
}

static void now_resident(struct extent *e, unsigned i, unsigned n)
{
	account_add(e->mm->ps, (s64)n << PAGE_SHIFT);
	ps_mutex_lock(&e->lock);
	present_set(e, i, n);
	ps_mutex_unlock(&e->lock);
}

/* ---- first touch ---- */

/* A huge page for an extent of which nothing is there. */
static int fill_huge(struct ps_ctx *ctx, struct extent *e)
{
	struct pswap *ps = ctx->ps;
	bool huge;
	char *unit = thp_get(ps, &huge);
	s64 ret = -ENOMEM;

	if (unit && huge) {
		ps_rwlock_read_lock(&e->mm->gate);
		if (e->pmd == PMD_NONE)
			ret = uffd_move(e->mm->uffd, e->addr, (u64)(uintptr_t)unit, PMD_SIZE, true);
		if (ret == (s64)PMD_SIZE)
			now_resident(e, 0, PTRS_PER_PMD);
		ps_rwlock_read_unlock(&e->mm->gate);
	}
	if (unit)
		thp_put(ps, unit);
	return ret == (s64)PMD_SIZE ? 0 : RETRY;
}

/* The run of pages in [*s, *end) around i that are not known to be anywhere. */
static void untouched_run(struct extent *e, unsigned i, unsigned *s, unsigned *end)
{
	unsigned a = i, b = i + 1;

	while (a > *s && pte_kind(pte_get(e, a - 1)) == PTE_NONE && !present_test(e, a - 1))
		a--;
	while (b < *end && pte_kind(pte_get(e, b)) == PTE_NONE && !present_test(e, b))
		b++;
	*s = a;
	*end = b;
}

static int fill(struct ps_ctx *ctx, struct extent *e, unsigned i, unsigned s, unsigned end)
{
	struct pswap *ps = ctx->ps;
	unsigned done;
	int err;

	if (end - s == PTRS_PER_PMD && ps->caps.move && !ps->cfg.no_thp && e->nr_present == 0 &&
	    e->pmd == PMD_NONE && fill_huge(ctx, e) == 0)
		goto out;
	ps_rwlock_read_lock(&e->mm->gate);
	untouched_run(e, i, &s, &end);
	done = put_pages(e, i, end - i, ps->zeros, &err);
	now_resident(e, i, done);
	if (done && s < i) {
		int err2;

		now_resident(e, s, put_pages(e, s, i - s, ps->zeros, &err2));
	}
	ps_rwlock_read_unlock(&e->mm->gate);
	if (!done)
		return RETRY;
out:
	stat_inc(ps->stat, faults_zero);
	return 0;
}

/* ---- read back ---- */

/* Length of the run of entries from k on that follow each other in one cluster. */
static unsigned entry_run(const swp_entry_t *ents, unsigned k, unsigned n)
{
	unsigned nr = 1;
	unsigned room = SWAPFILE_CLUSTER - swp_offset(ents[k]) % SWAPFILE_CLUSTER;

	while (k + nr < n && nr < room && ents[k + nr].val == ents[k].val + nr)
		nr++;
	return nr;
}

/* The same, and of one group: what may be freed in one step. */
static unsigned free_run(struct ps_ctx *ctx, unsigned k, unsigned n)
{
	return swap_entry_batch(&ctx->ps->swap, ctx->entries + k, n - k);
}

static void drop_cache_flags(struct ps_ctx *ctx, unsigned from, unsigned n)
{
	struct swapfile *sf = &ctx->ps->swap;

	for (unsigned k = from; k < n;) {
		unsigned nr = free_run(ctx, k, n);

		swapcache_free(sf, ctx->entries[k], nr);
		k += nr;
	}
}

/* Collects the swapped pages of [s, end) into ctx->index and ctx->entries and takes the cache flag
 * on their slots. Returns their number. */
static unsigned collect_swapped(struct ps_ctx *ctx, struct extent *e, unsigned s, unsigned end)
{
	struct swapfile *sf = &ctx->ps->swap;
	unsigned n = 0, kept = 0;

	ps_mutex_lock(&e->lock);
	for (unsigned i = s; i < end; i++) {
		pte_t pte = pte_get(e, i);

		if (pte_kind(pte) != PTE_SWAP)
			continue;
		ctx->index[n] = i;
		ctx->entries[n++] = pte_to_swp(pte);
	}
	for (unsigned k = 0; k < n;) {
		unsigned nr = entry_run(ctx->entries, k, n);

		/* Another owner (a clone of the region reads the same slot): not now. */
		if (swapcache_prepare(sf, ctx->entries[k], nr) == 0) {
			memmove(&ctx->entries[kept], &ctx->entries[k], nr * sizeof(swp_entry_t));
			memmove(&ctx->index[kept], &ctx->index[k], nr * sizeof(u16));
			kept += nr;
		}
		k += nr;
	}
	ps_mutex_unlock(&e->lock);
	return kept;
}

/* Reads the n collected pages to base + index * PAGE_SIZE. Returns how many were read. */
static unsigned read_slots(struct ps_ctx *ctx, unsigned n, char *base, int *err)
{
	struct swapfile *sf = &ctx->ps->swap;
	unsigned k = 0;

	*err = 0;
	while (k < n) {
		struct store *st = swap_store(sf, ctx->entries[k]);
		unsigned nr = 0;
		int got;

		while (k + nr < n && swp_type(ctx->entries[k + nr]) == swp_type(ctx->entries[k])) {
			ctx->slots[nr] = swp_offset(ctx->entries[k + nr]);
			ctx->pages[nr] = base + ctx->index[k + nr] * PAGE_SIZE;
			nr++;
		}
		got = st->ops->read(st, ctx->id, ctx->slots, ctx->pages, nr, err);
		k += got > 0 ? got : 0;
		if (got < (int)nr) {
			if (!*err)
				*err = -EIO;
			return k;
		}
	}
	return k;
}

/* The pte of page index[k] still says entries[k]? Gate and io held. */
static bool still_swapped(struct ps_ctx *ctx, struct extent *e, unsigned k)
{
	return pte_get(e, ctx->index[k]) == pte_swap(ctx->entries[k]);
}

/* Pages index[k .. k+nr) are mapped in the program: their slots go. */
static void forget_slots(struct ps_ctx *ctx, struct extent *e, unsigned k, unsigned nr)
{
	struct swapfile *sf = &ctx->ps->swap;
	unsigned end = k + nr;

	ps_mutex_lock(&e->lock);
	if (nr == PTRS_PER_PMD && e->pmd == PMD_SWAP)
		pmd_clear(e);
	else
		for (unsigned j = k; j < end; j++)
			pte_set(e, ctx->index[j], pte_make(PTE_NONE));
	if (groups_on(ctx->ps))
		for (unsigned j = k; j < end; j++)
			group_count_in(e, ctx->index[j], 1);
	ps_mutex_unlock(&e->lock);
	while (k < end) {
		unsigned run = free_run(ctx, k, end);

		/* First the flag, so that the count goes by the batched path. */
		swapcache_free(sf, ctx->entries[k], run);
		free_swap_and_cache_nr(sf, ctx->entries[k], run);
		k += run;
	}
}

/* One page that cannot be had: the toucher gets SIGBUS, everything else goes on. */
static void poison(struct ps_ctx *ctx, struct extent *e, unsigned i, swp_entry_t entry, int err)
{
	struct pswap *ps = ctx->ps;
	u64 addr = pt_addr(e, i);
	int ret = -ENOSYS;

	if (ps_warn_once(ps, WARN_POISON))
		ps_log("page at %x cannot be read back (%s): whoever touches it gets SIGBUS", addr,
		       err == -ENODATA ? "its slot is empty" : "checksum or device error");
	stat_inc(ps->stat, pages_poisoned);
	ps_rwlock_read_lock(&e->mm->gate);
	if (pte_get(e, i) != pte_swap(entry)) {
		/* Dropped or moved by the program meanwhile. */
		ps_rwlock_read_unlock(&e->mm->gate);
		return;
	}
	if (ps->caps.poison)
		ret = uffd_poison(e->mm->uffd, addr, PAGE_SIZE);
	if (ret == 0 || !ps->caps.poison) {
		ps_mutex_lock(&e->lock);
		pte_set(e, i, pte_make(PTE_POISON));
		ps_mutex_unlock(&e->lock);
		free_swap_and_cache_nr(&ps->swap, entry, 1);
	}
	ps_rwlock_read_unlock(&e->mm->gate);
	/* Kernels before 6.6: a file mapping past its end gives SIGBUS too. No lock is held, because
	 * replacing the page raises UNMAP. */
	if (!ps->caps.poison)
		sys_mmap((void *)(uintptr_t)addr, PAGE_SIZE, PROT_READ, MAP_PRIVATE | MAP_FIXED,
			 ps->empty_fd, 0);
}

/* Maps the n pages that were read, run by run, the faulting page's run first. */
static int map_read(struct ps_ctx *ctx, struct extent *e, unsigned n, unsigned fault, char *base)
{
	int result = RETRY;

	ps_rwlock_read_lock(&e->mm->gate);
	for (unsigned k = 0; k < n;) {
		unsigned nr = 0, done;
		int err = 0;

		if (!still_swapped(ctx, e, k)) {
			swapcache_free(&ctx->ps->swap, ctx->entries[k], 1);
			k++;
			continue;
		}
		while (k + nr < n && ctx->index[k + nr] == ctx->index[k] + nr &&
		       still_swapped(ctx, e, k + nr))
			nr++;
		done = put_pages(e, ctx->index[k], nr, base + ctx->index[k] * PAGE_SIZE, &err);
		if (done) {
			now_resident(e, ctx->index[k], done);
			if (fault >= ctx->index[k] && fault < ctx->index[k] + done)
				result = 0;
			forget_slots(ctx, e, k, done);
			stat_add(ctx->ps->stat, pages_in, done);
		}
		if (done < nr) {
			/* This page is in the way, or an event waits: the rest stays swapped. */
			swapcache_free(&ctx->ps->swap, ctx->entries[k + done], 1);
			done++;
		}
		k += done;
		if (err == -EAGAIN || err == -ESRCH) {
			drop_cache_flags(ctx, k, n);
			break;
		}
	}
	ps_rwlock_read_unlock(&e->mm->gate);
	return result;
}

/* All 512 pages, read into a huge page which then is moved into place. */
static int map_huge(struct ps_ctx *ctx, struct extent *e, char *unit)
{
	s64 ret = -EAGAIN;

	ps_rwlock_read_lock(&e->mm->gate);
	if (e->pmd == PMD_SWAP && e->swap.val == ctx->entries[0].val)
		ret = uffd_move(e->mm->uffd, e->addr, (u64)(uintptr_t)unit, PMD_SIZE, true);
	if (ret == (s64)PMD_SIZE) {
		now_resident(e, 0, PTRS_PER_PMD);
		forget_slots(ctx, e, 0, PTRS_PER_PMD);
		e->full = true;
		stat_add(ctx->ps->stat, pages_in, PTRS_PER_PMD);
	}
	ps_rwlock_read_unlock(&e->mm->gate);
	return ret == (s64)PMD_SIZE ? 0 : RETRY;
}

static int read_back(struct ps_ctx *ctx, struct extent *e, unsigned i, unsigned s, unsigned end)
{
	struct pswap *ps = ctx->ps;
	char *base = NULL, *unit = NULL;
	bool huge = false;
	unsigned n, got;
	int err, ret;

	if (end - s == PTRS_PER_PMD && e->pmd == PMD_SWAP && ps->caps.move && !ps->cfg.no_thp &&
	    !e->mm->foreign)
		unit = thp_get(ps, &huge);
	if (huge) {
		base = unit;
	} else if (end - s > PS_BUF_PAGES) {
		/* What the buffer holds, around the fault. */
		s = MAX(s, ALIGN_DOWN(i, PS_BUF_PAGES));
		end = MIN(end, ALIGN_DOWN(i, PS_BUF_PAGES) + PS_BUF_PAGES);
	}
	n = collect_swapped(ctx, e, s, end);
	if (!n) {
		if (unit)
			thp_put(ps, unit);
		return RETRY;
	}
	if (huge && n < PTRS_PER_PMD) {
		/* Rare: a slot is someone else's right now. Not by a huge page then. */
		drop_cache_flags(ctx, 0, n);
		thp_put(ps, unit);
		return read_back(ctx, e, i, i, i + 1);
	}
	/* Pages go to base + their index in the extent. */
	if (!huge)
		base = ctx->buf - (size_t)s * PAGE_SIZE;
	got = read_slots(ctx, n, base, &err);
	if (got < n) {
		drop_cache_flags(ctx, 0, n);
		ret = RETRY;
		if (n > 1 && ctx->index[got] != i)
			ret = read_back(ctx, e, i, i, i + 1);
		else
			poison(ctx, e, ctx->index[got], ctx->entries[got], err);
	} else {
		ret = huge ? map_huge(ctx, e, unit) : RETRY;
		if (ret)
			ret = map_read(ctx, e, n, i, base);
	}
	if (unit)
		thp_put(ps, unit);
	return ret;
}

int fault_read_slot(struct ps_ctx *ctx, struct extent *e, unsigned i, void *page)
{
	unsigned n;
	int err = 0;

	/* The flag keeps the slot what it is. */
	n = collect_swapped(ctx, e, i, i + 1);
	if (!n)
		return -EAGAIN;
	if (read_slots(ctx, 1, (char *)page - (size_t)i * PAGE_SIZE, &err) != 1)
		err = -EIO;
	drop_cache_flags(ctx, 0, 1);
	return err;
}

/* ---- return from the swap cache ---- */

static int return_cached(struct ps_ctx *ctx, struct extent *e, unsigned i, unsigned s,
			 unsigned end)
{
	struct pswap *ps = ctx->ps;
	struct frame *f = e->frame;
	struct ps_mm *mm = e->mm;
	u64 src;
	s64 ret;
	unsigned n;

	ps_rwlock_read_lock(&mm->gate);
	if (pte_kind(pte_get(e, i)) != PTE_CACHED) {
		ps_rwlock_read_unlock(&mm->gate);
		return RETRY;
	}
	/* The run of cached pages around i. */
	while (s < i && pte_kind(pte_get(e, s)) != PTE_CACHED)
		s++;
	for (unsigned k = s; k < i; k++)
		if (pte_kind(pte_get(e, k)) != PTE_CACHED)
			s = k + 1;
	for (unsigned k = i; k < end; k++)
		if (pte_kind(pte_get(e, k)) != PTE_CACHED)
			end = k;
	n = end - s;
	src = (u64)(uintptr_t)f->mem + s * PAGE_SIZE;
	ret = -EINVAL;
	/* A single page by COPY (a 4 KiB MOVE costs five times as much), many by MOVE, which needs no
	 * second page; protection may not allow MOVE. */
	if (n >= BLOCK_PAGES && ps->caps.move && !mm->foreign) {
		ret = uffd_move(mm->uffd, pt_addr(e, s), src, n * PAGE_SIZE, true);
		if (ret > 0) {
			n = ret >> PAGE_SHIFT;
			f->nr_pages -= MIN(f->nr_pages, n);
			relaxed_sub(&ps->cache.nr_pages, n);
			account_add(ps, -((s64)n << PAGE_SHIFT));
		}
	}
	if (ret <= 0 && ret != -EAGAIN) {
		int err;

		s = i;
		n = put_pages(e, i, end - i, f->mem + i * PAGE_SIZE, &err);
		ret = n ? (s64)n << PAGE_SHIFT : err;
	}
	if (ret == -EAGAIN)
		relaxed_store(&ps->pending_events, 1);
	if (ret > 0) {
		account_add(ps, (s64)n << PAGE_SHIFT);
		ps_mutex_lock(&e->lock);
		/* In this order a group is never charged twice for them. */
		if (n == PTRS_PER_PMD)
			pmd_clear(e);
		else
			for (unsigned k = s; k < s + n; k++)
				pte_set(e, k, pte_make(PTE_NONE));
		present_set(e, s, n);
		ps_mutex_unlock(&e->lock);
		stat_add(ps->stat, pages_cache_in, n);
	}
	ps_rwlock_read_unlock(&mm->gate);
	if (f->nr_live == 0) {
		ps_mutex_lock(&e->lock);
		extent_set_frame(e, NULL);
		ps_mutex_unlock(&e->lock);
		frame_release(ps, f);
		folio_activate(&ps->lru, &e->folio);
	}
	return ret > 0 && i >= s && i < s + n ? 0 : RETRY;
}

int fault_return_cached(struct ps_ctx *ctx, struct extent *e, unsigned i)
{
	return return_cached(ctx, e, i, 0, PTRS_PER_PMD);
}

/* ---- the fault ---- */

/* Clips [s, end) of e to the region around page i. */
static bool clip(struct ps_mm *mm, struct extent *e, unsigned i, unsigned *s, unsigned *end,
		 u32 *flags)
{
	struct region *r;

	ps_rwlock_read_lock(&mm->gate);
	r = region_find(mm, pt_addr(e, i));
	if (r) {
		*s = r->start > e->addr ? pt_index(r->start) : 0;
		*end = r->end < e->addr + PMD_SIZE ? pt_index(r->end) : PTRS_PER_PMD;
		*flags = r->flags;
		if (groups_on(mm->ps) && !relaxed_load(&e->grouped))
			group_sync(e);
	}
	ps_rwlock_read_unlock(&mm->gate);
	return r != NULL;
}

static int serve(struct ps_ctx *ctx, struct ps_mm *mm, struct extent *e, unsigned i)
{
	unsigned lo, hi, s, end;
	u32 flags;
	pte_t pte;

	if (!clip(mm, e, i, &lo, &hi, &flags))
		return RETRY;
	ps_mutex_lock(&e->lock);
	pte = pte_get(e, i);
	ps_mutex_unlock(&e->lock);
	switch (pte_kind(pte)) {
	case PTE_NONE:
		learn_fill(ctx, e, i, flags, &s, &end);
		return fill(ctx, e, i, MAX(s, lo), MIN(end, hi));
	case PTE_PINNED:
		return fill(ctx, e, i, i, i + 1);
	case PTE_SWAP:
		learn_window(ctx, e, i, flags, &s, &end);
		workingset_refault(e);
		return read_back(ctx, e, i, MAX(s, lo), MIN(end, hi));
	case PTE_CACHED:
		learn_window(ctx, e, i, flags, &s, &end);
		return return_cached(ctx, e, i, MAX(s, lo), MIN(end, hi));
	case PTE_POISON:
		if (ctx->ps->caps.poison)
			uffd_poison(mm->uffd, pt_addr(e, i), PAGE_SIZE);
		return RETRY;
	case PTE_GUARD:
		/* A guard sends no fault: so it is one no more, by a call that nobody told us of. */
		if (page_is_guard(ctx->ps, pt_addr(e, i)))
			break;
		ps_rwlock_read_lock(&mm->gate);
		ps_mutex_lock(&e->lock);
		if (pte_kind(pte_get(e, i)) == PTE_GUARD)
			pte_set(e, i, pte_make(PTE_NONE));
		ps_mutex_unlock(&e->lock);
		ps_rwlock_read_unlock(&mm->gate);
		return fill(ctx, e, i, i, i + 1);
	}
	return RETRY;
}

/* How much a fault at page i may add: what throttling must leave room for. Looks without e->io. */
static s64 worst_window(struct extent *e, unsigned i, bool wp)
{
	struct pswap *ps = e->mm->ps;
	bool whole;

	if (wp)
		return ps->cfg.foreign_program ? (s64)(COW_MAX_PAGES * PAGE_SIZE) : 0;
	ps_mutex_lock(&e->lock);
	switch (pte_kind(pte_get(e, i))) {
	case PTE_NONE:
		whole = relaxed_load(&e->fill) == 0;
		break;
	case PTE_SWAP:
		whole = learn_may_map_all(e);
		break;
	default:
		whole = false;
	}
	ps_mutex_unlock(&e->lock);
	return whole && !ps->cfg.no_thp ? (s64)PMD_SIZE : (s64)(PS_BUF_PAGES * PAGE_SIZE);
}

/* A thread of ours that makes shared pages its own, in order to take them out: it must not wait until
 * something has been taken out. */
static bool is_ours(struct ps_ctx *ctx)
{
	for (unsigned c = 0; ctx->fault_tid && c < PS_NR_CTX; c++)
		if (relaxed_load(&ctx->ps->ctx[c]->tid) == ctx->fault_tid)
			return true;
	return false;
}

/* A write to a write-protected page. False: an event must be read first. */
static bool serve_wp(struct ps_ctx *ctx, struct extent *e, unsigned i)
{
	if (ctx->ps->cfg.foreign_program)
		return cow_fault(ctx, e, i) == 0;
	/* Taking e->io waited for the page-out that write-protected it to end. */
	uffd_writeprotect(e->mm->uffd, pt_addr(e, i), PAGE_SIZE, false, true);
	return true;
}

bool fault_serve(struct ps_ctx *ctx, struct ps_mm *mm, u64 addr, bool wp)
{
	struct pswap *ps = ctx->ps;
	u64 start = ps_now_ns();
	struct extent *e = pt_get(mm, addr);
	struct pswap_group *g = NULL;
	bool served = true;
	s64 window;

	addr &= PAGE_MASK;
	if (!e) {
		/* No address space for bookkeeping: serve the page alone, it can never be taken out. */
		uffd_zeropage(mm->uffd, addr, PAGE_SIZE, true);
		uffd_wake(mm->uffd, addr, PAGE_SIZE);
		return true;
	}
	relaxed_store(&ps->pending_events, 0);
	window = is_ours(ctx) ? 0 : worst_window(e, pt_index(addr), wp);
	if (window)
		reclaim_throttle(ctx, window);
	if (groups_on(ps) && window && (g = group_at(mm, addr)))
		reclaim_throttle_group(ctx, g, window);
	ps_mutex_lock(&e->io);
	if (wp) {
		served = serve_wp(ctx, e, pt_index(addr));
	} else if (serve(ctx, mm, e, pt_index(addr)) == RETRY) {
		served = !relaxed_load(&ps->pending_events);
		if (served)
			uffd_wake(mm->uffd, addr, PAGE_SIZE);
	} else {
		if (!mm->foreign)
			folio_add_lru(&ps->lru, &e->folio);
		relaxed_store(&e->referenced, true);
	}
	ps_mutex_unlock(&e->io);
	reclaim_unreserve(ps, window);
	if (g) {
		reclaim_unreserve_group(g, window);
		if (group_room(g) < group_slack(g))
			ps_event_wake(&ps->reclaim_ev);
	}
	start = ps_now_ns() - start;
	stat_inc(ps->stat, faults);
	relaxed_add(&ps->stat->fault_hist[ps_hist_bucket(start)], 1);
	if (relaxed_load(&ps->footprint) > account_high(ps))
		ps_event_wake(&ps->reclaim_ev);
	return served;
}

int fault_range(struct ps_ctx *ctx, struct ps_mm *mm, u64 start, u64 end)
{
	struct extent *e;
	int ret = 0;

	for (u64 addr = start; addr < end && (e = pt_next(mm, addr, end));
	     addr = e->addr + PMD_SIZE) {
		unsigned i = e->addr < start ? pt_index(start) : 0;
		unsigned last = e->addr + PMD_SIZE > end ? pt_index(end) : PTRS_PER_PMD;

		for (int tries = 0; i < last;) {
			struct pswap_group *g = NULL;
			enum pte_kind kind;

			ps_mutex_lock(&e->lock);
			kind = e->pmd == PMD_NONE ? PTE_NONE : pte_kind(pte_get(e, i));
			ps_mutex_unlock(&e->lock);
			if (kind == PTE_POISON)
				ret = -EIO;
			if ((kind != PTE_SWAP && kind != PTE_CACHED) || tries++ > 100) {
				i++;
				tries = 0;
				continue;
			}
			reclaim_throttle(ctx, (s64)PMD_SIZE);
			if (groups_on(ctx->ps) && (g = group_at(mm, pt_addr(e, i))))
				reclaim_throttle_group(ctx, g, (s64)PMD_SIZE);
			ps_mutex_lock(&e->io);
			/* A clone may be reading the same slots. */
			if (kind == PTE_SWAP && read_back(ctx, e, i, i, last))
				sys_call0(SYS_sched_yield);
			else if (kind == PTE_CACHED)
				return_cached(ctx, e, i, i, last);
			folio_add_lru(&ctx->ps->lru, &e->folio);
			ps_mutex_unlock(&e->io);
			reclaim_unreserve(ctx->ps, (s64)PMD_SIZE);
			if (g)
				reclaim_unreserve_group(g, (s64)PMD_SIZE);
		}
	}
	return ret;
}
