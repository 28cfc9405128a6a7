/* SPDX-License-Identifier: MIT */
/*
 * swap_alloc.c - which cluster a slot comes from.
 *
 * An allocation of some order looks, in this order, at
 *   1. the CPU's current cluster of that order, from where it last stopped;
 *   2. a free cluster: one that was given back (last in, first out: its tables are touched
 *      already), else one never used;
 *   3. a non-full cluster of the order, taken from the front and moved to the back of its list, so
 *      that CPUs spread over several;
 *   4. non-full clusters of larger orders, and for order 0 the fragmented ones.
 * Fresh clusters come after non-full ones once the area has touched more than twice the clusters
 * that its slots in use would fill: a scattered working set would otherwise touch the tables of the
 * whole area, here and in the store.
 *
 * Locks and lists: swapfile_internal.h.
 */
#include "swapfile_internal.h"

/* Clusters that may be touched beyond twice the need before non-full ones are preferred. */
#define FRESH_SLACK 64

#define CURRENT(cluster, next) (((u64)(cluster) + 1) << 16 | (next))

struct alloc {
	struct swap_info *si;
	unsigned order_index, order;
	unsigned want, got; /* runs of 2^order slots */
	bool expand;	    /* an entry in out[] for each slot, not for each run */
	swp_entry_t *out;
};

/* ---- lists ---- */

/* Nobody looks for a full cluster, so those are only counted: with links, a free would write to
 * both neighbours on the list, which may be anywhere. */
static void list_unlink(struct swap_info *si, struct swap_cluster_info *ci)
{
	struct swap_cluster_list *l = &si->lists[ci->list];

	if (ci->list == SWAP_LIST_NONE)
		return;
	l->nr--;
	if (ci->list == SWAP_LIST_FULL)
		return;
	*(ci->prev ? &ci->prev->next : &l->first) = ci->next;
	*(ci->next ? &ci->next->prev : &l->last) = ci->prev;
}

static void list_link(struct swap_info *si, struct swap_cluster_info *ci, enum swap_list list)
{
	struct swap_cluster_list *l = &si->lists[list];

	ci->list = list;
	l->nr++;
	if (list == SWAP_LIST_FULL) {
		ci->next = ci->prev = NULL;
		return;
	}
	if (list == SWAP_LIST_FREE) {
		ci->prev = NULL;
		ci->next = l->first;
		*(l->first ? &l->first->prev : &l->last) = ci;
		l->first = ci;
		return;
	}
	ci->next = NULL;
	ci->prev = l->last;
	*(l->last ? &l->last->next : &l->first) = ci;
	l->last = ci;
}

/* Both locks are held in the end; the cluster's is the caller's. */
static void cluster_move(struct swap_info *si, struct swap_cluster_info *ci, enum swap_list list)
{
	if (ci->list == list)
		return;
	ps_mutex_lock(&si->lock);
	list_unlink(si, ci);
	list_link(si, ci, list);
	ps_mutex_unlock(&si->lock);
}

void swap_cluster_put(struct swap_info *si, struct swap_cluster_info *ci, unsigned nr)
{
	ps_debug_assert(ps_mutex_is_locked(&ci->lock));
	ps_assert(ci->count >= nr);
	ci->count -= nr;
	relaxed_sub(&si->slots_used, nr);
	if (!ci->count) {
		ci->in_map = false;
		ci->byte = 0;
	}
	cluster_move(si, ci, ci->count ? SWAP_LIST_NONFULL + ci->order_index : SWAP_LIST_FREE);
}

/* ---- inside one cluster ---- */

u8 *swap_map_materialise(struct swap_info *si, struct swap_cluster_info *ci)
{
	u8 *map = swap_cluster_map(si, ci);

	ps_debug_assert(ps_mutex_is_locked(&ci->lock));
	if (ci->in_map)
		return map;
	memset(map, ci->byte, SWAPFILE_CLUSTER);
	ci->in_map = true;
	if (!ci->map_used) {
		ci->map_used = true;
		relaxed_add(&si->nr_map_used, 1);
	}
	return map;
}

static unsigned find_free_slot(const u8 *map, unsigned from)
{
	for (; from % sizeof(map_vec); from++) {
		if (!map[from])
			return from;
	}
	for (; from < SWAPFILE_CLUSTER; from += sizeof(map_vec)) {
		if (!map_has(map + from, sizeof(map_vec), 0xff, 0))
			continue;
		while (map[from])
			from++;
		return from;
	}
	return SWAPFILE_CLUSTER;
}

unsigned swap_find_free(const u8 *map, unsigned from, unsigned order)
{
	unsigned size = 1U << order;

	if (order == 0)
		return find_free_slot(map, from);
	for (from = ALIGN_UP(from, size); from < SWAPFILE_CLUSTER; from += size) {
		u8 some, all;

		map_bits(map + from, size, &some, &all);
		if (!some)
			return from;
	}
	return SWAPFILE_CLUSTER;
}

/* The same for any cluster: of a uniform one all slots are free or none. */
static unsigned cluster_find_free(struct swap_info *si, struct swap_cluster_info *ci, unsigned from,
				  unsigned order)
{
	if (ci->in_map)
		return swap_find_free(swap_cluster_map(si, ci), from, order);
	return ci->byte ? SWAPFILE_CLUSTER : ALIGN_UP(from, 1U << order);
}

/* New slots: no reference yet, and the allocator's caller owns the data. */
static void take_run(struct alloc *a, struct swap_cluster_info *ci, u64 slot)
{
	unsigned size = 1U << a->order;

	/* A whole cluster was free, so it is uniform and stays so. */
	if (size == SWAPFILE_CLUSTER)
		ci->byte = SWAP_HAS_CACHE;
	else
		memset(swap_map_materialise(a->si, ci) + slot % SWAPFILE_CLUSTER, SWAP_HAS_CACHE,
		       size);
	if (!a->expand)
		size = 1;
	for (unsigned i = 0; i < size; i++)
		*a->out++ = swp_entry(a->si->type, slot + i);
	a->got++;
}

/*
 * Takes runs out of a locked cluster from slot `from` on until there are enough.  Returns where the
 * CPU may go on, SWAPFILE_CLUSTER when nothing is left behind there.
 */
static unsigned cluster_alloc(struct alloc *a, struct swap_cluster_info *ci, unsigned from)
{
	struct swap_info *si = a->si;
	u64 first = swap_cluster_first(si, ci);
	unsigned size = 1U << a->order, had = a->got, taken;
	bool whole = from == 0;

	while (a->got < a->want) {
		from = cluster_find_free(si, ci, from, a->order);
		if (from >= SWAPFILE_CLUSTER)
			break;
		take_run(a, ci, first + from);
		from += size;
	}
	taken = (a->got - had) * size;
	if (taken) {
		if (!ci->count)
			ci->order_index = a->order_index;
		ci->count += taken;
		relaxed_add(&si->slots_used, taken);
	}
	if (ci->count == SWAPFILE_CLUSTER)
		cluster_move(si, ci, SWAP_LIST_FULL);
	else if (a->got < a->want && whole && a->order >= SWAP_FRAG_ORDER)
		cluster_move(si, ci, SWAP_LIST_FRAG);
	else if (taken && ci->list != SWAP_LIST_FRAG)
		cluster_move(si, ci, SWAP_LIST_NONFULL + ci->order_index);
	return from;
}

/* ---- choosing a cluster ---- */

/* The first cluster of a list whose lock is free, locked. Notes a busy one. Area lock held. */
static struct swap_cluster_info *list_trylock(struct swap_info *si, enum swap_list list,
					      struct swap_cluster_info **busy)
{
	for (struct swap_cluster_info *ci = si->lists[list].first; ci; ci = ci->next) {
		if (ps_mutex_trylock(&ci->lock))
			return ci;
		if (!*busy)
			*busy = ci;
	}
	return NULL;
}

/* As list_trylock, and puts the cluster at the back, so that the next CPU gets another. */
static struct swap_cluster_info *list_trylock_rotate(struct swap_info *si, enum swap_list list,
						     struct swap_cluster_info **busy)
{
	struct swap_cluster_info *ci = list_trylock(si, list, busy);

	if (ci && si->lists[list].last != ci) {
		list_unlink(si, ci);
		list_link(si, ci, list);
	}
	return ci;
}

static bool fresh_left(struct swap_info *si)
{
	return si->nr_touched < si->nr_clusters;
}

static bool prefer_nonfull(struct swap_info *si)
{
	u64 need = 2 * relaxed_load(&si->slots_used) / SWAPFILE_CLUSTER;

	return si->nr_touched > need + FRESH_SLACK;
}

/* Puts a never used cluster on the free list. Nobody has allocated from it, so none needs its lock
 * to be told which list it is on. */
static struct swap_cluster_info *take_fresh(struct swap_info *si, struct swap_cluster_info **busy)
{
	ps_lock_set_rank(&si->clusters[si->nr_touched].lock, RANK_CLUSTER);
	list_link(si, &si->clusters[si->nr_touched++], SWAP_LIST_FREE);
	return list_trylock(si, SWAP_LIST_FREE, busy);
}

static struct swap_cluster_info *pick_locked(struct swap_info *si, unsigned order_index,
					     struct swap_cluster_info **busy)
{
	struct swap_cluster_info *ci = list_trylock(si, SWAP_LIST_FREE, busy);
	bool larger_only = swap_order(order_index) == 9; /* only an empty cluster will do */

	if (!ci && fresh_left(si) && (larger_only || !prefer_nonfull(si)))
		ci = take_fresh(si, busy);
	if (ci || larger_only)
		return ci;
	ci = list_trylock_rotate(si, SWAP_LIST_NONFULL + order_index, busy);
	if (!ci && fresh_left(si))
		ci = take_fresh(si, busy);
	for (unsigned o = order_index + 1; !ci && o < SWAP_NR_ORDERS; o++)
		ci = list_trylock_rotate(si, SWAP_LIST_NONFULL + o, busy);
	if (!ci && order_index == 0)
		ci = list_trylock(si, SWAP_LIST_FRAG, busy);
	return ci;
}

/* Could this order find a run in a cluster on that list? */
static bool list_serves(enum swap_list list, unsigned order_index)
{
	if (list == SWAP_LIST_FREE)
		return true;
	if (swap_order(order_index) == 9)
		return false;
	if (list >= SWAP_LIST_NONFULL && list < SWAP_LIST_FRAG)
		return list >= SWAP_LIST_NONFULL + order_index;
	return list == SWAP_LIST_FRAG && order_index == 0;
}

/* A cluster to allocate from, locked; NULL when the area has none for this order. */
static struct swap_cluster_info *cluster_pick(struct swap_info *si, unsigned order_index)
{
	for (;;) {
		struct swap_cluster_info *busy = NULL, *ci;

		ps_mutex_lock(&si->lock);
		ci = pick_locked(si, order_index, &busy);
		ps_mutex_unlock(&si->lock);
		if (ci || !busy)
			return ci;
		/* All that would do are held by others for a moment: wait for one of them. */
		ps_mutex_lock(&busy->lock);
		if (list_serves(busy->list, order_index))
			return busy;
		ps_mutex_unlock(&busy->lock);
	}
}

/* Another thread may take its lock from here, so the cluster's first use is to be seen before (the
 * lock's rank is set then). */
static void set_current(_Atomic u64 *current, u64 cluster, unsigned next)
{
	atomic_store_explicit(current, next < SWAPFILE_CLUSTER ? CURRENT(cluster, next) : 0,
			      memory_order_release);
}

/* Goes on in the CPU's current cluster, if it is still of that order or empty. */
static void alloc_current(struct alloc *a, _Atomic u64 *current)
{
	u64 cur = atomic_load_explicit(current, memory_order_acquire);
	struct swap_cluster_info *ci;
	unsigned next = cur & 0xffff;
	u64 cluster = (cur >> 16) - 1;

	/* A cluster serves one run of order 9; the free list has the next. */
	if (!cur || a->order == 9)
		return;
	ci = &a->si->clusters[cluster];
	ps_mutex_lock(&ci->lock);
	if (ci->list == SWAP_LIST_FREE)
		next = cluster_alloc(a, ci, 0);
	else if (ci->list == SWAP_LIST_NONFULL + a->order_index)
		next = cluster_alloc(a, ci, next);
	else
		next = SWAPFILE_CLUSTER;
	ps_mutex_unlock(&ci->lock);
	set_current(current, cluster, next);
}

/* Up to `want` runs of one order from one area; entries go to out[]. Returns how many were had. */
static unsigned area_alloc(struct swap_info *si, unsigned cpu, unsigned order_index, unsigned want,
			   bool expand, swp_entry_t *out)
{
	_Atomic u64 *current = &si->cpus[cpu % SWAP_MAX_CPUS].current[order_index];
	struct alloc a = {
		.si = si,
		.order_index = order_index,
		.order = swap_order(order_index),
		.want = want,
		.expand = expand,
		.out = out,
	};

	alloc_current(&a, current);
	while (a.got < a.want) {
		struct swap_cluster_info *ci = cluster_pick(si, order_index);
		unsigned next;

		if (!ci)
			break;
		next = cluster_alloc(&a, ci, 0);
		ps_mutex_unlock(&ci->lock);
		set_current(current, (u64)(ci - si->clusters), next);
	}
	return a.got;
}

/* ---- the two calls ---- */

int swap_alloc_order(struct swapfile *sf, unsigned first_area, unsigned cpu, unsigned order,
		     swp_entry_t *entry)
{
	unsigned o = 0;

	while (o < SWAP_NR_ORDERS && swap_order(o) != order)
		o++;
	if (o == SWAP_NR_ORDERS)
		return -EINVAL;
	for (unsigned i = first_area; i < sf->nr_areas; i++) {
		if (area_alloc(sf->areas[i], cpu, o, 1, false, entry))
			return 0;
	}
	return -ENOSPC;
}

unsigned swap_alloc_pages(struct swapfile *sf, unsigned first_area, unsigned cpu, unsigned nr,
			  swp_entry_t *out)
{
	unsigned got = 0;

	nr = MIN(nr, SWAPFILE_CLUSTER);
	/* The preferred area to its last slot before the next: a worse fit in RAM beats disk. */
	for (unsigned i = first_area; i < sf->nr_areas && got < nr; i++) {
		for (unsigned o = SWAP_NR_ORDERS; o-- > 0;) {
			unsigned want = (nr - got) >> swap_order(o);

			if (want)
				got += area_alloc(sf->areas[i], cpu, o, want, true, out + got)
				       << swap_order(o);
		}
	}
	return got;
}

unsigned swap_alloc_of_one(struct swapfile *sf, unsigned first_area, unsigned cpu, unsigned nr,
			   swp_entry_t *out)
{
	unsigned got = swap_alloc_pages(sf, first_area, cpu, nr, out), k = 0;

	while (k < got && swp_type(out[k]) == swp_type(out[0]))
		k++;
	for (unsigned j = k; j < got; j++)
		swapcache_free(sf, out[j], 1);
	return k;
}
