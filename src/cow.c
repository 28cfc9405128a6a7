/* SPDX-License-Identifier: MIT */
/* cow.c - see cow.h. */
#include "cow.h"
#include "account.h"
#include "pagetable.h"
#include "region.h"

/* After so many copies, or so long, a fork is taken for one whose child stays. */
#define BEGUN_PAGES 256U
#define STAYS_NS 100000000ULL
#define STEP MiB(32) /* protected at once */

bool cow_can_protect(struct pswap *ps)
{
	return ps->cfg.foreign_program && ps->caps.wp && !ps->caps.user_only && ps->caps.move;
}

/* All that is shared, by this process and another: what is discounted here is half of it, or more. */
static bool no_room(struct pswap *ps)
{
	s64 shared = 2 * relaxed_load(&ps->shared_discount);

	return relaxed_load(&ps->footprint) + shared > account_high(ps);
}

bool cow_looming(struct pswap *ps)
{
	return relaxed_load(&ps->forked) && cow_can_protect(ps) && no_room(ps) &&
	       (!relaxed_load(&ps->cow.on) || relaxed_load(&ps->cow.again));
}

static bool child_stays(struct pswap *ps)
{
	u64 copies = relaxed_load(&ps->cow.faults) - relaxed_load(&ps->cow.faults_at_fork);

	return copies >= MIN((u64)BEGUN_PAGES, ps->cfg.limit >> PAGE_SHIFT >> 6) ||
	       ps_now_ns() - relaxed_load(&ps->cow.fork_ns) > STAYS_NS;
}

/* [start, end) less the pages that must never wait. Gate held exclusively, so none becomes one. */
static int protect_range(struct ps_mm *mm, u64 start, u64 end, bool on)
{
	u64 from = start;
	int ret = 0;

	for (u64 a = start; a < end && !ret;) {
		struct extent *e = pt_find(mm, a);

		if (!e || e->pmd != PMD_TABLE) {
			a = (a & PMD_MASK) + PMD_SIZE;
			continue;
		}
		if (pte_kind(pte_get(e, pt_index(a))) == PTE_PINNED) {
			if (a > from)
				ret = uffd_writeprotect(mm->uffd, from, a - from, on, true);
			from = a + PAGE_SIZE;
		}
		a += PAGE_SIZE;
	}
	if (from < end && !ret)
		ret = uffd_writeprotect(mm->uffd, from, end - from, on, true);
	return ret;
}

/*
 * Regions are registered for write faults when that is needed first, and so are those that come later: a
 * mapping whose parts differ would be two to the kernel.
 */
int cow_register(struct ps_mm *mm)
{
	int ret = 0;

	ps_rwlock_write_lock(&mm->gate);
	/* What we know of may be gone otherwise, and something else there. */
	if (uffd_events_pending(mm->uffd)) {
		ret = -EAGAIN;
	} else {
		relaxed_store(&mm->ps->cow.registered, 1);
		for (u32 i = 0; i < mm->nr_regions; i++) {
			region_register(mm, mm->regions[i].start, mm->regions[i].end);
			region_let_go_shared(mm, mm->regions[i].start, mm->regions[i].end);
		}
	}
	ps_rwlock_write_unlock(&mm->gate);
	return ret;
}

/* In steps, so that faults need not wait for long. */
static int protect_all(struct ps_mm *mm, bool on)
{
	u64 at = 0;
	int ret = 0;

	while (ret != -EAGAIN) {
		struct region *r;
		u64 end;

		ps_rwlock_write_lock(&mm->gate);
		r = region_after(mm, at);
		if (r) {
			at = MAX(at, r->start);
			end = MIN(r->end, at + STEP);
			/* What has been unmapped is left out, and spoils nothing but this step. */
			ret = protect_range(mm, at, end, on);
			at = end;
		}
		ps_rwlock_write_unlock(&mm->gate);
		if (!r)
			return 0;
	}
	return ret;
}

void cow_tick(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;
	struct ps_cow *cow = &ps->cow;

	if (!relaxed_load(&ps->forked)) {
		if (relaxed_load(&cow->on)) {
			ps_rwlock_read_lock(&ps->freeze);
			if (protect_all(&ps->mm, false) == 0)
				relaxed_store(&cow->on, 0);
			ps_rwlock_read_unlock(&ps->freeze);
		}
		return;
	}
	if (!cow_looming(ps) || !child_stays(ps))
		return;
	ps_rwlock_read_lock(&ps->freeze);
	/* A fork may come at any moment after this, and wants it done again. */
	relaxed_store(&cow->again, 0);
	relaxed_store(&cow->on, 1);
	if (cow_register(&ps->mm) || protect_all(&ps->mm, true))
		relaxed_store(&cow->again, 1);
	ps_rwlock_read_unlock(&ps->freeze);
}

int cow_allow(struct extent *e, unsigned i, unsigned n)
{
	int ret;

	if (!relaxed_load(&e->mm->ps->cow.on))
		return 0;
	ret = uffd_writeprotect(e->mm->uffd, pt_addr(e, i), (u64)n << PAGE_SHIFT, false, true);
	return ret == -EAGAIN ? ret : 0;
}

/*
 * One page, and more each time when the writer goes on to the next: what is let go and not written to is not
 * asked for any more.
 */
int cow_fault(struct ps_ctx *ctx, struct extent *e, unsigned i)
{
	struct pswap *ps = ctx->ps;
	unsigned n = 1, end = PTRS_PER_PMD;
	u64 addr = pt_addr(e, i);
	struct region *r;
	int ret;

	ps_rwlock_read_lock(&e->mm->gate);
	r = region_find(e->mm, addr);
	if (!r)
		end = i + 1;
	else if (r->end < e->addr + PMD_SIZE)
		end = pt_index(r->end);
	ps_rwlock_read_unlock(&e->mm->gate);
	if (i && i == e->cow_next)
		n = MIN(MIN(2U * e->cow_pages, COW_MAX_PAGES), end - i);
	ret = uffd_writeprotect(e->mm->uffd, addr, (u64)n << PAGE_SHIFT, false, true);
	if (ret == -EAGAIN) {
		relaxed_store(&ps->pending_events, 1);
		return ret;
	}
	/* Not ours any more, or a part of it: let the toucher find out. */
	if (ret && n > 1)
		ret = uffd_writeprotect(e->mm->uffd, addr, PAGE_SIZE, false, true);
	if (ret)
		uffd_wake(e->mm->uffd, addr, PAGE_SIZE);
	e->cow_next = (u16)(i + n);
	e->cow_pages = (u8)n;
	/* Until somebody looks: copies come without a word. */
	if (relaxed_load(&ps->forked) && !e->mm->foreign)
		account_add(ps, (s64)n << PAGE_SHIFT);
	relaxed_add(&ps->cow.served, 1);
	return 0;
}

void cow_forked(struct pswap *ps, u64 faults)
{
	relaxed_store(&ps->cow.faults, faults);
	relaxed_store(&ps->cow.faults_at_fork, faults);
	relaxed_store(&ps->cow.fork_ns, ps_now_ns());
	relaxed_store(&ps->cow.again, 1);
}
