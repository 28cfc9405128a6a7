/* SPDX-License-Identifier: MIT */
/*
 * group.c - see group.h.
 *
 * Charges are exact: each change of a pte or of the present bits, all of which happen under the
 * gate and extent.lock, goes along with its charge, and a page or slot is uncharged from the group
 * that the extent or the swap file names at that moment.  A move holds the gate exclusively, so
 * nothing is on its way while it changes those names.
 *
 * Clusters are shared by the groups (a slot has an owner, a cluster has none), and so are batches
 * on their way to the lists; only lists are a group's own.
 */
#include "group.h"
#include "arena.h"
#include "lru.h"
#include "pagetable.h"
#include "region.h"

#define GROUPS_BYTES (PTRS_PER_PMD * sizeof(u16))

static struct pswap_group *group_of(struct pswap *ps, u16 id)
{
	return &ps->groups.table[id];
}

static struct lruvec *lruvec_of(struct extent *e)
{
	struct pswap *ps = e->mm->ps;

	if (e->groups)
		return &ps->groups.mixed;
	return e->group ? &group_of(ps, e->group)->lruvec : &ps->lru.root;
}

/* ---- charges ---- */

static void charge(struct pswap *ps, u16 id, s64 pages)
{
	struct pswap_group *g = group_of(ps, id);
	s64 now = relaxed_add(&g->resident, pages) + pages;

	if (pages > 0)
		stat_peak(&g->peak, (u64)MAX(now, 0));
}

void group_charge_bits(struct extent *e, unsigned base, u64 bits, int by)
{
	if (likely(!e->groups)) {
		charge(e->mm->ps, e->group, (s64)__builtin_popcountll(bits) * by);
		return;
	}
	for (; bits; bits &= bits - 1)
		charge(e->mm->ps, e->groups[base + __builtin_ctzll(bits)], by);
}

void group_charge_all(struct extent *e, int by)
{
	if (likely(!e->groups)) {
		charge(e->mm->ps, e->group, (s64)PTRS_PER_PMD * by);
		return;
	}
	for (unsigned i = 0; i < PTRS_PER_PMD; i += 64)
		group_charge_bits(e, i, ~0ULL, by);
}

/* Length of the run of pages from i on, at most nr, that are of one group. */
static unsigned group_run(const struct extent *e, unsigned i, unsigned nr)
{
	unsigned n = 1;

	if (!e->groups)
		return nr;
	while (n < nr && e->groups[i + n] == e->groups[i])
		n++;
	return n;
}

void group_charge_swap(struct extent *e, unsigned i, swp_entry_t entry, unsigned nr)
{
	struct pswap *ps = e->mm->ps;

	for (unsigned n; nr; i += n, entry.val += n, nr -= n) {
		struct pswap_group *g = group_of(ps, extent_group(e, i));

		n = group_run(e, i, nr);
		relaxed_add(&g->pages_out, n);
		if (!g->id)
			continue;
		relaxed_add(&g->swap, n);
		swap_group_record(&ps->swap, entry, n, g->id);
	}
}

void group_count_in(struct extent *e, unsigned i, unsigned nr)
{
	for (unsigned n; nr; i += n, nr -= n) {
		n = group_run(e, i, nr);
		relaxed_add(&group_of(e->mm->ps, extent_group(e, i))->pages_in, n);
	}
}

void group_uncharge_swap(void *ctx, u16 group, unsigned nr)
{
	if (group)
		relaxed_sub(&group_of(ctx, group)->swap, nr);
}

/* ---- extents ---- */

/* Whose each page is by the regions. Pages outside of any go with their neighbours. True: not all
 * are of one group. Gate held. */
static bool wanted_groups(struct extent *e, u16 want[PTRS_PER_PMD])
{
	struct ps_mm *mm = e->mm;
	u64 end = e->addr + PMD_SIZE;
	struct region *r = region_after(mm, e->addr);
	u16 group = r && r->start < end ? r->group : 0, first = group;
	unsigned i = 0;
	bool mixed = false;

	for (; r && r < mm->regions + mm->nr_regions && r->start < end; r++) {
		unsigned lo = r->start > e->addr ? pt_index(r->start) : 0;

		while (i < lo)
			want[i++] = group;
		group = r->group;
		mixed |= group != first;
	}
	while (i < PTRS_PER_PMD)
		want[i++] = group;
	return mixed;
}

/* Pages [i, i + n) of e go from one group to another: those in memory, and the slots of the others,
 * as far as they are charged to the first. extent.lock held. */
static void recharge(struct extent *e, unsigned i, unsigned n, u16 from, u16 to)
{
	struct pswap *ps = e->mm->ps;
	s64 pages = 0, slots = 0;

	for (unsigned end = i + n; i < end; i += n) {
		pte_t pte = pte_get(e, i);
		swp_entry_t entry;

		n = 1;
		pages += present_test(e, i) || pte_kind(pte) == PTE_CACHED;
		if (pte_kind(pte) != PTE_SWAP)
			continue;
		/* A run of slots of one cluster, for one lock. */
		entry = pte_to_swp(pte);
		while (i + n < end && swp_offset(entry) % SWAPFILE_CLUSTER + n < SWAPFILE_CLUSTER &&
		       !present_test(e, i + n) &&
		       pte_get(e, i + n) == pte_swap((swp_entry_t){ entry.val + n }))
			n++;
		slots += swap_group_change(&ps->swap, entry, n, from, to);
	}
	charge(ps, from, -pages);
	charge(ps, to, pages);
	relaxed_sub(&group_of(ps, from)->swap, slots);
	relaxed_add(&group_of(ps, to)->swap, slots);
}

/* *spare: a table that was had before, taken when one is needed. False: there is no memory for one.
 */
static bool sync_extent(struct extent *e, u16 **spare)
{
	u16 want[PTRS_PER_PMD];
	bool mixed = wanted_groups(e, want);

	ps_mutex_lock(&e->lock);
	if (mixed && !e->groups) {
		u16 *table = spare && *spare ? *spare : arena_alloc(GROUPS_BYTES);

		if (!table) {
			ps_mutex_unlock(&e->lock);
			return false;
		}
		if (spare)
			*spare = NULL;
		for (unsigned i = 0; i < PTRS_PER_PMD; i++)
			table[i] = e->group;
		e->groups = table;
	}
	for (unsigned i = 0, n; i < PTRS_PER_PMD; i += n) {
		u16 from = extent_group(e, i);

		n = 1;
		while (i + n < PTRS_PER_PMD && extent_group(e, i + n) == from &&
		       want[i + n] == want[i])
			n++;
		if (from != want[i])
			recharge(e, i, n, from, want[i]);
	}
	if (mixed) {
		memcpy(e->groups, want, GROUPS_BYTES);
	} else if (e->groups) {
		arena_free(e->groups, GROUPS_BYTES);
		e->groups = NULL;
	}
	e->group = want[0];
	relaxed_store(&e->grouped, true);
	folio_set_lruvec(&e->folio, lruvec_of(e));
	ps_mutex_unlock(&e->lock);
	return true;
}

void group_sync(struct extent *e)
{
	/* Without memory it stays as it is for now: its new pages are charged to whom the old ones
	 * are, and the next fault tries again. */
	sync_extent(e, NULL);
}

void group_sync_range(struct ps_mm *mm, u64 start, u64 end)
{
	struct extent *e;

	for (u64 addr = start; addr < end && (e = pt_next(mm, addr, end));
	     addr = e->addr + PMD_SIZE)
		group_sync(e);
}

void group_unmapped(struct ps_mm *mm, u64 start, u64 end)
{
	struct extent *e;

	for (u64 addr = start; addr < end && (e = pt_next(mm, addr, end));
	     addr = e->addr + PMD_SIZE)
		if (e->groups)
			group_sync(e);
}

int group_move_range(struct ps_mm *mm, u64 start, u64 end, struct pswap_group *g)
{
	/* Only the first and the last extent may come to have several groups. */
	u16 *spare[2] = { arena_alloc(GROUPS_BYTES), arena_alloc(GROUPS_BYTES) };
	struct extent *e;
	int ret = -ENOMEM;

	if (spare[0] && spare[1])
		ret = region_set_group(mm, start, end, g ? g->id : 0);
	for (u64 addr = start; !ret && addr < end && (e = pt_next(mm, addr, end));
	     addr = e->addr + PMD_SIZE)
		ps_assert(sync_extent(e, spare[0] ? &spare[0] : &spare[1]));
	for (unsigned i = 0; i < 2; i++)
		if (spare[i])
			arena_free(spare[i], GROUPS_BYTES);
	return ret;
}

/* ---- groups come and go ---- */

/* From now on charges are kept: what the root group, which has everything, has in memory. The gate
 * is held exclusively. */
static void begin(struct pswap *ps)
{
	s64 pages = 0;
	struct extent *e;

	for (u64 addr = 0; (e = pt_next(&ps->mm, addr, UINT64_MAX)); addr = e->addr + PMD_SIZE)
		pages += relaxed_load(&e->folio.pages);
	relaxed_store(&group_of(ps, 0)->resident, pages);
	relaxed_store(&group_of(ps, 0)->live, true);
	relaxed_store(&ps->groups.on, true);
}

static int take_table(struct pswap *ps)
{
	struct ps_groups *gs = &ps->groups;
	struct pswap_group *table;

	if (gs->table)
		return 0;
	table = arena_map(PS_MAX_GROUPS * sizeof(*table));
	if (!table)
		return -ENOMEM;
	gs->next = 1;
	atomic_store(&gs->top, 1);
	table[0].ps = ps;
	gs->table = table;
	return 0;
}

int group_create(struct pswap *ps, u64 limit, struct pswap_group **group)
{
	struct ps_groups *gs = &ps->groups;
	struct pswap_group *g;
	int ret;

	if (gs->nr == PS_MAX_GROUPS - 1)
		return -ENOSPC;
	ret = take_table(ps);
	if (ret)
		return ret;
	while (relaxed_load(&gs->table[gs->next].live))
		gs->next = gs->next % (PS_MAX_GROUPS - 1) + 1;
	g = group_of(ps, (u16)gs->next);
	ps_rwlock_write_lock(&ps->mm.gate);
	if (!gs->nr)
		ret = swapfile_enable_groups(&ps->swap);
	if (ret == 0) {
		gs->next = gs->next % (PS_MAX_GROUPS - 1) + 1;
		/* Some look at a number that was in use once without any lock: these stay. */
		if (!g->ps) {
			g->ps = ps;
			g->id = (u16)(g - gs->table);
			ps_lock_set_rank(&g->lruvec.lock, RANK_LEAF);
		}
		relaxed_store(&g->limit, limit >> PAGE_SHIFT);
		relaxed_store(&g->peak, 0);
		relaxed_store(&g->pages_out, 0);
		relaxed_store(&g->pages_in, 0);
		relaxed_store(&g->reclaimed, 0);
		relaxed_store(&g->throttled_ns, 0);
		relaxed_store(&g->give_up_until, 0);
		relaxed_store(&g->warned, 0);
		if (g->id >= relaxed_load(&gs->top))
			atomic_store(&gs->top, g->id + 1U);
		if (!gs->nr++)
			begin(ps);
		atomic_store(&g->live, true);
		*group = g;
	} else {
		swapfile_disable_groups(&ps->swap);
	}
	ps_rwlock_write_unlock(&ps->mm.gate);
	return ret;
}

void group_delete(struct pswap_group *g)
{
	struct pswap *ps = g->ps;
	struct ps_groups *gs = &ps->groups;
	struct extent *e;
	s64 slots;

	ps_rwlock_write_lock(&ps->mm.gate);
	region_replace_group(&ps->mm, g->id, 0);
	/* An extent has fewer groups than before: no table is needed. */
	for (u64 addr = 0; (e = pt_next(&ps->mm, addr, UINT64_MAX)); addr = e->addr + PMD_SIZE)
		if (e->groups || e->group == g->id)
			ps_assert(sync_extent(e, NULL));
	/* Slots that only clones of other groups refer to any more. */
	slots = (s64)swap_group_replace(&ps->swap, g->id, 0);
	relaxed_sub(&g->swap, slots);
	relaxed_add(&group_of(ps, 0)->swap, slots);
	ps_assert(relaxed_load(&g->resident) == 0);
	relaxed_store(&g->live, false);
	if (!--gs->nr) {
		relaxed_store(&gs->on, false);
		swapfile_disable_groups(&ps->swap);
	}
	ps_rwlock_write_unlock(&ps->mm.gate);
	/* Faults that wait for room in it. */
	ps_event_wake(&ps->freed_ev);
}

bool group_valid(struct pswap *ps, const struct pswap_group *g)
{
	const struct pswap_group *table = ps->groups.table;
	uintptr_t off = (uintptr_t)g - (uintptr_t)table;

	return table && g > table && g < table + PS_MAX_GROUPS && off % sizeof(*g) == 0 &&
	       atomic_load(&g->live);
}

/* ---- lists and limits ---- */

struct lruvec *group_lruvec(struct pswap *ps, unsigned n)
{
	if (n == 0)
		return &ps->lru.root;
	if (!ps->groups.table || n > atomic_load(&ps->groups.top))
		return NULL;
	/* 1: number 0 of the table, the root, has its lists elsewhere. */
	return n == 1 ? &ps->groups.mixed : &ps->groups.table[n - 1].lruvec;
}

bool group_has_pages(struct extent *e, u16 id, bool cached)
{
	bool has = false;

	ps_mutex_lock(&e->lock);
	if (!e->groups)
		has = e->group == id;
	for (unsigned i = 0; e->groups && i < PTRS_PER_PMD && !has; i++)
		has = e->groups[i] == id &&
		      (cached ? pte_kind(pte_get(e, i)) == PTE_CACHED : present_test(e, i));
	ps_mutex_unlock(&e->lock);
	return has;
}

struct pswap_group *group_at(struct ps_mm *mm, u64 addr)
{
	struct region *r;
	u16 id = 0;

	ps_rwlock_read_lock(&mm->gate);
	r = region_find(mm, addr);
	if (r)
		id = r->group;
	ps_rwlock_read_unlock(&mm->gate);
	return group_by_id(mm->ps, id);
}

/* ---- self-check ---- */

static const char *check_extent(struct extent *e, s64 *resident)
{
	struct pswap *ps = e->mm->ps;
	u16 want[PTRS_PER_PMD];
	bool mixed = wanted_groups(e, want);
	unsigned pages = 0;

	if (mixed != (e->groups != NULL) && relaxed_load(&e->grouped))
		return "extent has a table of groups without need, or none with need";
	if (relaxed_load(&e->folio.lruvec) != lruvec_of(e))
		return "folio belongs to the lists of another group";
	for (unsigned i = 0; i < PTRS_PER_PMD; i++) {
		pte_t pte = pte_get(e, i);
		bool there = present_test(e, i) || pte_kind(pte) == PTE_CACHED;

		if (there && extent_group(e, i) != want[i])
			return "page is charged to a group that is not its region's";
		if (there)
			resident[extent_group(e, i)]++;
		pages += there;
		if (pte_kind(pte) == PTE_SWAP) {
			u16 owner = swap_group_lookup(&ps->swap, pte_to_swp(pte));

			if (owner != extent_group(e, i) &&
			    swap_count(&ps->swap, pte_to_swp(pte), NULL) == 1 &&
			    !group_of(ps, owner)->live)
				return "slot is of a group that is no more";
		}
	}
	return pages == relaxed_load(&e->folio.pages) ? NULL
						      : "folio counts other pages than there are";
}

const char *group_check(struct pswap *ps)
{
	struct ps_groups *gs = &ps->groups;
	const char *wrong = NULL;
	s64 *resident, *swap;
	struct extent *e;

	if (!gs->nr)
		return relaxed_load(&gs->on) ? "groups are on without one" : NULL;
	resident = arena_map(2 * PS_MAX_GROUPS * sizeof(*resident));
	if (!resident)
		return "no memory to check";
	swap = resident + PS_MAX_GROUPS;
	for (u64 addr = 0; !wrong && (e = pt_next(&ps->mm, addr, UINT64_MAX));
	     addr = e->addr + PMD_SIZE)
		wrong = check_extent(e, resident);
	swap_group_count(&ps->swap, swap, PS_MAX_GROUPS);
	for (unsigned id = 0; id < PS_MAX_GROUPS && !wrong; id++) {
		struct pswap_group *g = group_of(ps, (u16)id);

		if (relaxed_load(&g->resident) != resident[id])
			wrong = "charge for pages in memory differs from the page table";
		else if (id && relaxed_load(&g->swap) != swap[id])
			wrong = "charge for slots differs from the swap file";
		else if (!relaxed_load(&g->live) && (resident[id] || swap[id]))
			wrong = "something is charged to a group that is no more";
	}
	arena_unmap(resident, 2 * PS_MAX_GROUPS * sizeof(*resident));
	return wrong;
}
