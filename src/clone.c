/* SPDX-License-Identifier: MIT */
/*
 * clone.c - see clone.h.
 *
 * An extent at a time, with its io lock held from before its pages are taken out until the slots
 * are shared: who touches a page meanwhile waits, so each page is copied as it is at one moment,
 * that of the MOVE.  Frames are not shared: a page in one can go back to one side only.
 *
 * The new range is no region yet, and not registered: a fault beside it, in the same extent, must
 * not map anything there.  So its slots may be charged to a neighbour's group until it is one.
 *
 * A count that cannot be raised (no memory for the overflow table) and pages that could not be
 * moved are copied to slots of the clone's own.
 */
#include <sys/uio.h>

#include "clone.h"
#include "fault.h"
#include "group.h"
#include "pageout.h"
#include "pagetable.h"
#include "reclaim.h"

/* A slot that another reader has is free again after one read. */
#define BUSY_TRIES 100000

static void mark(u64 bits[PTRS_PER_PMD / 64], unsigned i)
{
	bits[i / 64] |= 1ULL << (i % 64);
}

/*
 * One reference more for the slots of pages ctx->index[0 .. n): those that got it stay in the list,
 * the others are marked.  extent.lock of the original held, so that nobody frees them.
 */
static unsigned duplicate(struct ps_ctx *ctx, unsigned n, u64 rest[PTRS_PER_PMD / 64])
{
	struct swapfile *sf = &ctx->ps->swap;
	unsigned kept = 0;

	for (unsigned k = 0, nr; k < n; k += nr) {
		nr = swap_entry_batch(sf, ctx->entries + k, n - k);
		/* A run is raised as a whole or not at all: then page by page. */
		if (swap_duplicate(sf, ctx->entries[k], nr)) {
			bool alone = nr > 1 && swap_duplicate(sf, ctx->entries[k], 1) == 0;

			nr = 1;
			if (!alone) {
				mark(rest, ctx->index[k]);
				continue;
			}
		}
		memmove(&ctx->entries[kept], &ctx->entries[k], nr * sizeof(swp_entry_t));
		memmove(&ctx->index[kept], &ctx->index[k], nr * sizeof(u16));
		kept += nr;
	}
	return kept;
}

/* Pages [i, last) of e: those with slots to ctx->index and ctx->entries, those elsewhere are
 * marked. Returns how many have slots, or -EIO. extent.lock held. */
static int collect(struct ps_ctx *ctx, struct extent *e, unsigned i, unsigned last,
		   u64 rest[PTRS_PER_PMD / 64])
{
	bool copy = ctx->ps->cfg.clone_copy;
	int n = 0;

	for (; i < last; i++) {
		pte_t pte = pte_get(e, i);

		switch (pte_kind(pte)) {
		case PTE_POISON:
			return -EIO;
		case PTE_SWAP:
			if (copy)
				break;
			ctx->index[n] = i;
			ctx->entries[n++] = pte_to_swp(pte);
			continue;
		case PTE_CACHED:
			break;
		default:
			if (!present_test(e, i))
				continue;
		}
		mark(rest, i);
	}
	return n;
}

int clone_share(struct ps_ctx *ctx, struct extent *e, struct extent *d, unsigned i, unsigned last,
		u64 rest[PTRS_PER_PMD / 64])
{
	swp_entry_t whole = { 0 };
	int n;

	memset(rest, 0, PTRS_PER_PMD / 8);
	ps_mutex_lock(&e->lock);
	n = collect(ctx, e, i, last, rest);
	if (n > 0) {
		n = (int)duplicate(ctx, (unsigned)n, rest);
		if (n == PTRS_PER_PMD && e->pmd == PMD_SWAP)
			whole = e->swap;
	}
	ps_mutex_unlock(&e->lock);
	if (n <= 0)
		return n;
	/* Not both locks at a time; the references keep the slots, the gate keeps events off. */
	ps_mutex_lock(&d->lock);
	if (whole.val)
		pmd_set_swap(d, whole);
	for (int k = 0; k < n && !whole.val; k++)
		pte_set(d, ctx->index[k], pte_swap(ctx->entries[k]));
	ps_mutex_unlock(&d->lock);
	relaxed_add(&ctx->ps->pages_cloned, n);
	return 0;
}

/* ---- pages that cannot be shared ---- */

/* What page i of e holds, to ctx->buf. 0; -ENODATA: nothing any more; -EIO. e->io held. */
static int read_page(struct ps_ctx *ctx, struct extent *e, unsigned i)
{
	struct iovec local = { ctx->buf, PAGE_SIZE }, remote;
	int ret = -EAGAIN;

	for (unsigned tries = 0; ret == -EAGAIN; tries++) {
		enum pte_kind kind;
		bool there;

		ps_mutex_lock(&e->lock);
		kind = pte_kind(pte_get(e, i));
		there = present_test(e, i);
		ps_mutex_unlock(&e->lock);
		if (kind == PTE_SWAP) {
			ret = fault_read_slot(ctx, e, i, ctx->buf);
			if (ret == -EAGAIN && tries == BUSY_TRIES)
				return -EIO;
			if (ret == -EAGAIN)
				sys_call0(SYS_sched_yield);
			continue;
		}
		/* With io held it does not get into a frame. */
		if (!there)
			return -ENODATA;
		remote = (struct iovec){ (void *)(uintptr_t)pt_addr(e, i), PAGE_SIZE };
		/* Unmapped or dropped just now: there is nothing to read. */
		return sys_call6(SYS_process_vm_readv, ctx->ps->pid, SYS_ARG(&local), 1,
				 SYS_ARG(&remote), 1, 0) == PAGE_SIZE
			       ? 0
			       : -ENODATA;
	}
	return ret;
}

/* A slot of its own for page i of d, with what page i of e holds. */
static int copy_page(struct ps_ctx *ctx, struct extent *e, struct extent *d, unsigned i)
{
	swp_entry_t entry;
	int ret = read_page(ctx, e, i);

	if (ret)
		return ret == -ENODATA ? 0 : ret;
	if (swap_out_page(ctx, ctx->buf, &entry))
		return -ENOMEM;
	ps_rwlock_read_lock(&d->mm->gate);
	ps_mutex_lock(&d->lock);
	pte_set(d, i, pte_swap(entry));
	if (groups_on(ctx->ps))
		group_charge_swap(d, i, entry, 1);
	ps_mutex_unlock(&d->lock);
	ps_rwlock_read_unlock(&d->mm->gate);
	return 0;
}

static bool in_memory(struct extent *e)
{
	bool there;

	ps_mutex_lock(&e->lock);
	there = e->nr_present || e->frame;
	ps_mutex_unlock(&e->lock);
	return there;
}

/* e->io held. */
static int clone_extent(struct ps_ctx *ctx, struct extent *e, struct extent *d, unsigned i,
			unsigned last)
{
	u64 rest[PTRS_PER_PMD / 64];
	int ret = 0;

	if (in_memory(e) && extent_page_out(ctx, e))
		return -ENOMEM;
	ps_rwlock_read_lock(&e->mm->gate);
	ret = clone_share(ctx, e, d, i, last, rest);
	ps_rwlock_read_unlock(&e->mm->gate);
	/* What was learned of one holds for the other, unless d has other regions in it, in use. */
	if (ps_mutex_trylock(&d->io)) {
		if (last - i == PTRS_PER_PMD) {
			d->order = e->order;
			d->proven = e->proven;
			relaxed_store(&d->in_part, relaxed_load(&e->in_part));
		}
		ps_mutex_unlock(&d->io);
	}
	for (; i < last && !ret; i++)
		if (rest[i / 64] >> (i % 64) & 1)
			ret = copy_page(ctx, e, d, i);
	return ret;
}

int clone_range(struct ps_ctx *ctx, struct ps_mm *mm, u64 start, u64 end, u64 to)
{
	struct extent *e, *d;
	int ret = 0;

	/* Most of the work, by all workers; what is brought back meanwhile is done below. */
	reclaim_range(ctx, mm, start, end, true);
	for (u64 addr = start; !ret && addr < end && (e = pt_next(mm, addr, end));
	     addr = e->addr + PMD_SIZE) {
		unsigned i = e->addr < start ? pt_index(start) : 0;
		unsigned last = e->addr + PMD_SIZE > end ? pt_index(end) : PTRS_PER_PMD;

		d = pt_get(mm, to + (pt_addr(e, i) - start));
		if (!d)
			return -ENOMEM;
		ps_mutex_lock(&e->io);
		ret = clone_extent(ctx, e, d, i, last);
		ps_mutex_unlock(&e->io);
	}
	return ret;
}
