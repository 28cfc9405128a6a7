/* SPDX-License-Identifier: MIT */
/*
 * reclaim.h - making room: take extents out of the program's view (active -> frame), write frames
 * to a store (inactive -> slots), drop them.
 */
#ifndef PS_RECLAIM_H
#define PS_RECLAIM_H

#include "types.h"

/* One step: writes out one inactive extent, or takes out one active extent. Returns the pages that
 * became free, 0 when nothing could be done (*progress tells whether pages moved at all). */
unsigned reclaim_step(struct ps_ctx *ctx, bool *progress);

/* Page out a range now, for MADV_PAGEOUT and COLD (write: also write the frames). Returns 0, or
 * -ENOMEM when a page found no room in any store. Gate not held. */
int reclaim_range(struct ps_ctx *ctx, struct ps_mm *mm, u64 start, u64 end, bool write);

/*
 * Room for `bytes` more: reclaims on the caller's behalf, or waits for the workers, while the limit
 * would be exceeded.  The bytes are reserved until
 * reclaim_unreserve, so that several faults at once do not each take the same room.  Gives up after a while without progress, with one warning: a program that goes
 * on over its limit is better than one that hangs.  Called without locks but freeze.
 */
void reclaim_throttle(struct ps_ctx *ctx, s64 bytes);
static inline void reclaim_unreserve(struct pswap *ps, s64 bytes)
{
	relaxed_sub(&ps->reserved, bytes);
}

/* Nothing may be taken out. */
static inline bool reclaim_is_off(struct pswap *ps)
{
	return relaxed_load(&ps->locked_all) || relaxed_load(&ps->swapoff);
}

/* One step for a group that is full: takes and writes nothing but its own pages. Returns how many went
 * to a store. */
unsigned reclaim_group_step(struct ps_ctx *ctx, struct pswap_group *g, bool *progress);
/* As reclaim_throttle, for a group's limit. */
void reclaim_throttle_group(struct ps_ctx *ctx, struct pswap_group *g, s64 bytes);
static inline void reclaim_unreserve_group(struct pswap_group *g, s64 bytes)
{
	relaxed_sub(&g->reserved, bytes >> PAGE_SHIFT);
}
/* Brings g under its limit, if that can be done. */
void reclaim_group(struct ps_ctx *ctx, struct pswap_group *g);

/* The body of a worker thread. */
void reclaim_worker(struct ps_ctx *ctx);

#endif
