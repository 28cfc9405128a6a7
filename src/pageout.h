/* SPDX-License-Identifier: MIT */
/* pageout.h - the two halves of a page-out of one extent. */
#ifndef PS_PAGEOUT_H
#define PS_PAGEOUT_H

#include "types.h"

/* Moves the resident pages of e into a frame (wait: even if someone is at e now). Returns how many;
 * 0 when there are none, or none could be taken. */
unsigned extent_take_out(struct ps_ctx *ctx, struct extent *e, bool wait);

/* Writes the frame of e to a store and drops it. Returns pages freed (0: no frame, or busy and not
 * wait), or -ENOSPC when no store took a page. */
int extent_write_out(struct ps_ctx *ctx, struct extent *e, bool wait);

/* Writes one page to a new slot with one reference. 0 or -ENOSPC. */
int swap_out_page(struct ps_ctx *ctx, const void *page, swp_entry_t *entry);

/* After the frame of e went: on the active list when pages are resident, else on none. e->io held. */
void extent_lru_settle(struct extent *e);

#endif
