/* SPDX-License-Identifier: MIT */
/*
 * swapfile.h - swap areas, clusters, the swap map, and the batched free of slots.
 *
 * Words: a *slot* holds one page; 512 slots (2 MiB) are a *cluster*, with its own lock; an *area*
 * is an array of clusters on one store.  swap_map[slot] is a use count in the low six bits and the
 * flag SWAP_HAS_CACHE; a cluster whose slots all have the same byte does without.  Vocabulary and
 * behaviour follow Linux mm/swapfile.c; the code does not.
 */
#ifndef PS_SWAPFILE_H
#define PS_SWAPFILE_H

#include "lock.h"
#include "store.h"

#define SWAPFILE_CLUSTER 512U
#define SWAP_HAS_CACHE 0x40 /* someone in swap_cache, a reader or a writer owns the slot's data */
#define SWAP_MAP_MAX 0x3e   /* largest count in the byte; see SWAP_CONT */
#define SWAP_CONT 0x80	    /* the count continues in the area's overflow table */
#define MAX_SWAPFILES 8
#define SWAP_NR_ORDERS 3 /* orders 0, 4, 9: 4 KiB, 64 KiB, 2 MiB */
#define SWAP_MAX_CPUS 16 /* per-CPU slots for current clusters; cpu arguments are taken modulo */

/* A swap entry: area number and slot. Valid entries are never 0 (bit 63 is set). */
typedef struct {
	u64 val;
} swp_entry_t;

#define SWP_VALID (1ULL << 63)
#define SWP_TYPE_SHIFT 40

static inline swp_entry_t swp_entry(unsigned type, u64 offset)
{
	return (swp_entry_t){ SWP_VALID | (u64)type << SWP_TYPE_SHIFT | offset };
}
static inline unsigned swp_type(swp_entry_t e)
{
	return (e.val >> SWP_TYPE_SHIFT) & 0xff;
}
static inline u64 swp_offset(swp_entry_t e)
{
	return e.val & ((1ULL << SWP_TYPE_SHIFT) - 1);
}

struct swap_info; /* an area; in swapfile.c */

struct swapfile_stat {
	u64 slots, slots_used;
	u64 batch_frees;   /* runs freed in one step */
	u64 cluster_frees; /* of these: whole clusters in one step */
	u64 entry_frees;   /* slots freed one by one */
	u64 bad_frees;	   /* runs refused because they end past the area, or free a free slot */
	u64 owner_lookups; /* times the owning group of a slot was looked up */
	u64 split_batches; /* steps that freed slots of several groups: nobody cut the run */
	u64 metadata_bytes;
};

enum swap_free_mode { SWAP_FREE_BATCH, SWAP_FREE_ENTRY };

struct swapfile {
	struct swap_info *areas[MAX_SWAPFILES]; /* in order of preference */
	unsigned nr_areas;
	enum swap_free_mode free_mode;
	/*
	 * The reclaim step: drop the cached page of a slot that is left "cache only".  Returns the
	 * number of slots (from `entry` on) of the folio that was dropped from the cache, or 0 when
	 * it is busy (its owner will free the slot).  Called without locks.  NULL: nothing is
	 * droppable.
	 *
	 * With n > 0 the SWAP_HAS_CACHE of those n slots (of one cluster) passes to the swap file,
	 * which drops it and frees those whose count is 0; of slots of the folio in front of
	 * `entry` the callback drops it itself (swapcache_free).  As no lock is held, the slot may
	 * have been freed and taken anew since: look it up in the cache, and check with the folio
	 * locked that swap_count is 0.
	 */
	unsigned (*cache_drop)(void *ctx, swp_entry_t entry);
	/* Group uncharge, once a batch; NULL while there is one group.  Group 0: owner never
	 * recorded.  Called with the cluster's lock held: must not come back here. */
	void (*uncharge)(void *ctx, u16 group, unsigned nr);
	void *ctx;
	_Atomic bool groups; /* swapfile_enable_groups was called: later areas record owners too */
	/* counters, relaxed */
	_Atomic u64 batch_frees, cluster_frees, entry_frees, bad_frees, owner_lookups,
		split_batches;
};

/* Adds an area on st with st->nr_slots slots. -EINVAL: not a multiple of 512, or 0, or more than
 * an entry can name; -ENOSPC: too many areas; -ENOMEM. Areas added first are preferred. Not
 * thread-safe. */
int swapfile_add_area(struct swapfile *sf, struct store *st);
/* Frees all areas' tables; the stores stay the caller's. Every slot should be free: returns how
 * many were not. */
u64 swapfile_close(struct swapfile *sf);

struct store *swap_store(struct swapfile *sf, swp_entry_t e);

/*
 * Allocation.  New slots have count 0 and SWAP_HAS_CACHE: the caller owns them, writes them, then
 * gives them a page-table reference (swap_duplicate) and in the end drops the cache flag
 * (swapcache_free).  cpu picks the per-CPU current cluster.  first_area: 0, or the index in
 * areas[] to begin with (a full store is skipped that way).
 */
/* One aligned run of 2^order slots, order 0, 4 or 9 (else -EINVAL); no smaller order is tried.
 * -ENOSPC: no cluster of this or a larger order has such a run (for order 4, clusters that serve
 * order 0 are not searched). */
int swap_alloc_order(struct swapfile *sf, unsigned first_area, unsigned cpu, unsigned order,
		     swp_entry_t *entry);
/* nr single entries (1 .. 512), from as few and as large aligned runs as there are; runs are
 * ascending in out[].  Returns how many were had, 0 when all areas are full. */
unsigned swap_alloc_pages(struct swapfile *sf, unsigned first_area, unsigned cpu, unsigned nr,
			  swp_entry_t *out);
/* The same, all of one area: what one write of its store can take. */
unsigned swap_alloc_of_one(struct swapfile *sf, unsigned first_area, unsigned cpu, unsigned nr,
			   swp_entry_t *out);

/* Adds one reference to each of nr slots of one cluster. 0; -EINVAL when a slot is free or the run
 * is not inside one cluster; -ENOMEM when a count needs the overflow table and there is no memory.
 * Nothing was changed on error. */
int swap_duplicate(struct swapfile *sf, swp_entry_t e, unsigned nr);

/* Takes SWAP_HAS_CACHE on nr slots of one cluster, all or nothing: 0; -EEXIST when one has it
 * already (another thread is at it); -ENOENT when one is free; -EINVAL: not inside one cluster. */
int swapcache_prepare(struct swapfile *sf, swp_entry_t e, unsigned nr);
/* Drops SWAP_HAS_CACHE from nr slots of one cluster that have it; slots whose count is 0 become
 * free (group uncharge, store invalidate, cluster update once for each such run). */
void swapcache_free(struct swapfile *sf, swp_entry_t e, unsigned nr);

/*
 * Drops one page-table reference from each of nr consecutive slots, as SEEDS.md section 1
 * describes; free_mode chooses the batched or the per-entry path.  A run that ends past the area,
 * or has a slot without references, is reported (bad_frees, one log line) and nothing is freed.
 */
void free_swap_and_cache_nr(struct swapfile *sf, swp_entry_t e, unsigned nr);

/* The same for nr consecutive slots that may be of several groups: one call for each run of one. */
void swap_free_runs(struct swapfile *sf, swp_entry_t e, unsigned nr);

/* The use count of a slot and whether it has the cache flag. */
unsigned swap_count(struct swapfile *sf, swp_entry_t e, bool *has_cache);

/* Does one of nr slots of one cluster have more than one reference? */
bool swap_is_shared(struct swapfile *sf, swp_entry_t e, unsigned nr);

/* Asks for what free_swap_and_cache_nr of a whole cluster will read. */
void swap_prefetch(struct swapfile *sf, swp_entry_t e);

/* Groups: owners are recorded only after swapfile_enable_groups (then 2 bytes a slot), which may
 * come at any time: slots used before are of group 0. A slot that is freed is of group 0 again. */
int swapfile_enable_groups(struct swapfile *sf);
void swap_group_record(struct swapfile *sf, swp_entry_t e, unsigned nr, u16 group);
u16 swap_group_lookup(struct swapfile *sf, swp_entry_t e); /* 0 and no look-up when disabled */
/* From now on owners are neither recorded nor looked up. All slots in use must be of group 0, and
 * nobody may be recording. */
void swapfile_disable_groups(struct swapfile *sf);
/* Those of nr slots of one cluster that are of group `from` become `to`'s. Returns how many. */
unsigned swap_group_change(struct swapfile *sf, swp_entry_t e, unsigned nr, u16 from, u16 to);
/* The same for all slots that there are: their group goes. */
u64 swap_group_replace(struct swapfile *sf, u16 from, u16 to);
/* Tests: adds to n[group] the slots of each group below nr, as the owners say. Nothing may run. */
void swap_group_count(struct swapfile *sf, s64 *n, unsigned nr);

/*
 * zap: how many of the nr entries at ents[] form a run: consecutive slots of one area, inside one
 * cluster, of one group.  (nr >= 1; at least 1.)
 */
unsigned swap_entry_batch(struct swapfile *sf, const swp_entry_t *ents, unsigned nr);

void swapfile_stat(struct swapfile *sf, struct swapfile_stat *st);

/* Forgets held locks in a fork's child; see arena_after_fork. */
void swapfile_after_fork(struct swapfile *sf);

/* Tests and debug builds: recomputes every derived fact (cluster counts, list membership, totals)
 * from the maps; returns NULL or what is wrong (static text). Nothing may run meanwhile. */
const char *swapfile_check(struct swapfile *sf);

#endif
