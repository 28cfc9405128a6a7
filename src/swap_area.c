/* SPDX-License-Identifier: MIT */
/*
 * swap_area.c - life of an area, owners of slots, figures, and the self-check.
 *
 * The tables of an area are reserved for all its slots and touched from the front as clusters are
 * used, so a large area costs address space only.
 */
#include "swapfile_internal.h"

/* A table that is used from its front: huge pages would make the first byte of it cost 2 MiB. */
static void *map_table(size_t size)
{
	void *p = arena_map(size);

	if (p)
		sys_madvise(p, ALIGN_UP(size, PAGE_SIZE), MADV_NOHUGEPAGE);
	return p;
}

static void area_destroy(struct swap_info *si)
{
	for (u64 c = 0; si->clusters && c < si->nr_touched; c++)
		arena_free(si->clusters[c].cont, SWAP_CONT_BYTES);
	arena_unmap(si->swap_map, si->nr_slots);
	arena_unmap(si->clusters, si->nr_clusters * sizeof(si->clusters[0]));
	arena_unmap(si->owner_table, si->nr_slots * sizeof(u16));
	arena_free(si, sizeof(*si));
}

int swapfile_add_area(struct swapfile *sf, struct store *st)
{
	struct swap_info *si;

	if (st->nr_slots == 0 || st->nr_slots % SWAPFILE_CLUSTER ||
	    st->nr_slots > 1ULL << SWP_TYPE_SHIFT)
		return -EINVAL;
	if (sf->nr_areas == MAX_SWAPFILES)
		return -ENOSPC;
	si = arena_alloc(sizeof(*si));
	if (!si)
		return -ENOMEM;
	ps_lock_set_rank(&si->lock, RANK_AREA);
	si->store = st;
	si->nr_slots = st->nr_slots;
	si->nr_clusters = st->nr_slots / SWAPFILE_CLUSTER;
	si->type = sf->nr_areas;
	si->swap_map = map_table(si->nr_slots);
	si->clusters = map_table(si->nr_clusters * sizeof(si->clusters[0]));
	if (!si->swap_map || !si->clusters ||
	    (relaxed_load(&sf->groups) && swap_area_enable_groups(si))) {
		area_destroy(si);
		return -ENOMEM;
	}
	sf->areas[sf->nr_areas++] = si;
	return 0;
}

u64 swapfile_close(struct swapfile *sf)
{
	u64 used = 0;

	for (unsigned i = 0; i < sf->nr_areas; i++) {
		used += relaxed_load(&sf->areas[i]->slots_used);
		area_destroy(sf->areas[i]);
		sf->areas[i] = NULL;
	}
	sf->nr_areas = 0;
	return used;
}

struct store *swap_store(struct swapfile *sf, swp_entry_t e)
{
	struct swap_info *si = swap_entry_area(sf, e, 1);

	return si ? si->store : NULL;
}

/* ---- groups ---- */

int swap_area_enable_groups(struct swap_info *si)
{
	int ret = 0;

	ps_mutex_lock(&si->lock);
	if (!si->owner_table)
		si->owner_table = map_table(si->nr_slots * sizeof(u16));
	/* Slots used so far are of group 0, as the zeroed table says. */
	if (si->owner_table)
		atomic_store_explicit(&si->owner, si->owner_table, memory_order_release);
	else
		ret = -ENOMEM;
	ps_mutex_unlock(&si->lock);
	return ret;
}

int swapfile_enable_groups(struct swapfile *sf)
{
	for (unsigned i = 0; i < sf->nr_areas; i++) {
		int ret = swap_area_enable_groups(sf->areas[i]);

		if (ret)
			return ret;
	}
	relaxed_store(&sf->groups, true);
	return 0;
}

void swapfile_disable_groups(struct swapfile *sf)
{
	relaxed_store(&sf->groups, false);
	for (unsigned i = 0; i < sf->nr_areas; i++) {
		struct swap_info *si = sf->areas[i];

		if (!relaxed_load(&si->owner))
			continue;
		atomic_store(&si->owner, NULL);
		/* The mapping stays: who has the pointer still reads, and at most writes, group 0.
		 */
		sys_madvise(si->owner_table, ALIGN_UP(si->nr_slots * sizeof(u16), PAGE_SIZE),
			    MADV_DONTNEED);
	}
}

unsigned swap_group_change(struct swapfile *sf, swp_entry_t e, unsigned nr, u16 from, u16 to)
{
	struct swap_info *si = swap_entry_area(sf, e, nr);
	u16 *owner = si ? atomic_load_explicit(&si->owner, memory_order_acquire) : NULL;
	struct swap_cluster_info *ci;
	unsigned n = 0;

	if (!owner)
		return 0;
	ci = swap_cluster(si, swp_offset(e));
	owner += swp_offset(e);
	/* Who frees a slot meanwhile takes it off the group that it is of. */
	ps_mutex_lock(&ci->lock);
	for (unsigned i = 0; i < nr; i++) {
		if (!swap_map_byte(si, swp_offset(e) + i) ||
		    __atomic_load_n(&owner[i], __ATOMIC_RELAXED) != from)
			continue;
		__atomic_store_n(&owner[i], to, __ATOMIC_RELAXED);
		n++;
	}
	ps_mutex_unlock(&ci->lock);
	relaxed_add(&sf->owner_lookups, nr);
	return n;
}

u64 swap_group_replace(struct swapfile *sf, u16 from, u16 to)
{
	u64 n = 0, touched;

	for (unsigned i = 0; i < sf->nr_areas; i++) {
		struct swap_info *si = sf->areas[i];

		ps_mutex_lock(&si->lock);
		touched = si->nr_touched;
		ps_mutex_unlock(&si->lock);
		for (u64 c = 0; c < touched; c++)
			n += swap_group_change(sf, swp_entry(i, c * SWAPFILE_CLUSTER),
					       SWAPFILE_CLUSTER, from, to);
	}
	return n;
}

void swap_group_count(struct swapfile *sf, s64 *n, unsigned nr)
{
	for (unsigned i = 0; i < sf->nr_areas; i++) {
		struct swap_info *si = sf->areas[i];
		u16 *owner = relaxed_load(&si->owner);

		for (u64 s = 0; owner && s < si->nr_touched * SWAPFILE_CLUSTER; s++)
			if (swap_map_byte(si, s) && owner[s] < nr)
				n[owner[s]]++;
	}
}

void swap_group_record(struct swapfile *sf, swp_entry_t e, unsigned nr, u16 group)
{
	struct swap_info *si = swap_entry_area(sf, e, nr);
	u16 *owner = si ? atomic_load_explicit(&si->owner, memory_order_acquire) : NULL;

	if (!owner)
		return;
	for (unsigned i = 0; i < nr; i++)
		__atomic_store_n(&owner[swp_offset(e) + i], group, __ATOMIC_RELAXED);
}

u16 swap_group_lookup(struct swapfile *sf, swp_entry_t e)
{
	struct swap_info *si = swap_entry_area(sf, e, 1);
	u16 *owner = si ? atomic_load_explicit(&si->owner, memory_order_acquire) : NULL;

	if (!owner)
		return 0;
	relaxed_add(&sf->owner_lookups, 1);
	return __atomic_load_n(&owner[swp_offset(e)], __ATOMIC_RELAXED);
}

/* ---- figures ---- */

void swapfile_stat(struct swapfile *sf, struct swapfile_stat *st)
{
	*st = (struct swapfile_stat){
		.batch_frees = relaxed_load(&sf->batch_frees),
		.cluster_frees = relaxed_load(&sf->cluster_frees),
		.entry_frees = relaxed_load(&sf->entry_frees),
		.bad_frees = relaxed_load(&sf->bad_frees),
		.owner_lookups = relaxed_load(&sf->owner_lookups),
		.split_batches = relaxed_load(&sf->split_batches),
	};
	for (unsigned i = 0; i < sf->nr_areas; i++) {
		struct swap_info *si = sf->areas[i];
		u64 touched;

		ps_mutex_lock(&si->lock);
		touched = si->nr_touched;
		ps_mutex_unlock(&si->lock);
		st->slots += si->nr_slots;
		st->slots_used += relaxed_load(&si->slots_used);
		st->metadata_bytes += sizeof(*si);
		st->metadata_bytes += relaxed_load(&si->nr_cont_tables) * SWAP_CONT_BYTES;
		/* At most: clusters that have been in the map may share a page of it. */
		st->metadata_bytes += MIN(relaxed_load(&si->nr_map_used) * PAGE_SIZE,
					  ALIGN_UP(touched * SWAPFILE_CLUSTER, PAGE_SIZE));
		st->metadata_bytes += ALIGN_UP(touched * sizeof(si->clusters[0]), PAGE_SIZE);
		if (relaxed_load(&si->owner))
			st->metadata_bytes +=
				ALIGN_UP(touched * SWAPFILE_CLUSTER * sizeof(u16), PAGE_SIZE);
	}
}

void swapfile_after_fork(struct swapfile *sf)
{
	for (unsigned i = 0; i < sf->nr_areas; i++) {
		struct swap_info *si = sf->areas[i];

		relaxed_store(&si->lock.word, 0);
		/* Only those that are held, so as not to copy the whole table for the child. */
		for (u64 c = 0; c < si->nr_touched; c++) {
			if (ps_mutex_is_locked(&si->clusters[c].lock))
				relaxed_store(&si->clusters[c].lock.word, 0);
		}
	}
}

/* ---- self-check ---- */

/* Checks one cluster's map; *used and *cont: slots in use, slots whose count overflows. */
static const char *check_map(struct swap_info *si, struct swap_cluster_info *ci, unsigned *used,
			     unsigned *cont)
{
	u64 first = swap_cluster_first(si, ci);
	u16 *owner = relaxed_load(&si->owner);

	*used = *cont = 0;
	for (unsigned i = 0; i < SWAPFILE_CLUSTER; i++) {
		u32 over = ci->cont ? ci->cont[i] : 0;
		u8 byte = swap_map_byte(si, first + i);

		*used += byte != 0;
		*cont += (byte & SWAP_CONT) != 0;
		if ((byte & SWAP_COUNT_MASK) > SWAP_MAP_MAX)
			return "swap_map: count over SWAP_MAP_MAX";
		if (byte & SWAP_CONT && (byte & SWAP_COUNT_MASK) != SWAP_MAP_MAX)
			return "swap_map: SWAP_CONT on a count that is not full";
		if (!(byte & SWAP_CONT) != !over)
			return "overflow table and SWAP_CONT disagree";
		if (owner && !byte && owner[first + i])
			return "free slot has an owner";
	}
	return NULL;
}

static const char *check_cluster(struct swap_info *si, struct swap_cluster_info *ci, u64 *total)
{
	unsigned used, cont;
	const char *wrong = check_map(si, ci, &used, &cont);

	if (wrong)
		return wrong;
	*total += used;
	if (ci->count != used)
		return "cluster count differs from its map";
	if (ci->nr_cont != cont)
		return "number of overflowed counts differs from the map";
	if (ci->in_map && !used)
		return "empty cluster is not uniform";
	if (ci->in_map && !ci->map_used)
		return "cluster uses the map and does not know it";
	if (ps_mutex_is_locked(&ci->lock))
		return "cluster lock is held";
	if (ci->order_index >= SWAP_NR_ORDERS)
		return "cluster order out of range";
	if ((u64)(ci - si->clusters) >= si->nr_touched) {
		if (used || ci->list != SWAP_LIST_NONE || ci->cont)
			return "cluster that was never used has something in it";
		return NULL;
	}
	switch (ci->list) {
	case SWAP_LIST_FREE:
		return used ? "cluster on the free list is in use" : NULL;
	case SWAP_LIST_FULL:
		return used < SWAPFILE_CLUSTER ? "cluster on the full list is not full" : NULL;
	case SWAP_LIST_FRAG:
		if (swap_order(ci->order_index) < SWAP_FRAG_ORDER)
			return "order 0 cluster on the frag list";
		if (ci->in_map &&
		    swap_find_free(swap_cluster_map(si, ci), 0, SWAP_FRAG_ORDER) < SWAPFILE_CLUSTER)
			return "cluster on the frag list has a free aligned run";
		break;
	default:
		if (ci->list != SWAP_LIST_NONFULL + ci->order_index)
			return "cluster on the list of another order";
		break;
	}
	if (used == 0 || used == SWAPFILE_CLUSTER)
		return "empty or full cluster on a list between";
	return NULL;
}

/* full: clusters that say they are on the full list. */
static const char *check_lists(struct swap_info *si, u64 full)
{
	u64 listed = 0;

	for (unsigned l = 0; l < SWAP_NR_LISTS; l++) {
		struct swap_cluster_info *prev = NULL;
		u64 nr = l == SWAP_LIST_FULL ? full : 0;

		for (struct swap_cluster_info *ci = si->lists[l].first; ci; ci = ci->next) {
			if (ci->list != l)
				return "cluster is linked on a list that it does not name";
			if (ci->prev != prev)
				return "list links disagree";
			if (++nr > si->nr_touched)
				return "list is circular";
			prev = ci;
		}
		if (si->lists[l].last != prev)
			return "last of a list is wrong";
		if (si->lists[l].nr != nr)
			return "length of a list is wrong";
		listed += nr;
	}
	if (listed != si->nr_touched)
		return "a used cluster is on no list";
	return NULL;
}

static bool check_cpus(struct swap_info *si)
{
	for (unsigned cpu = 0; cpu < SWAP_MAX_CPUS; cpu++) {
		for (unsigned o = 0; o < SWAP_NR_ORDERS; o++) {
			u64 cur = relaxed_load(&si->cpus[cpu].current[o]);

			if (cur >> 16 > si->nr_touched || (cur & 0xffff) >= SWAPFILE_CLUSTER)
				return false;
		}
	}
	return true;
}

const char *swapfile_check(struct swapfile *sf)
{
	for (unsigned i = 0; i < sf->nr_areas; i++) {
		struct swap_info *si = sf->areas[i];
		const char *wrong;
		u64 total = 0, tables = 0, map_used = 0, full = 0;

		if (si->type != i)
			return "area does not know its number";
		if (ps_mutex_is_locked(&si->lock))
			return "area lock is held";
		if (si->nr_touched > si->nr_clusters)
			return "more clusters used than there are";
		for (u64 c = 0; c < si->nr_clusters; c++) {
			wrong = check_cluster(si, &si->clusters[c], &total);
			if (wrong)
				return wrong;
			if (!si->clusters[c].nr_cont != !si->clusters[c].cont)
				return "overflow table without need, or none with need";
			tables += si->clusters[c].cont != NULL;
			map_used += si->clusters[c].map_used;
			full += si->clusters[c].list == SWAP_LIST_FULL;
		}
		if (total != relaxed_load(&si->slots_used))
			return "slots in use differ from the maps";
		if (tables != relaxed_load(&si->nr_cont_tables))
			return "number of overflow tables is wrong";
		if (map_used != relaxed_load(&si->nr_map_used))
			return "number of clusters that used the map is wrong";
		wrong = check_lists(si, full);
		if (wrong)
			return wrong;
		if (!check_cpus(si))
			return "current cluster of a CPU is out of range";
	}
	return NULL;
}
