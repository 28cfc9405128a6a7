/* SPDX-License-Identifier: MIT */
/* fault.h - serving a page fault: first touch, read back from a slot, return from the swap cache. */
#ifndef PS_FAULT_H
#define PS_FAULT_H

#include "types.h"

/*
 * Serves the fault at addr of mm and wakes whoever waits for it.  False: nothing was done and nobody
 * was woken, because a VM event waits to be read; the caller must read it and call again, or wake.
 * pswap.freeze held shared, nothing else.
 */
bool fault_serve(struct ps_ctx *ctx, struct ps_mm *mm, u64 addr, bool wp);

/* Brings back every swapped or cached page of [start, end): for mlock, POPULATE, WILLNEED, fork. 0,
 * or -EIO when a page could not be had (it is poisoned). */
int fault_range(struct ps_ctx *ctx, struct ps_mm *mm, u64 start, u64 end);

/* Copies what the slot of page i of e holds to `page`. e->io held. 0; -EAGAIN: the pte says something
 * else by now, or somebody else is reading the slot; -EIO. */
int fault_read_slot(struct ps_ctx *ctx, struct extent *e, unsigned i, void *page);

/* Returns the pages of e around page i that lie in its frame to the program. e->io held. 0, or not
 * when nothing could be returned now. */
int fault_return_cached(struct ps_ctx *ctx, struct extent *e, unsigned i);

#endif
