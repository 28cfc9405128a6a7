/* SPDX-License-Identifier: MIT */
/*
 * fork.c - what a fork does to the engine (docs/decisions/003).
 *
 * The child of a fork that a hook saw has a copy of everything: page table, pool, frames, all
 * private memory and so copy-on-write.  It was copied while the engine stood still, so it is
 * consistent; what it lacks is an engine process and a userfaultfd, and it makes both before
 * libc's first instruction in the child.
 *
 * A fork that no hook saw (a `syscall` instruction outside libc) is known from EVENT_FORK only.
 * Its child cannot be given an engine; the parent's engine serves it: it takes a copy of the page
 * table whose slots are shared (swap_map counts rise) and answers the child's faults.
 */
#include "account.h"
#include "arena.h"
#include "cow.h"
#include "hook.h"
#include "log.h"
#include "lru.h"
#include "pageout.h"
#include "pagetable.h"
#include "region.h"
#include "state.h"
#include "zap.h"

/* ---- in the child of a fork that was announced ---- */

static void forget_locks(struct pswap *ps)
{
	arena_after_fork();
	swapfile_after_fork(&ps->swap);
	for (unsigned i = 0; i < ps->nr_stores; i++)
		if (ps->stores[i]->ops->after_fork)
			ps->stores[i]->ops->after_fork(ps->stores[i]);
	memset(&ps->freeze, 0, sizeof(ps->freeze));
	memset(&ps->mm.gate, 0, sizeof(ps->mm.gate));
	memset(&ps->mm.table_lock, 0, sizeof(ps->mm.table_lock));
	lru_after_fork(&ps->lru);
	memset(&ps->job, 0, sizeof(ps->job));
	memset(&ps->reclaim_ev, 0, sizeof(ps->reclaim_ev));
	memset(&ps->freed_ev, 0, sizeof(ps->freed_ev));
	memset(ps->inflight, 0, sizeof(ps->inflight));
	memset(&ps->window, 0, sizeof(ps->window));
	relaxed_store(&ps->mm.reading, 0);
	memset(&ps->handoff, 0, sizeof(ps->handoff));
	for (unsigned i = 0; i < PS_NR_CTX; i++) {
		memset(&ps->ctx[i]->busy, 0, sizeof(ps->ctx[i]->busy));
		ps->ctx[i]->nr_deferred = 0;
		relaxed_store(&ps->ctx[i]->tid, 0);
		ps->ctx[i]->run = 0;
	}
	ps->foreign = NULL; /* served by the parent's engine */
	relaxed_store(&ps->stop, 0);
	relaxed_store(&ps->pending_events, 0);
	relaxed_store(&ps->files_held, 0);
	relaxed_store(&ps->give_up_until, 0);
	relaxed_store(&ps->full_until, 0);
	/* Locks are not inherited. */
	relaxed_store(&ps->locked_all, 0);
	relaxed_store(&ps->swapoff, 0);
	/* Half of what is resident here is the parent's, who has reckoned so for both. */
	account_fork_done(ps);
	relaxed_store(&ps->shared_faults, 0);
	relaxed_store(&ps->shifted_seen, ps->shm ? relaxed_load(&ps->shm->shifted) : 0);
	relaxed_store(&ps->shifted_ours, 0);
	relaxed_store(&ps->shifted_since, 0);
	memset(&ps->cow, 0, sizeof(ps->cow));
	cow_forked(ps, 0);
	relaxed_store(&G.member->footprint_bytes, (u64)MAX(relaxed_load(&ps->footprint), 0));
	relaxed_store(&G.member->measured_bytes, (u64)MAX(relaxed_load(&ps->footprint), 0));
}

/* What the program said of its memory comes true now. */
static void apply_fork_advice(struct ps_mm *mm)
{
	for (u32 i = 0; i < mm->nr_regions;) {
		struct region r = mm->regions[i];

		if (r.flags & (REGION_DONTFORK | REGION_WIPEONFORK))
			zap_range(mm, r.start, r.end, 0);
		if (r.flags & REGION_DONTFORK) {
			region_del(mm, r.start, r.end);
			continue;
		}
		mm->regions[i++].flags &= ~(u32)REGION_LOCKED;
	}
}

static void own_page(void)
{
	struct fork_page *p = sys_mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (G.parent_page)
		sys_munmap(G.parent_page, PAGE_SIZE);
	G.parent_page = NULL;
	if (sys_is_err((long)p))
		return; /* shared, then: tickets are not given twice */
	G.parent_page = G.fork_page;
	G.fork_page = p;
}

/* Our parent's engine may close what it has; unless it does not know of us. */
void fork_settled(bool known)
{
	if (!G.parent_page)
		return;
	relaxed_add(&G.parent_page->settled, known);
	sys_munmap(G.parent_page, PAGE_SIZE);
	G.parent_page = NULL;
}

void fork_child_state(void)
{
	struct pswap *ps = &G.ps;
	u32 was = atomic_load(&G.mode);
	struct ps_member *before;
	u64 swapped;

	/* First of all, as our parent's engine waits for it. Then a page of our own. */
	atomic_store(&G.fork_page->made[G.fork_ticket / 2 % FORK_MARKS], G.fork_ticket);
	own_page();
	memset(G.fork_calls, 0, sizeof(G.fork_calls));
	atomic_store(&G.fork_lock, 0);
	G.old_engine = 0;
	G.generation++;
	G.pid = (pid_t)sys_getpid();
	swapped = relaxed_load(&G.member->swapped_pages);
	before = G.member;
	G.children = 0;
	member_enter();
	ps->stat = G.member;
	if (!G.fork_engine || G.fork_foreign)
		fork_settled(false);
	if (!G.fork_engine) {
		if (was == MODE_STARTING)
			atomic_store(&G.mode, MODE_COUNTING);
		return;
	}
	if (G.fork_foreign) {
		/* Our parent's engine serves us. */
		atomic_store(&G.mode, MODE_OFF);
		relaxed_store(&G.member->state, PS_MEMBER_UNSWAPPED);
		return;
	}
	forget_locks(ps);
	relaxed_store(&G.member->swapped_pages, swapped); /* we have them all */
	for (unsigned i = 0; i < ps->nr_stores; i++)
		memcpy(G.member->stores[i].name, before->stores[i].name,
		       sizeof(before->stores[i].name));
	relaxed_store(&G.member->nr_stores, ps->nr_stores);
	if (was == MODE_ARMED)
		apply_fork_advice(&ps->mm);
	if (proc_start(true)) {
		if (was != MODE_ARMED) {
			/* Nothing was taken out yet. */
			preload_off("the engine cannot be started after fork");
			return;
		}
		/* Without an engine the child's swapped pages cannot be had. Never a wrong byte. */
		ps_log("process %u: the engine cannot be started after fork (%s: error %d): the "
		       "child ends", (u64)G.pid, G.step, (s64)G.error);
		sys_call2(SYS_kill, sys_getpid(), 9);
		/* The first process of a pid namespace does not hear that. */
		for (;;)
			sys_call1(SYS_exit_group, 137);
	}
	hook_drop_lent();
	atomic_store(&G.mode, was);
	relaxed_store(&G.member->state, was == MODE_ARMED ? PS_MEMBER_ARMED : PS_MEMBER_ENGINE);
}

/* ---- children that only we serve ---- */

static void snapshot_extent(struct ps_ctx *ctx, struct ps_mm *child, struct extent *e)
{
	struct swapfile *sf = &ctx->ps->swap;
	struct extent *d = pt_get(child, e->addr);

	ps_assert(d);
	if (e->pmd == PMD_SWAP) {
		ps_assert(swap_duplicate(sf, e->swap, PTRS_PER_PMD) == 0);
		pmd_set_swap(d, e->swap);
		return;
	}
	for (unsigned i = 0; i < PTRS_PER_PMD; i++) {
		pte_t pte = pte_get(e, i);
		swp_entry_t entry;

		switch (pte_kind(pte)) {
		case PTE_SWAP:
			ps_assert(swap_duplicate(sf, pte_to_swp(pte), 1) == 0);
			pte_set(d, i, pte);
			break;
		case PTE_CACHED:
			/* The frame is the parent's: the child gets a slot of its own. */
			if (swap_out_page(ctx, e->frame->mem + i * PAGE_SIZE, &entry) == 0)
				pte_set(d, i, pte_swap(entry));
			else
				pte_set(d, i, pte_make(PTE_POISON));
			break;
		case PTE_POISON:
		case PTE_GUARD:
			pte_set(d, i, pte);
			break;
		default:
			break;
		}
	}
}

void fork_foreign(struct ps_mm *parent, int uffd)
{
	struct pswap *ps = parent->ps;
	struct ps_mm *mm = arena_map(sizeof(*mm));
	struct ps_ctx *ctx = ps->ctx[PS_NR_CTX - 2];
	struct extent *e;

	ps_assert(mm);
	mm->ps = ps;
	mm->uffd = uffd;
	mm->foreign = true;
	ps_assert(pt_init(mm) == 0);
	for (u32 i = 0; i < parent->nr_regions; i++) {
		struct region r = parent->regions[i];

		if (r.flags & REGION_DONTFORK)
			continue;
		ps_assert(region_add(mm, r.start, r.end, r.flags) == 0);
		if (r.flags & REGION_WIPEONFORK)
			continue;
		for (u64 a = r.start; a < r.end && (e = pt_next(parent, a, r.end));
		     a = e->addr + PMD_SIZE)
			if (!pt_find(mm, e->addr) && e->pmd != PMD_NONE)
				snapshot_extent(ctx, mm, e);
	}
	stat_inc(ps->stat, forks);
	do
		mm->next = __atomic_load_n(&ps->foreign, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&ps->foreign, &mm->next, mm, false, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED));
	sys_call3(SYS_write, ps->kick_fd, &(u64){ 1 }, 8);
	if (ps_warn_once(ps, WARN_FOREIGN))
		ps_log("process %u made a child by a system call of its own: the child's memory is "
		       "served but not limited", (u64)G.pid);
}

/* The child is gone: no address space answers any more. */
static bool gone(struct ps_mm *mm)
{
	struct region *r = mm->nr_regions ? &mm->regions[0] : NULL;

	return !r || uffd_writeprotect(mm->uffd, r->start, PAGE_SIZE, false, false) == -ESRCH;
}

bool fork_reap_foreign(struct pswap *ps)
{
	struct ps_mm **link;

	if (!__atomic_load_n(&ps->foreign, __ATOMIC_RELAXED))
		return false;
	ps_rwlock_write_lock(&ps->freeze);
	for (link = &ps->foreign; *link;) {
		struct ps_mm *mm = *link;

		if (!gone(mm)) {
			link = &mm->next;
			continue;
		}
		*link = mm->next;
		while (mm->nr_regions) {
			struct region r = mm->regions[0];

			zap_range(mm, r.start, r.end, 0);
			region_del(mm, r.start, r.end);
		}
		for (unsigned c = 0; c < PS_NR_CTX; c++) {
			struct ps_ctx *ctx = ps->ctx[c];
			unsigned kept = 0;

			for (unsigned d = 0; d < ctx->nr_deferred; d++)
				if (ctx->deferred[d].mm != mm)
					ctx->deferred[kept++] = ctx->deferred[d];
			ctx->nr_deferred = kept;
		}
		sys_close(mm->uffd);
		region_free(mm);
		pt_free(mm);
		arena_unmap(mm, sizeof(*mm));
	}
	ps_rwlock_write_unlock(&ps->freeze);
	return ps->foreign != NULL;
}
