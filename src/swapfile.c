/* SPDX-License-Identifier: MIT */
/*
 * swapfile.c - the swap map: references, the cache flag, and the two ways to free slots.
 *
 * One byte a slot.  Low six bits: how many page-table entries refer to it, up to SWAP_MAP_MAX; with
 * SWAP_CONT the cluster's overflow table holds the rest.  SWAP_HAS_CACHE: somebody owns the slot's
 * data just now.  A byte of 0 is a free slot, so "cache only" (count 0, flag set) is in use.
 *
 * Where the bytes are: in swap_map, or all 512 of a cluster in one (swapfile_internal.h).  What is
 * asked or done of a run goes through a struct map_run, which is one byte then, so that both cases
 * are one piece of code.
 *
 * Freeing a run of slots of one cluster that have one reference each costs one lock, one wide
 * compare, one group uncharge, one store invalidate and one change of the cluster
 * (try_batch_swap_entries_free); a run of slots that are all shared costs less.  Everything else,
 * and all runs when free_mode is SWAP_FREE_ENTRY, goes slot by slot (swap_entries_put).  Both leave
 * the same state: that is what tests/fuzz_swapfile.c checks, and why the second path stays.
 *
 * Locks: swapfile_internal.h.
 */
#include "log.h"
#include "swapfile_internal.h"

/* nr slots of one cluster, resolved. */
struct swap_range {
	struct swap_info *si;
	struct swap_cluster_info *ci;
	u64 slot;
	unsigned nr;
};

/* The bytes of a run: nr of them, each of which stands for `each` slots. */
struct map_run {
	u8 *map;
	unsigned nr, each;
};

/* Slots of one cluster. */
struct slot_set {
	u64 bits[SWAPFILE_CLUSTER / 64];
};

static bool crosses_cluster(u64 slot, unsigned nr)
{
	return slot % SWAPFILE_CLUSTER + nr > SWAPFILE_CLUSTER;
}

/* False when the slots are not all in one cluster of an area. */
static bool swap_range(struct swapfile *sf, swp_entry_t e, unsigned nr, struct swap_range *r)
{
	r->si = swap_entry_area(sf, e, nr);
	if (unlikely(!r->si || nr == 0 || crosses_cluster(swp_offset(e), nr)))
		return false;
	r->slot = swp_offset(e);
	r->ci = swap_cluster(r->si, r->slot);
	r->nr = nr;
	return true;
}

/* Bytes to look at. Cluster locked, as for all that follows. */
static struct map_run map_peek(const struct swap_range *r)
{
	if (!r->ci->in_map)
		return (struct map_run){ &r->ci->byte, 1, r->nr };
	return (struct map_run){ r->si->swap_map + r->slot, r->nr, 1 };
}

/* Bytes to change: the one of a uniform cluster only for all its slots. */
static struct map_run map_edit(const struct swap_range *r)
{
	if (r->nr < SWAPFILE_CLUSTER)
		swap_map_materialise(r->si, r->ci);
	return map_peek(r);
}

static void report_bad(struct swapfile *sf, const char *what, swp_entry_t e, unsigned nr)
{
	relaxed_add(&sf->bad_frees, 1);
	ps_log("swap: %s: area %u, slot %u, %u slots", what, (u64)swp_type(e), swp_offset(e),
	       (u64)nr);
}

static void set_add(struct slot_set *set, unsigned i, unsigned nr)
{
	for (unsigned n; nr; i += n, nr -= n) {
		n = MIN(nr, 64 - i % 64);
		set->bits[i / 64] |= ~0ULL >> (64 - n) << i % 64;
	}
}

static bool set_has(const struct slot_set *set, unsigned i)
{
	return set->bits[i / 64] >> i % 64 & 1;
}

/* How many bytes from map[0] on, at most nr, equal map[0]. */
static unsigned same_bytes(const u8 *map, unsigned nr)
{
	map_vec first = MAP_VEC_SPLAT(map[0]);
	unsigned n = 0;

	while (n + sizeof(first) <= nr && !map_vec_any(map_load(map + n) ^ first))
		n += sizeof(first);
	while (n < nr && map[n] == map[0])
		n++;
	return n;
}

/* ---- references ---- */

static u32 *slot_cont(struct swap_info *si, struct swap_cluster_info *ci, u64 slot)
{
	return &ci->cont[slot - swap_cluster_first(si, ci)];
}

static u64 slot_count(struct swap_info *si, struct swap_cluster_info *ci, u64 slot)
{
	u8 b = swap_map_byte(si, slot);

	return (b & SWAP_COUNT_MASK) + (b & SWAP_CONT ? (u64)*slot_cont(si, ci, slot) : 0);
}

/* One reference more to the slots of *b: to slot, or to all of a uniform cluster, which no count
 * overflows. The overflow table is there if it is needed. */
static void swap_ref(struct swap_info *si, struct swap_cluster_info *ci, u64 slot, u8 *b)
{
	if ((*b & SWAP_COUNT_MASK) < SWAP_MAP_MAX) {
		++*b;
		return;
	}
	if (!(*b & SWAP_CONT)) {
		*b |= SWAP_CONT;
		ci->nr_cont++;
	}
	++*slot_cont(si, ci, slot);
}

/* One reference less for one slot, whose byte is in the map; the count is not 0. */
static void swap_unref(struct swap_info *si, struct swap_cluster_info *ci, u64 slot, u8 *b)
{
	if (!(*b & SWAP_CONT)) {
		--*b;
		return;
	}
	if (--*slot_cont(si, ci, slot))
		return;
	*b &= (u8)~SWAP_CONT;
	if (--ci->nr_cont)
		return;
	arena_free(ci->cont, SWAP_CONT_BYTES);
	ci->cont = NULL;
	relaxed_sub(&si->nr_cont_tables, 1);
}

/* Makes sure that swap_ref can work on the slots of r, some of which have SWAP_MAP_MAX. */
static int reserve_cont(const struct swap_range *r)
{
	struct swap_cluster_info *ci = r->ci;

	swap_map_materialise(r->si, ci);
	if (!ci->cont) {
		ci->cont = arena_alloc(SWAP_CONT_BYTES);
		if (!ci->cont)
			return -ENOMEM;
		relaxed_add(&r->si->nr_cont_tables, 1);
		return 0;
	}
	for (unsigned i = 0; i < r->nr; i++) {
		if (*slot_cont(r->si, ci, r->slot + i) == UINT32_MAX)
			return -ENOMEM;
	}
	return 0;
}

int swap_duplicate(struct swapfile *sf, swp_entry_t e, unsigned nr)
{
	struct swap_range r;
	struct map_run m;
	int ret = 0;

	if (!swap_range(sf, e, nr, &r))
		return -EINVAL;
	ps_mutex_lock(&r.ci->lock);
	m = map_peek(&r);
	if (map_has(m.map, m.nr, 0xff, 0))
		ret = -EINVAL;
	else if (map_has(m.map, m.nr, SWAP_COUNT_MASK, SWAP_MAP_MAX))
		ret = reserve_cont(&r);
	if (!ret) {
		m = map_edit(&r);
		for (unsigned i = 0; i < m.nr; i++)
			swap_ref(r.si, r.ci, r.slot + i, &m.map[i]);
	}
	ps_mutex_unlock(&r.ci->lock);
	return ret;
}

unsigned swap_count(struct swapfile *sf, swp_entry_t e, bool *has_cache)
{
	struct swap_range r;
	u64 count;
	bool cached;

	if (!swap_range(sf, e, 1, &r)) {
		if (has_cache)
			*has_cache = false;
		return 0;
	}
	ps_mutex_lock(&r.ci->lock);
	count = slot_count(r.si, r.ci, r.slot);
	cached = *map_peek(&r).map & SWAP_HAS_CACHE;
	ps_mutex_unlock(&r.ci->lock);
	if (has_cache)
		*has_cache = cached;
	return (unsigned)MIN(count, UINT32_MAX);
}

bool swap_is_shared(struct swapfile *sf, swp_entry_t e, unsigned nr)
{
	struct swap_range r;
	struct map_run m;
	u8 some, all;

	if (!swap_range(sf, e, nr, &r))
		return false;
	ps_mutex_lock(&r.ci->lock);
	m = map_peek(&r);
	map_bits(m.map, m.nr, &some, &all);
	ps_mutex_unlock(&r.ci->lock);
	return (some & ~SWAP_HAS_CACHE) > 1;
}

/* ---- slots become free ---- */

/*
 * One uncharge for each stretch of slots of one group.  Runs from swap_entry_batch have one owner,
 * so this is one uncharge; a run that somebody put together otherwise must still not be charged to
 * the group of its first slot.  Owners of free slots are 0.
 */
static void swap_uncharge(struct swapfile *sf, struct swap_info *si, u64 slot, unsigned nr)
{
	u16 *owner = atomic_load_explicit(&si->owner, memory_order_acquire);
	unsigned lookups = 0;

	if (!owner) {
		if (sf->uncharge)
			sf->uncharge(sf->ctx, 0, nr);
		return;
	}
	owner += slot;
	for (unsigned i = 0, n; i < nr; i += n) {
		n = 1;
		/* Each equal to the one before it: all the same. */
		if (!memcmp(owner + i, owner + i + 1, (nr - i - 1) * sizeof(*owner)))
			n = nr - i;
		while (i + n < nr && owner[i + n] == owner[i])
			n++;
		lookups++;
		if (sf->uncharge)
			sf->uncharge(sf->ctx, owner[i], n);
	}
	memset(owner, 0, nr * sizeof(*owner));
	relaxed_add(&sf->owner_lookups, lookups);
	if (unlikely(lookups > 1))
		relaxed_add(&sf->split_batches, 1);
}

/* Frees nr slots that are cache only; whoever owned their data is the caller. Cluster locked. */
static void swap_entry_range_free(struct swapfile *sf, struct swap_info *si,
				  struct swap_cluster_info *ci, u64 slot, unsigned nr)
{
	const struct store_ops *ops = si->store->ops;

	ps_debug_assert(swap_map_byte(si, slot) == SWAP_HAS_CACHE);
	ps_debug_assert(ci->in_map ? same_bytes(si->swap_map + slot, nr) == nr
				   : nr == SWAPFILE_CLUSTER);
	swap_uncharge(sf, si, slot, nr);
	if (nr == SWAPFILE_CLUSTER)
		ops->invalidate_cluster(si->store, slot / SWAPFILE_CLUSTER);
	else
		ops->invalidate(si->store, slot, nr);
	if (nr < ci->count)
		memset(si->swap_map + slot, 0, nr);
	swap_cluster_put(si, ci, nr);
}

/* ---- the cache flag ---- */

int swapcache_prepare(struct swapfile *sf, swp_entry_t e, unsigned nr)
{
	struct swap_range r;
	struct map_run m;
	u8 some, all;
	int ret = 0;

	if (!swap_range(sf, e, nr, &r))
		return -EINVAL;
	ps_mutex_lock(&r.ci->lock);
	m = map_peek(&r);
	map_bits(m.map, m.nr, &some, &all);
	if (map_has(m.map, m.nr, 0xff, 0))
		ret = -ENOENT;
	else if (some & SWAP_HAS_CACHE)
		ret = -EEXIST;
	if (!ret) {
		m = map_edit(&r);
		for (unsigned i = 0; i < m.nr; i++)
			m.map[i] |= SWAP_HAS_CACHE;
	}
	ps_mutex_unlock(&r.ci->lock);
	return ret;
}

void swapcache_free(struct swapfile *sf, swp_entry_t e, unsigned nr)
{
	struct swap_range r;
	struct map_run m;
	bool bad = false;

	if (!swap_range(sf, e, nr, &r)) {
		report_bad(sf, "cache flag of a run outside the area or one cluster", e, nr);
		return;
	}
	ps_mutex_lock(&r.ci->lock);
	m = map_peek(&r);
	if (map_has(m.map, m.nr, SWAP_HAS_CACHE, SWAP_HAS_CACHE))
		m = map_edit(&r);
	/* When the last slot goes, the cluster is uniform and m is only what its map was: of the
	 * slots still to come 0. */
	for (unsigned i = 0, n; i < m.nr; i += n) {
		n = same_bytes(m.map + i, m.nr - i);
		if (m.map[i] == SWAP_HAS_CACHE)
			swap_entry_range_free(sf, r.si, r.ci, r.slot + i, n * m.each);
		else if (m.map[i] & SWAP_HAS_CACHE)
			memset(m.map + i, m.map[i] & ~SWAP_HAS_CACHE, n);
		else
			bad = true;
	}
	ps_mutex_unlock(&r.ci->lock);
	if (bad)
		report_bad(sf, "cache flag dropped from a slot that has none", e, nr);
}

/* ---- references dropped ---- */

/* Is every count 1, whatever the cache flag?  *any_cache: does any slot have the flag? */
static bool swap_is_last_map(const u8 *map, unsigned nr, bool *any_cache)
{
	u8 some, all;

	if ((map[0] & ~SWAP_HAS_CACHE) != 1)
		return false;
	map_bits(map, nr, &some, &all);
	/* No bit but the lowest is set anywhere, and that one is set everywhere. */
	*any_cache = some & SWAP_HAS_CACHE;
	return (some & ~SWAP_HAS_CACHE) == 1 && (all & 1);
}

/*
 * A run that is shared throughout (after a fork or a clone) frees nothing: every count just
 * decreases.  False, nothing done: some count is 0 or 1, or overflows.
 */
static bool swap_put_shared(const struct swap_range *r)
{
	struct map_run m = map_peek(r);

	if (map_has(m.map, m.nr, SWAP_COUNT_MASK, 0) || map_has(m.map, m.nr, SWAP_COUNT_MASK, 1) ||
	    map_has(m.map, m.nr, SWAP_CONT, SWAP_CONT))
		return false;
	m = map_edit(r);
	for (unsigned i = 0; i < m.nr; i++)
		m.map[i]--;
	return true;
}

/* The last reference of each slot of a run goes; slots that nobody owns are free then, the others
 * are named in `cached`. */
static void swap_put_last(struct swapfile *sf, const struct swap_range *r, struct slot_set *cached,
			  bool any_cache)
{
	struct map_run m = map_edit(r);

	if (!any_cache) {
		memset(m.map, SWAP_HAS_CACHE, m.nr);
		swap_entry_range_free(sf, r->si, r->ci, r->slot, r->nr);
		return;
	}
	memset(cached, 0, sizeof(*cached));
	for (unsigned i = 0, n; i < m.nr; i += n) {
		bool has_cache = m.map[i] & SWAP_HAS_CACHE;

		n = same_bytes(m.map + i, m.nr - i);
		memset(m.map + i, SWAP_HAS_CACHE, n);
		/* No page is in the cache for these: no owner will come to free them. */
		if (has_cache)
			set_add(cached, i, n * m.each);
		else
			swap_entry_range_free(sf, r->si, r->ci, r->slot + i, n);
	}
}

/*
 * Frees a run in one step.  False: nothing was done, go slot by slot.  True: all references are
 * gone; slots nobody owned are free, and cached names those that are left "cache only" for the
 * reclaim step (which happens without the lock, so a slot may be anything by then).
 */
static bool try_batch_swap_entries_free(struct swapfile *sf, struct swap_info *si, u64 slot,
					unsigned nr, struct slot_set *cached, bool *any_cache)
{
	struct swap_range r = { .si = si, .ci = swap_cluster(si, slot), .slot = slot, .nr = nr };
	struct map_run m;

	if (crosses_cluster(slot, nr))
		return false;
	ps_mutex_lock(&r.ci->lock);
	m = map_peek(&r);
	if (!swap_is_last_map(m.map, m.nr, any_cache)) {
		bool done = swap_put_shared(&r);

		ps_mutex_unlock(&r.ci->lock);
		*any_cache = false;
		return done;
	}
	swap_put_last(sf, &r, cached, *any_cache);
	ps_mutex_unlock(&r.ci->lock);
	relaxed_add(&sf->batch_frees, 1);
	if (nr == SWAPFILE_CLUSTER && !*any_cache)
		relaxed_add(&sf->cluster_frees, 1);
	return true;
}

enum swap_put {
	SWAP_PUT_SHARED, /* others refer to it still */
	SWAP_PUT_FREED,
	SWAP_PUT_CACHED, /* no reference left, its data is owned */
	SWAP_PUT_BAD,	 /* there was none to drop */
};

/*
 * Drops one reference from one slot, with all that one slot needs: a lock, the map, an uncharge, a
 * store invalidate, the cluster's counts.  The baseline that the batch is measured against.
 */
static enum swap_put swap_entry_put(struct swapfile *sf, struct swap_info *si, u64 slot)
{
	struct swap_cluster_info *ci = swap_cluster(si, slot);
	enum swap_put put = SWAP_PUT_SHARED;
	u8 *b = &si->swap_map[slot];

	ps_mutex_lock(&ci->lock);
	if (unlikely(!(swap_map_byte(si, slot) & SWAP_COUNT_MASK))) {
		ps_mutex_unlock(&ci->lock);
		return SWAP_PUT_BAD;
	}
	swap_map_materialise(si, ci);
	swap_unref(si, ci, slot, b);
	if (!*b) {
		*b = SWAP_HAS_CACHE;
		swap_entry_range_free(sf, si, ci, slot, 1);
		put = SWAP_PUT_FREED;
	} else if (*b == SWAP_HAS_CACHE) {
		put = SWAP_PUT_CACHED;
	}
	ps_mutex_unlock(&ci->lock);
	return put;
}

/* Has each of nr slots a reference to drop?  Slots that the caller refers to keep theirs, so the
 * answer holds without the lock unless the caller is wrong. */
static bool run_has_refs(struct swap_info *si, u64 slot, unsigned nr)
{
	for (unsigned n; nr; slot += n, nr -= n) {
		struct swap_range r = { .si = si, .ci = swap_cluster(si, slot), .slot = slot };
		struct map_run m;
		bool bad;

		r.nr = n = MIN(nr, SWAPFILE_CLUSTER - (unsigned)(slot % SWAPFILE_CLUSTER));
		ps_mutex_lock(&r.ci->lock);
		m = map_peek(&r);
		bad = map_has(m.map, m.nr, SWAP_COUNT_MASK, 0);
		ps_mutex_unlock(&r.ci->lock);
		if (bad)
			return false;
	}
	return true;
}

/* Slot by slot, at most up to the end of the cluster. Returns how many slots were bad. */
static unsigned swap_entries_put(struct swapfile *sf, struct swap_info *si, u64 slot, unsigned nr,
				 struct slot_set *cached, bool *any_cache)
{
	unsigned freed = 0, bad = 0;

	for (unsigned i = 0; i < nr; i++) {
		enum swap_put put = swap_entry_put(sf, si, slot + i);

		freed += put == SWAP_PUT_FREED;
		bad += put == SWAP_PUT_BAD;
		if (put != SWAP_PUT_CACHED)
			continue;
		if (!*any_cache)
			memset(cached, 0, sizeof(*cached));
		*any_cache = true;
		set_add(cached, i, 1);
	}
	if (freed)
		relaxed_add(&sf->entry_frees, freed);
	return bad;
}

/* The reclaim step: drops the cached page of each slot in the set, folio by folio. */
static void swap_reclaim_cached(struct swapfile *sf, swp_entry_t e, unsigned nr,
				const struct slot_set *cached)
{
	if (!sf->cache_drop)
		return;
	for (unsigned i = 0, n; i < nr; i += n) {
		swp_entry_t at = { e.val + i };

		n = 1;
		if (!set_has(cached, i))
			continue;
		n = sf->cache_drop(sf->ctx, at);
		/* The cache held the flag of all these slots and we drop it, also from those past
		 * the run, which may still be referred to. */
		if (n)
			swapcache_free(sf, at, n);
		else
			n = 1;
	}
}

void swap_prefetch(struct swapfile *sf, swp_entry_t e)
{
	/* Read without a lock, so it may be anything. */
	struct swap_info *si = swap_entry_area(sf, e, SWAPFILE_CLUSTER);

	if (!si)
		return;
	/* Not its map: most are uniform, and to ask whether this one is would be to wait for it. */
	__builtin_prefetch(swap_cluster(si, swp_offset(e)), 1);
	if (si->store->ops->prefetch)
		si->store->ops->prefetch(si->store, swp_offset(e) / SWAPFILE_CLUSTER);
}

void free_swap_and_cache_nr(struct swapfile *sf, swp_entry_t e, unsigned nr)
{
	struct swap_info *si = swap_entry_area(sf, e, nr);
	u64 slot = swp_offset(e);
	struct slot_set cached;
	bool any_cache = false;

	if (unlikely(!si)) {
		report_bad(sf, "free of a run that ends past the area", e, nr);
		return;
	}
	if (sf->free_mode == SWAP_FREE_BATCH && nr > 1 &&
	    try_batch_swap_entries_free(sf, si, slot, nr, &cached, &any_cache)) {
		if (any_cache)
			swap_reclaim_cached(sf, e, nr, &cached);
		return;
	}
	if (unlikely(nr > 1 && !run_has_refs(si, slot, nr))) {
		report_bad(sf, "free of a slot without references", e, nr);
		return;
	}
	for (unsigned n, bad; nr; slot += n, nr -= n) {
		e = swp_entry(si->type, slot);
		n = MIN(nr, SWAPFILE_CLUSTER - (unsigned)(slot % SWAPFILE_CLUSTER));
		any_cache = false;
		bad = swap_entries_put(sf, si, slot, n, &cached, &any_cache);
		if (unlikely(bad))
			report_bad(sf, "free of slots without references", e, bad);
		if (any_cache)
			swap_reclaim_cached(sf, e, n, &cached);
	}
}

/* How many of nr slots, from the first on, have one owner: a batch is uncharged once. */
static unsigned owner_run(struct swapfile *sf, struct swap_info *si, u64 slot, unsigned nr)
{
	u16 *owner = atomic_load_explicit(&si->owner, memory_order_acquire);
	unsigned same = 1;

	if (likely(!owner))
		return nr;
	while (same < nr && __atomic_load_n(&owner[slot + same], __ATOMIC_RELAXED) ==
				    __atomic_load_n(&owner[slot], __ATOMIC_RELAXED))
		same++;
	relaxed_add(&sf->owner_lookups, MIN(same + 1, nr));
	return same;
}

unsigned swap_entry_batch(struct swapfile *sf, const swp_entry_t *ents, unsigned nr)
{
	u64 slot = swp_offset(ents[0]);
	struct swap_info *si = swap_entry_area(sf, ents[0], 1);
	unsigned max = MIN(nr, SWAPFILE_CLUSTER - (unsigned)(slot % SWAPFILE_CLUSTER)), n = 1;

	if (unlikely(!si))
		return 1;
	/* Consecutive values in one cluster are consecutive slots of one area. */
	while (n < max && ents[n].val == ents[0].val + n)
		n++;
	return owner_run(sf, si, slot, n);
}

void swap_free_runs(struct swapfile *sf, swp_entry_t e, unsigned nr)
{
	struct swap_info *si = swap_entry_area(sf, e, nr);

	for (unsigned n; nr; e.val += n, nr -= n) {
		n = likely(si) ? owner_run(sf, si, swp_offset(e), nr) : nr;
		free_swap_and_cache_nr(sf, e, n);
	}
}
