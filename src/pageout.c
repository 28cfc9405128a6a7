/* SPDX-License-Identifier: MIT */
/*
 * pageout.c - see pageout.h: the first half, out of the program's view, and both together.
 *
 * Taking out is one MOVE of up to 2 MiB: whoever touches a page meanwhile faults and waits.  The
 * kernel refuses pages that are shared after a fork or pinned for DMA (EBUSY).  The first kind can
 * be made ours by MADV_POPULATE_WRITE; what is refused after that is pinned and stays.
 */
#include <sys/uio.h>

#include "pageout.h"
#include "cow.h"
#include "fault.h"
#include "group.h"
#include "learn.h"
#include "lru.h"
#include "pagetable.h"
#include "reclaim.h"
#include "region.h"
#include "swap_cache.h"
#include "unwritable.h"
#include "vma.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SKIP_PASSES 8  /* reclaim passes an extent is left alone when nothing could be taken */
#define PAGE_OUT_TRIES 256 /* pieces in which an extent is taken out, at most */
#define MAX_REFUSED 64 /* pages refused in one pass before the rest is left alone */

struct take {
	struct ps_ctx *ctx;
	struct extent *e;
	struct frame *f;
	u64 moved[PTRS_PER_PMD / 64]; /* API: pages moved, from what we knew to be present */
	unsigned refused;
	bool patchy; /* of several mappings, or not simply writable: ask before each MOVE */
	u32 prot;    /* of the mapping that was asked for */
	bool unready; /* unwritable_prepare() first */
	bool shared; /* met EBUSY, worth one MADV_POPULATE_WRITE */
	bool again;  /* cut short, by an event (EAGAIN) or a fault that waits: nothing can be said */
	bool final;  /* second try: EBUSY means pinned */
};

/* ---- out of view ---- */

static void note_moved(struct take *t, unsigned p, unsigned n)
{
	for (; n; p++, n--)
		if (present_test(t->e, p))
			t->moved[p / 64] |= 1ULL << (p % 64);
}

/*
 * What of [p, *end) can be moved as one piece, by the mapping that page p is in: returns the page to go on
 * from, past what cannot be moved at all, and lowers *end when the mapping ends before.  p itself when the
 * mapping is as it should be, or nobody knows.
 */
static unsigned ask_mapping(struct take *t, unsigned p, unsigned *end)
{
	u64 addr = pt_addr(t->e, p), extent_end = t->e->addr + PMD_SIZE;
	struct vma v;

	t->prot = PROT_READ | PROT_WRITE;
	if (vma_query(t->ctx->ps->maps_fd, addr, &v))
		return p;
	if (v.start > addr)
		return v.start >= extent_end ? PTRS_PER_PMD : pt_index(v.start);
	if (v.shared || v.inode)
		return v.end >= extent_end ? PTRS_PER_PMD : pt_index(v.end);
	if (v.end < extent_end)
		*end = MIN(*end, pt_index(v.end));
	t->prot = v.prot;
	return p;
}

/* Into the frame, at the same place. */
static s64 move_into_frame(struct take *t, unsigned p, unsigned n)
{
	u64 off = (u64)p << PAGE_SHIFT;

	if (t->prot != (PROT_READ | PROT_WRITE))
		return unwritable_move(t->ctx, t->e, t->f, p, n, t->prot);
	return uffd_move(t->e->mm->uffd, (u64)(uintptr_t)t->f->mem + off, t->e->addr + off,
			 (u64)n << PAGE_SHIFT, false);
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
	unsigned piece = p;

	while (p < end && t->refused < MAX_REFUSED) {
		unsigned next = p;
		s64 ret;

		if (p == piece)
			piece = piece_from(t, p, end);
		if (t->patchy)
			next = ask_mapping(t, p, &piece);
		if (next != p) {
			p = piece = MIN(next, end);
			continue;
		}
		ret = move_into_frame(t, p, piece - p);
		if (ret > 0) {
			note_moved(t, p, ret >> PAGE_SHIFT);
			p += ret >> PAGE_SHIFT;
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
		if (ret == -ESRCH || ret == -ENOMEM || ret == -EACCES) {
			t->unready = ret == -EACCES;
			t->refused++;
			return;
		}
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
		/* A border of mappings, or one that cannot be moved; else locked, a guard, or something we
		 * do not know. */
		next = piece;
		if (!t->patchy && (ask_mapping(t, p, &next) != p || next < piece ||
				   t->prot != (PROT_READ | PROT_WRITE))) {
			t->patchy = true;
			continue;
		}
		t->refused++;
		p++;
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

/* Pinned by us, or a guard, which MOVE refuses. */
static bool stays(struct extent *e, unsigned i)
{
	enum pte_kind kind = pte_kind(pte_get(e, i));

	return kind == PTE_PINNED || kind == PTE_GUARD;
}

/* The parts of [lo, hi) that may be moved. */
static void move_unpinned(struct take *t, unsigned lo, unsigned hi)
{
	while (lo < hi) {
		unsigned end = hi;

		if (t->e->pmd == PMD_TABLE) {
			while (lo < hi && stays(t->e, lo))
				lo++;
			for (end = lo; end < hi && !stays(t->e, end);)
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
	if (ps_now_ns() < relaxed_load(&e->quiet_until)) {
		ps_rwlock_read_unlock(&mm->gate);
		return 0;
	}
	for (r = region_after(mm, e->addr);
	     r && r < mm->regions + mm->nr_regions && r->start < end; r++) {
		u64 lo = MAX(r->start, e->addr), hi = MIN(r->end, end);

		/* What is passed over may well be there. */
		if (ps_is_inflight(ps, lo, hi))
			t->again = true;
		else if ((r->flags & REGION_LOCKED) || (t->ctx->only && r->group != t->ctx->only))
			t->refused++;
		else
			move_unpinned(t, pt_index(lo), hi == end ? PTRS_PER_PMD : pt_index(hi));
	}
	n = note_frame(t);
	ps_rwlock_read_unlock(&mm->gate);
	return n;
}

/* Pages that a fork left shared become ours alone: each run of pages that we know to be there, so
 * that no fault of ours waits for a handler. Returns how many were copied for it. */
static unsigned unshare_pages(struct extent *e)
{
	struct pswap *ps = e->mm->ps;
	u64 shared[PTRS_PER_PMD / 64];
	unsigned copies = 0;

	/* Those that others have too are copied by this. */
	if (ps->cfg.foreign_program && pages_shared(ps, e->addr, shared) == 0)
		for (unsigned w = 0; w < PTRS_PER_PMD / 64; w++)
			copies += __builtin_popcountll(shared[w] & e->present[w]);
	relaxed_add(&ps->cow.unshared, copies);
	for (unsigned i = 0; i < PTRS_PER_PMD;) {
		unsigned n = 0;

		while (i + n < PTRS_PER_PMD && present_test(e, i + n))
			n++;
		if (n) {
			cow_allow(e, i, n);
			sys_madvise((void *)(uintptr_t)pt_addr(e, i), n * PAGE_SIZE,
				    MADV_POPULATE_WRITE);
		}
		i += n + 1;
	}
	return copies;
}

static unsigned take_with_frame(struct ps_ctx *ctx, struct extent *e, bool final, bool *shared,
				bool *again)
{
	struct pswap *ps = ctx->ps;
	struct take t = { .ctx = ctx, .e = e, .final = final, .prot = PROT_READ | PROT_WRITE };
	unsigned n = 0;

	t.f = frame_alloc(ps, e);
	if (!t.f)
		return 0;
	n = take_once(&t);
	if (t.unready && unwritable_prepare(ctx) && !n) {
		t.unready = false;
		t.refused = 0;
		n = take_once(&t);
	}
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
	unsigned n = 0, copies = 0;

	if (e->mm->foreign || reclaim_is_off(ps) ||
	    (!ps->caps.move && ps->cfg.foreign_program))
		return 0;
	if (!worker && relaxed_load(&e->for_worker))
		return 0;
	for (int attempt = 0; attempt < 2; attempt++) {
		if (wait)
			ps_mutex_lock(&e->io);
		else if (!ps_mutex_trylock(&e->io))
			return 0;
		if (e->frame || (!ps->cfg.foreign_program && !e->nr_present) ||
		    ps_now_ns() < relaxed_load(&e->quiet_until)) {
			ps_mutex_unlock(&e->io);
			return 0;
		}
		n = take_with_frame(ctx, e, attempt, &shared, &again);
		relaxed_store(&e->for_worker, shared && !worker);
		if (n) {
			e->frame->copies = copies > n / 2;
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
		copies = unshare_pages(e);
		if (ps->cfg.foreign_program && !is_control(ctx))
			ps_rwlock_read_lock(&ps->freeze);
	}
	return n;
}

int extent_page_out(struct ps_ctx *ctx, struct extent *e)
{
	bool shared, again = true;
	unsigned written;

	relaxed_store(&e->quiet_until, 0);
	for (unsigned tries = 0;; tries++) {
		if (e->frame) {
			int ret = frame_write(ctx, e, e->frame, true, &written);

			if (ret) {
				folio_deactivate(&ctx->ps->lru, &e->folio);
				return ret;
			}
			frame_drop(e);
		}
		/* Cut short when a fault waits, which it has to, or when an event does: for a moment. */
		if (!again || tries == PAGE_OUT_TRIES)
			break;
		again = false;
		if (take_with_frame(ctx, e, true, &shared, &again))
			learn_out(ctx, e);
		else if (again)
			sys_call0(SYS_sched_yield);
	}
	extent_lru_settle(e);
	return 0;
}
