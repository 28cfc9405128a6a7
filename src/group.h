/* SPDX-License-Identifier: MIT */
/*
 * group.h - groups: regions that share a limit of their own.
 *
 * A group is charged for each page of its regions that is in memory (in the program's view or in a
 * frame) and for each slot that one of its pages was written to.  The limit is of the first.  A
 * group that is full is reclaimed from itself; pressure on the engine takes from all groups.
 *
 * Whose a page is, the region says.  The extent has a copy, so that ptes can be changed under
 * extent.lock alone: one number, or 512 where regions of several groups meet in it.  Whose a slot
 * is, the swap file says, and that may differ: a slot that clones share stays charged to the group
 * that wrote it.
 *
 * While there is no group but the root none of this happens: nothing is charged, no owner is stored
 * or looked up, and the code on the way of a fault or an unmap tests one flag.
 */
#ifndef PS_GROUP_H
#define PS_GROUP_H

#include "types.h"

/* The group has no room for a page that is one 2 MiB extent and its frame. */
#define PS_GROUP_LIMIT_MIN MiB(4)

static inline bool groups_on(struct pswap *ps)
{
	return unlikely(relaxed_load(&ps->groups.on));
}

/* ---- groups come and go; ps_groups.lock held, nothing else ---- */

/* A new group with a limit of `limit` bytes. 0; -ENOMEM; -ENOSPC: PS_MAX_GROUPS are in use. */
int group_create(struct pswap *ps, u64 limit, struct pswap_group **group);
/* All that is the group's becomes the root group's. */
void group_delete(struct pswap_group *g);
/* Is g a group of ps that exists? Takes any pointer. */
bool group_valid(struct pswap *ps, const struct pswap_group *g);

/* ---- regions ---- */

/* [start, end) belongs to g (NULL: the root group) from now on: charges, lists and owners of slots
 * follow. Gate held exclusively. -ENOMEM, nothing was changed. */
int group_move_range(struct ps_mm *mm, u64 start, u64 end, struct pswap_group *g);
/* The extents of [start, end) are brought to what the regions say. Gate held exclusively. */
void group_sync_range(struct ps_mm *mm, u64 start, u64 end);
/* Nothing is left of [start, end): extents there may be of fewer groups. Gate held exclusively. */
void group_unmapped(struct ps_mm *mm, u64 start, u64 end);
/* One extent; gate held. For one that is new: it has no pages yet. */
void group_sync(struct extent *e);

/* ---- charges; groups_on ---- */

static inline u16 extent_group(const struct extent *e, unsigned i)
{
	return unlikely(e->groups != NULL) ? e->groups[i] : e->group;
}

/* Pages of e come into memory (by > 0) or leave it: `base` plus the bits that are set. extent.lock
 * held. */
void group_charge_bits(struct extent *e, unsigned base, u64 bits, int by);
/* All pages of e. */
void group_charge_all(struct extent *e, int by);
/* Pages i .. i+nr of e were written to nr slots of one cluster from `entry` on. extent.lock held.
 */
void group_charge_swap(struct extent *e, unsigned i, swp_entry_t entry, unsigned nr);
/* Pages i .. i+nr of e were read back. extent.lock held. */
void group_count_in(struct extent *e, unsigned i, unsigned nr);
/* swapfile.uncharge */
void group_uncharge_swap(void *ctx, u16 group, unsigned nr);

/* ---- lists and limits ---- */

/* A live group that is not the root, by number; or NULL. */
static inline struct pswap_group *group_by_id(struct pswap *ps, unsigned id)
{
	struct pswap_group *g =
		id && id < PS_MAX_GROUPS && groups_on(ps) ? &ps->groups.table[id] : NULL;

	return g && atomic_load(&g->live) ? g : NULL;
}

/* The n-th lruvec that there is: of the root group, of the mixed extents, of each other group. NULL
 * when n is past the last one. */
struct lruvec *group_lruvec(struct pswap *ps, unsigned n);
/* The group of the region at addr, NULL when it is the root. Takes the gate. */
struct pswap_group *group_at(struct ps_mm *mm, u64 addr);

/* Has the group of that number a page in e that could be taken out, or, cached: one that could be
 * written? */
bool group_has_pages(struct extent *e, u16 id, bool cached);

/* Bytes of g's limit that are free of charges and of the reservations of faults; may be < 0. */
static inline s64 group_room(struct pswap_group *g)
{
	return ((s64)relaxed_load(&g->limit) - relaxed_load(&g->resident) -
		relaxed_load(&g->reserved)) *
	       (s64)PAGE_SIZE;
}
/* Workers start when it has less than that left, and stop with twice as much. */
static inline s64 group_slack(struct pswap_group *g)
{
	return (s64)(relaxed_load(&g->limit) / 16 * PAGE_SIZE);
}

/* Tests and debug builds: recomputes every charge from regions, page table and swap file. NULL or
 * what is wrong. Nothing may run meanwhile. */
const char *group_check(struct pswap *ps);

#endif
