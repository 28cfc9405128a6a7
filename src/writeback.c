/* SPDX-License-Identifier: MIT */
/*
 * writeback.c - see writeback.h.
 *
 * Where a page goes is decided when it is written.  But what the pool may have changes: other
 * members of the tree grow, or pages of the program take their place.  What is over goes on to the
 * next store, an extent at a time, in the order of addresses, round and round: of pages that are
 * out we know nothing that would make one better than another.
 *
 * A page is copied under extent.io and SWAP_HAS_CACHE of its old slot, then its pte is changed if
 * it still is what it was, and the old slot goes as it does when a page comes back.  Slots that
 * clones share stay: every side would get one of its own.
 */
#include "writeback.h"
#include "account.h"
#include "group.h"
#include "pagetable.h"

#define LOOK_MOST 4096	       /* extents looked at in one step */
#define FULL_NS 1000000000ULL  /* full stores are not tried again for so long */
#define SLACK_PART 16	       /* of the cap, that it may be over */

/* The area to go to: the first behind the pool's that is not memory; nr_stores: none. */
static unsigned next_area(struct pswap *ps)
{
	for (unsigned i = ps->ram_area + 1; i < ps->nr_stores; i++)
		if (!ps->stores[i]->counts_as_memory)
			return i;
	return ps->nr_stores;
}

bool writeback_due(struct pswap *ps)
{
	u64 cap;

	if (ps->ram_area >= ps->nr_stores || ps->cfg.count == PS_COUNT_RESIDENT)
		return false;
	cap = account_pool_cap(ps);
	return account_pool(ps) > cap + MAX(cap / SLACK_PART, MiB(2)) && next_area(ps) < ps->nr_stores &&
	       ps_now_ns() >= relaxed_load(&ps->writeback_not_before);
}

static bool shared(struct pswap *ps, swp_entry_t e, unsigned nr)
{
	return relaxed_load(&ps->pages_cloned) && swap_is_shared(&ps->swap, e, nr);
}

static bool in_pool(struct pswap *ps, swp_entry_t e)
{
	return swp_type(e) == ps->ram_area;
}

/* All of one word: such pages use no memory where they are. */
static unsigned same_filled(struct ps_ctx *ctx, unsigned n)
{
	unsigned same = 0;
	u64 word;

	for (unsigned k = 0; k < n; k++)
		same += codec_same_filled(ctx->pages[k], &word);
	return same;
}

/* n slots from `from` on, to ctx->buf. */
static bool read_slots(struct ps_ctx *ctx, const swp_entry_t *from, unsigned n)
{
	struct store *st = swap_store(&ctx->ps->swap, from[0]);
	int err = 0;

	for (unsigned k = 0; k < n; k++) {
		ctx->slots[k] = swp_offset(from[k]);
		ctx->pages[k] = ctx->buf + k * PAGE_SIZE;
	}
	return st->ops->read(st, ctx->id, ctx->slots, ctx->pages, n, &err) == (int)n;
}

static unsigned write_slots(struct ps_ctx *ctx, const swp_entry_t *to, unsigned n)
{
	struct store *st = swap_store(&ctx->ps->swap, to[0]);
	int w;

	for (unsigned k = 0; k < n; k++)
		ctx->slots[k] = swp_offset(to[k]);
	w = st->ops->write(st, ctx->id, ctx->slots, (const void *const *)ctx->pages, n);
	return MAX(w, 0);
}

/* Copies cluster `from` to cluster `to`. */
static bool copy_cluster(struct ps_ctx *ctx, swp_entry_t from, swp_entry_t to)
{
	swp_entry_t *ents = ctx->entries;

	for (unsigned i = 0; i < PTRS_PER_PMD; i += PS_BUF_PAGES) {
		for (unsigned k = 0; k < PS_BUF_PAGES; k++) {
			ents[k].val = from.val + i + k;
			ents[PS_BUF_PAGES + k].val = to.val + i + k;
		}
		if (!read_slots(ctx, ents, PS_BUF_PAGES) ||
		    (i == 0 && same_filled(ctx, PS_BUF_PAGES) == PS_BUF_PAGES))
			return false;
		if (write_slots(ctx, ents + PS_BUF_PAGES, PS_BUF_PAGES) < PS_BUF_PAGES)
			return false;
	}
	return true;
}

/* An extent that is one cluster stays one. */
static unsigned move_cluster(struct ps_ctx *ctx, struct extent *e)
{
	struct swapfile *sf = &ctx->ps->swap;
	swp_entry_t from = { 0 }, to;
	bool whole, moved = false;

	ps_mutex_lock(&e->lock);
	whole = e->pmd == PMD_SWAP && in_pool(ctx->ps, e->swap);
	if (whole)
		from = e->swap;
	ps_mutex_unlock(&e->lock);
	if (!whole || shared(ctx->ps, from, PTRS_PER_PMD) ||
	    swapcache_prepare(sf, from, PTRS_PER_PMD))
		return 0;
	if (swap_alloc_order(sf, next_area(ctx->ps), ctx->id, 9, &to)) {
		swapcache_free(sf, from, PTRS_PER_PMD);
		return 0;
	}
	if (copy_cluster(ctx, from, to)) {
		ps_rwlock_read_lock(&e->mm->gate);
		ps_mutex_lock(&e->lock);
		moved = e->pmd == PMD_SWAP && e->swap.val == from.val &&
			swap_duplicate(sf, to, PTRS_PER_PMD) == 0;
		if (moved)
			pmd_set_swap(e, to);
		if (moved && groups_on(ctx->ps))
			group_charge_swap(e, 0, to, PTRS_PER_PMD);
		ps_mutex_unlock(&e->lock);
		ps_rwlock_read_unlock(&e->mm->gate);
	}
	swapcache_free(sf, to, PTRS_PER_PMD);
	swapcache_free(sf, from, PTRS_PER_PMD);
	if (moved)
		swap_free_runs(sf, from, PTRS_PER_PMD);
	return moved ? PTRS_PER_PMD : 0;
}

/* Pages of e from *at on that are in the pool: indexes and entries, cache flags taken. */
static unsigned collect(struct ps_ctx *ctx, struct extent *e, unsigned *at)
{
	struct swapfile *sf = &ctx->ps->swap;
	unsigned n = 0;

	ps_mutex_lock(&e->lock);
	for (; *at < PTRS_PER_PMD && n < PS_BUF_PAGES; ++*at) {
		pte_t pte = pte_get(e, *at);

		if (pte_kind(pte) != PTE_SWAP || !in_pool(ctx->ps, pte_to_swp(pte)) ||
		    shared(ctx->ps, pte_to_swp(pte), 1) ||
		    swapcache_prepare(sf, pte_to_swp(pte), 1))
			continue;
		ctx->index[n] = (u16)*at;
		ctx->entries[n++] = pte_to_swp(pte);
	}
	ps_mutex_unlock(&e->lock);
	return n;
}

/* The n pages collected. Returns how many were moved; *full: the store has no room. */
static unsigned move_pages(struct ps_ctx *ctx, struct extent *e, unsigned n, bool *full)
{
	struct swapfile *sf = &ctx->ps->swap;
	swp_entry_t *from = ctx->entries, *to = ctx->entries + PS_BUF_PAGES;
	unsigned got = 0, w = 0, moved = 0;
	bool done[PS_BUF_PAGES] = { false };

	if (read_slots(ctx, from, n) && same_filled(ctx, n) < n) {
		got = swap_alloc_of_one(sf, next_area(ctx->ps), ctx->id, n, to);
		w = got ? write_slots(ctx, to, got) : 0;
		*full = w == 0;
	}
	ps_rwlock_read_lock(&e->mm->gate);
	ps_mutex_lock(&e->lock);
	for (unsigned k = 0; k < w; k++) {
		done[k] = pte_get(e, ctx->index[k]) == pte_swap(from[k]) &&
			  swap_duplicate(sf, to[k], 1) == 0;
		if (done[k])
			pte_set(e, ctx->index[k], pte_swap(to[k]));
		if (done[k] && groups_on(ctx->ps))
			group_charge_swap(e, ctx->index[k], to[k], 1);
	}
	ps_mutex_unlock(&e->lock);
	ps_rwlock_read_unlock(&e->mm->gate);
	for (unsigned k = 0; k < got; k++)
		swapcache_free(sf, to[k], 1);
	for (unsigned k = 0; k < n; k++) {
		swapcache_free(sf, from[k], 1);
		if (done[k])
			free_swap_and_cache_nr(sf, from[k], 1);
		moved += done[k];
	}
	return moved;
}

static unsigned move_extent(struct ps_ctx *ctx, struct extent *e, bool *full)
{
	unsigned moved = move_cluster(ctx, e), at = 0, n;

	if (moved || e->pmd == PMD_SWAP)
		return moved;
	while (!*full && (n = collect(ctx, e, &at))) {
		moved += move_pages(ctx, e, n, full);
		if (ps_mutex_is_contended(&e->io))
			break; /* a fault waits */
	}
	return moved;
}

bool writeback_step(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;
	bool full = false, wrapped = false;
	u64 at = relaxed_load(&ps->writeback_at);

	for (unsigned i = 0; i < LOOK_MOST && !full; i++) {
		struct extent *e = pt_next(&ps->mm, at, UINT64_MAX);
		unsigned moved;

		if (!e) {
			if (wrapped)
				break;
			wrapped = true;
			at = 0;
			continue;
		}
		at = e->addr + PMD_SIZE;
		relaxed_store(&ps->writeback_at, at);
		if (!e->nr_swap || !ps_mutex_trylock(&e->io))
			continue;
		moved = move_extent(ctx, e, &full);
		ps_mutex_unlock(&e->io);
		if (moved) {
			stat_add(ps->stat, pages_written_back, moved);
			return true;
		}
	}
	relaxed_store(&ps->writeback_not_before, ps_now_ns() + FULL_NS);
	return false;
}
