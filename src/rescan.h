/* SPDX-License-Identifier: MIT */
/*
 * rescan.h - memory that is resident though no fault of ours made it so: what was there when a program's memory
 * was taken over, what was locked, and what a MADV_FREE past the hooks has left.  Asked of the kernel
 * (/proc/self/pagemap) and put on the LRU lists, or reclaim would never come to it.
 */
#ifndef PS_RESCAN_H
#define PS_RESCAN_H

#include "types.h"

/* What is resident of [start, end), whether in a region or not; guards get their ptes. freeze held
 * shared, no other lock. */
void rescan_range(struct ps_ctx *ctx, u64 start, u64 end);
/* Of all regions; the same. */
void rescan_all(struct ps_ctx *ctx);

/*
 * The event REMOVE does not say whether the pages go (MADV_DONTNEED) or stay until the kernel wants them
 * (MADV_FREE).  When no hook told us either, they are taken for gone, and looked for once the call is over.
 * rescan_later: what e has may be there still.  Gate held exclusively.
 */
void rescan_later(struct extent *e);
/* Looks at those whose time has come. From the first worker's clock; no lock held. */
void rescan_due(struct ps_ctx *ctx);

#endif
