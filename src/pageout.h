/* SPDX-License-Identifier: MIT */
/* pageout.h - the two halves of a page-out of one extent: pageout.c, page_io.c. */
#ifndef PS_PAGEOUT_H
#define PS_PAGEOUT_H

#include "types.h"

#define PIECE_PAGES 128U /* small pages moved, or written, before looking whether a fault waits */

/* Moves the resident pages of e into a frame (wait: even if someone is at e now). Returns how many;
 * 0 when there are none, or none could be taken. */
unsigned extent_take_out(struct ps_ctx *ctx, struct extent *e, bool wait);

/* Writes the frame of e to a store and drops it. Returns pages freed (0: no frame, or busy and not
 * wait), or -ENOSPC when no store took a page. */
int extent_write_out(struct ps_ctx *ctx, struct extent *e, bool wait);

/*
 * The pages of frame f of e to slots.  A huge page at once, so that it gets a cluster of its own; small
 * ones in pieces, and, unless forced, not all of them when a fault waits for the extent.  0, -ENOSPC or
 * -E2BIG (not forced: does not shrink, and there is only memory to put it to).  *written: pages that
 * have slots now.  e->io held.
 */
int frame_write(struct ps_ctx *ctx, struct extent *e, struct frame *f, bool forced,
		unsigned *written);
/* e has no frame any more; its frame has no live page. e->io held. */
void frame_drop(struct extent *e);

/* Both halves with e->io held by the caller throughout, so that nobody brings a page back meanwhile.
 * Pages that cannot be moved (locked, pinned) stay. 0, or -ENOSPC. For memory of the library. */
int extent_page_out(struct ps_ctx *ctx, struct extent *e);

/* Writes one page to a new slot with one reference. 0 or -ENOSPC. */
int swap_out_page(struct ps_ctx *ctx, const void *page, swp_entry_t *entry);

/* After the frame of e went: on the active list when pages are resident, else on none. e->io held. */
void extent_lru_settle(struct extent *e);

#endif
