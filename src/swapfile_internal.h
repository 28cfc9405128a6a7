/* SPDX-License-Identifier: MIT */
/*
 * swapfile_internal.h - what swapfile.c (map, references, cache flag, free), swap_alloc.c (cluster
 * lists, allocation) and swap_area.c (areas, groups, figures, self-check) share.  Tests include it
 * too, to compare cluster membership.
 *
 * Lock order: cluster lock, then area lock.
 *
 *  - A cluster's lock protects its 512 bytes of swap_map (or the one that stands for them), its
 *    overflow table, its counts, its order and *which* list it is on.
 *  - The area's lock protects the links of the lists and nr_touched, nothing else, and is held for
 *    a few instructions.  A cluster changes lists with both locks held.
 *  - Who needs a cluster from a list holds the area's lock first, so may only *try* a cluster's
 *    lock there; what is found busy is remembered, the area's lock dropped, and the cluster locked
 *    in the right order and looked at anew.
 *  - No two cluster locks are ever held together.
 *  - With a cluster lock held we call: store invalidate, the group uncharge and arena_alloc/free.
 *    These must not come back here.  cache_drop is called without any lock.
 *
 * A current cluster of a CPU is a hint, not ownership: every cluster that was ever used is on
 * exactly one list, decided by its contents alone.
 *
 *      count == 0          FREE     (or, never used so far: no list, index >= nr_touched)
 *      count == 512        FULL     (a number; no links)
 *      otherwise           NONFULL of its order, or FRAG once a look through all of it found no
 *                          free aligned run of 16; a freed slot brings it back to NONFULL
 */
#ifndef PS_SWAPFILE_INTERNAL_H
#define PS_SWAPFILE_INTERNAL_H

#include "arena.h"
#include "swapfile.h"

#define SWAP_COUNT_MASK 0x3f
#define SWAP_FRAG_ORDER 4 /* smallest order above 0: what "fragmented" is about */

enum swap_list {
	SWAP_LIST_NONE, /* never used */
	SWAP_LIST_FREE,
	SWAP_LIST_NONFULL, /* one for each order index */
	SWAP_LIST_FRAG = SWAP_LIST_NONFULL + SWAP_NR_ORDERS,
	SWAP_LIST_FULL,
	SWAP_NR_LISTS,
};

/*
 * One for each 512 slots. A cache line, so that locks of neighbours do not share one.
 *
 * While all 512 slots have the same map byte the cluster is *uniform*: the byte is kept here, and
 * its part of swap_map means nothing.  A run of order 9 stays so from its allocation to its free,
 * which then touches this one line and not the eight of the map.  A change of some of the slots
 * writes the map out first (swap_map_materialise); the cluster is uniform again when it is empty,
 * as it is before its first use.
 */
struct swap_cluster_info {
	struct ps_mutex lock;
	u16 count;	/* slots in use: map byte not 0 */
	u16 nr_cont;	/* slots with SWAP_CONT; none while uniform */
	u8 order_index; /* of the first allocation since it was last empty */
	u8 list;	/* enum swap_list */
	bool in_map;	/* not uniform: its bytes are in swap_map */
	u8 byte;	/* of each slot, while uniform */
	bool map_used;	/* has ever been in_map: its part of swap_map takes memory */
	struct swap_cluster_info *next, *prev;
	u32 *cont; /* 512 counts in excess of SWAP_MAP_MAX, while nr_cont > 0 */
} __attribute__((aligned(PS_CACHELINE)));
_Static_assert(sizeof(struct swap_cluster_info) == PS_CACHELINE, "one line for a cluster");

struct swap_cluster_list {
	struct swap_cluster_info *first, *last; /* none of the full list */
	u64 nr;
};

/* Where a CPU goes on allocating: (cluster + 1) << 16 | next slot in it; 0: nowhere. */
struct swap_cpu {
	_Atomic u64 current[SWAP_NR_ORDERS];
} __attribute__((aligned(PS_CACHELINE)));

struct swap_info {
	u8 *swap_map; /* of clusters that are not uniform; swap_map_byte() */
	struct swap_cluster_info *clusters;
	_Atomic(u16 *) owner; /* group of each slot; NULL while groups are disabled */
	u16 *owner_table;     /* the same, kept (and all zero) once they are disabled again */
	struct store *store;
	u64 nr_slots, nr_clusters;
	unsigned type; /* index in swapfile.areas */

	struct ps_mutex lock __attribute__((aligned(PS_CACHELINE)));
	u64 nr_touched; /* clusters below this have been used */
	struct swap_cluster_list lists[SWAP_NR_LISTS];

	_Atomic u64 slots_used __attribute__((aligned(PS_CACHELINE)));
	_Atomic u64 nr_cont_tables;
	_Atomic u64 nr_map_used; /* clusters that have map_used */
	struct swap_cpu cpus[SWAP_MAX_CPUS];
};

#define SWAP_CONT_BYTES (SWAPFILE_CLUSTER * sizeof(u32))

static inline unsigned swap_order(unsigned order_index)
{
	static const u8 orders[SWAP_NR_ORDERS] = { 0, 4, 9 };

	return orders[order_index];
}

static inline struct swap_cluster_info *swap_cluster(struct swap_info *si, u64 slot)
{
	return &si->clusters[slot / SWAPFILE_CLUSTER];
}

static inline u64 swap_cluster_first(struct swap_info *si, struct swap_cluster_info *ci)
{
	return (u64)(ci - si->clusters) * SWAPFILE_CLUSTER;
}

/* Its part of swap_map, whether that counts (in_map) or not. */
static inline u8 *swap_cluster_map(struct swap_info *si, struct swap_cluster_info *ci)
{
	return si->swap_map + swap_cluster_first(si, ci);
}

/* The map byte of a slot, wherever it is kept. Its cluster is locked, or nothing runs. */
static inline u8 swap_map_byte(struct swap_info *si, u64 slot)
{
	struct swap_cluster_info *ci = swap_cluster(si, slot);

	return ci->in_map ? si->swap_map[slot] : ci->byte;
}

/* The area of an entry; NULL when the entry names none, or slots past its end. */
static inline struct swap_info *swap_entry_area(struct swapfile *sf, swp_entry_t e, u64 nr)
{
	struct swap_info *si;

	if (unlikely(!(e.val & SWP_VALID) || swp_type(e) >= sf->nr_areas))
		return NULL;
	si = sf->areas[swp_type(e)];
	if (unlikely(swp_offset(e) >= si->nr_slots || nr > si->nr_slots - swp_offset(e)))
		return NULL;
	return si;
}

/*
 * Wide compares of the map: what is true of nr slots is asked 16 bytes at a time.  Vector
 * extensions of the compiler, so SSE2 or NEON and no intrinsics.
 */
typedef u8 map_vec __attribute__((vector_size(16)));
#define MAP_VEC_SPLAT(b) ((map_vec){ b, b, b, b, b, b, b, b, b, b, b, b, b, b, b, b })

static inline map_vec map_load(const u8 *p)
{
	map_vec v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline bool map_vec_any(map_vec v)
{
	u64 w[2];

	memcpy(w, &v, sizeof(w));
	return w[0] | w[1];
}

/* The bits that some of the nr bytes have, and those that all have. */
static inline void map_bits(const u8 *map, unsigned nr, u8 *some, u8 *all)
{
	u64 s[2], a[2];

	if (nr < sizeof(map_vec)) {
		*some = 0;
		*all = 0xff;
		for (unsigned i = 0; i < nr; i++) {
			*some |= map[i];
			*all &= map[i];
		}
		return;
	}
	/* The last vector may overlap the one before: harmless for or and and. */
	map_vec vs = map_load(map + nr - sizeof(map_vec)), va = vs;

	for (unsigned i = 0; i + sizeof(map_vec) <= nr; i += sizeof(map_vec)) {
		map_vec v = map_load(map + i);

		vs |= v;
		va &= v;
	}
	memcpy(s, &vs, sizeof(s));
	memcpy(a, &va, sizeof(a));
	s[0] |= s[1];
	a[0] &= a[1];
	for (unsigned shift = 32; shift >= 8; shift /= 2) {
		s[0] |= s[0] >> shift;
		a[0] &= a[0] >> shift;
	}
	*some = (u8)s[0];
	*all = (u8)a[0];
}

/* Is there a byte b with (b & mask) == want among the nr? */
static inline bool map_has(const u8 *map, unsigned nr, u8 mask, u8 want)
{
	map_vec m = MAP_VEC_SPLAT(mask), w = MAP_VEC_SPLAT(want), hit;

	if (nr < sizeof(map_vec)) {
		for (unsigned i = 0; i < nr; i++) {
			if ((map[i] & mask) == want)
				return true;
		}
		return false;
	}
	hit = (map_vec)((map_load(map + nr - sizeof(map_vec)) & m) == w);
	for (unsigned i = 0; i + sizeof(map_vec) <= nr; i += sizeof(map_vec))
		hit |= (map_vec)((map_load(map + i) & m) == w);
	return map_vec_any(hit);
}

/* swap_alloc.c: clusters. All with the cluster's lock held. */

/* The slots' bytes are going to differ: from now on they are in swap_map. Returns where. */
u8 *swap_map_materialise(struct swap_info *si, struct swap_cluster_info *ci);
/* nr slots of the cluster became free: counts, and the list that follows from them. Empty, it is
 * uniform, so the map bytes of its last slots need not be set to 0 before. */
void swap_cluster_put(struct swap_info *si, struct swap_cluster_info *ci, unsigned nr);
/* Index of the first free aligned run of 2^order slots at or after `from`; 512: none. */
unsigned swap_find_free(const u8 *map, unsigned from, unsigned order);

/* swap_area.c: maps the owner table of an area that has none. 0 or -ENOMEM. */
int swap_area_enable_groups(struct swap_info *si);

#endif
