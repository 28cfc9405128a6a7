/* SPDX-License-Identifier: MIT */
/*
 * learn.h - how much to map around a fault.
 *
 * Mapping more wins by 2x to 3x where access is dense and loses by 8x where it is scattered
 * (FACTS), so it is learned for each extent.  Dense means near in space *and* in time: after long
 * enough a scattered program has asked for most pages of a block too, but thousands of faults apart.
 * So the engine has a clock that ticks with each fault, and the evidence is how many ticks lie
 * between faults of one 64 KiB block, asked for one page at a time:
 *
 *  - an extent begins a stay in memory at its learned order: 0 (single pages), 4 (64 KiB), 9 (all);
 *  - order 0: seven faults of a block in a row, each close to the one before, prove it dense and
 *    bring the rest of it; enough blocks in a row prove the extent dense and all of it is mapped.
 *    Faults that follow each other in space double the window instead;
 *  - order 4: blocks come whole, but for one block of each stay, drawn at random, which is a probe
 *    and treated as at order 0.  Blocks asked for close to each other prove the extent dense;
 *  - order 9: the whole extent, but one stay in 16 is a probe that begins at order 0; in more of
 *    them while probes elsewhere fail;
 *  - when the extent leaves memory, what was seen becomes its order: falling is at once, because
 *    an order too high costs 16 or 512 pages a fault, one too low costs a few faults a block.  The
 *    outcome also moves an engine-wide density, from which extents that were never probed take
 *    their order; a walk from one extent into the next inherits it.
 *
 * Figures: docs/decisions/005-learned-fault-around.md.
 */
#ifndef PS_LEARN_H
#define PS_LEARN_H

#include "types.h"

enum learn_proof { LEARN_UNKNOWN, LEARN_PROBING, LEARN_DENSE, LEARN_BLOCKS, LEARN_SCATTERED };

/* The window [*start, *end) of pages to bring in for a fault at page i of e. e->io held. */
void learn_window(struct ps_ctx *ctx, struct extent *e, unsigned i, u32 region_flags,
		  unsigned *start, unsigned *end);
/* Whether the next window may be all of e. A guess, without locks. */
bool learn_may_map_all(struct extent *e);
/* For a first touch: the window to fill with zeros. */
void learn_fill(struct ps_ctx *ctx, struct extent *e, unsigned i, u32 region_flags,
		unsigned *start, unsigned *end);
/* The extent left memory: draw conclusions, choose how the next stay begins. e->io held. */
void learn_out(struct ps_ctx *ctx, struct extent *e);

#endif
