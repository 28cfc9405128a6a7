/* SPDX-License-Identifier: MIT */
/*
 * region.h - the ranges of an address space that are registered with its userfaultfd, and what the
 * program said about them.  A sorted array; neighbours with equal flags of one group merge.  The
 * gate is held exclusively to change it, shared to look.
 */
#ifndef PS_REGION_H
#define PS_REGION_H

#include "types.h"

/* The region of addr, or NULL; and the first region that ends after addr. */
struct region *region_find(struct ps_mm *mm, u64 addr);
struct region *region_after(struct ps_mm *mm, u64 addr);
/* What of the latter lies from addr on, for walks that hold the gate for a look only: takes it. False: none. */
bool region_next(struct ps_mm *mm, u64 addr, u64 *start, u64 *end);

/* Adds [start, end) with flags, replacing what was known of it. -ENOMEM. */
int region_add(struct ps_mm *mm, u64 start, u64 end, u32 flags);
void region_del(struct ps_mm *mm, u64 start, u64 end);
/* Sets and clears flags of what is registered of [start, end). -ENOMEM. */
int region_flags(struct ps_mm *mm, u64 start, u64 end, u32 set, u32 clear);
/* What is registered of [start, end) belongs to a group from now on. -ENOMEM. */
int region_set_group(struct ps_mm *mm, u64 start, u64 end, u16 group);
/* What is registered of group `from`, wherever it is, belongs to `to`. */
void region_replace_group(struct ps_mm *mm, u16 from, u16 to);
/* True when all of [start, end) is registered. */
bool region_covers(struct ps_mm *mm, u64 start, u64 end);
void region_free(struct ps_mm *mm);

/*
 * Registers what is mapped of [start, end) with the userfaultfd, for write faults too once cow.h needs
 * them.  The program may have unmapped a part since it was looked up, and our own memory come there:
 * that does not stay registered.  Nothing of it may come or go meanwhile, because unmapping what is
 * registered raises an event, and waits for it.  0 or -errno.
 */
int region_register(struct ps_mm *mm, u64 start, u64 end);

/*
 * What has come to a part of [start, end) past the hooks, between its being looked up and its being registered,
 * may be shared memory, which can be registered, and whose faults nobody would serve. It is let go. Run mode.
 */
void region_let_go_shared(struct ps_mm *mm, u64 start, u64 end);

#endif
