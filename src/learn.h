/* SPDX-License-Identifier: MIT */
/*
 * learn.h - how much to map around a fault.
 *
 * Mapping more wins by 2x to 3x where access is dense and loses by 8x where it is scattered
 * (FACTS), so it is learned for each extent.  The evidence is what is asked for, one page at a time:
 *  - an extent starts a stay in memory at its learned order (0: single pages, 4: 64 KiB, 9: all);
 *  - at order 0 faults are counted for each 64 KiB block: the third makes the block dense and the
 *    rest of it is mapped; enough dense blocks make the extent dense and all of it is mapped.
 *    Faults that follow each other double the window instead;
 *  - a stay that began at order 0 is therefore an unbiased probe.  When the extent leaves memory, its
 *    probe's outcome becomes its order, and moves the engine-wide density, from which extents that
 *    were never probed take their order;
 *  - extents with a learned order above 0 are probed again now and then, more often while probes
 *    elsewhere fail.
 */
#ifndef PS_LEARN_H
#define PS_LEARN_H

#include "types.h"

enum learn_proof { LEARN_UNKNOWN, LEARN_PROBING, LEARN_DENSE, LEARN_SCATTERED };

/* The window [*start, *end) of pages to bring in for a fault at page i of e. e->io held. */
void learn_window(struct ps_ctx *ctx, struct extent *e, unsigned i, u32 region_flags,
		  unsigned *start, unsigned *end);
/* For a first touch: the window to fill with zeros. */
void learn_fill(struct ps_ctx *ctx, struct extent *e, unsigned i, u32 region_flags,
		unsigned *start, unsigned *end);
/* The extent left memory: draw conclusions, choose how the next stay begins. e->io held. */
void learn_out(struct ps_ctx *ctx, struct extent *e);

#endif
