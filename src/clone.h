/* SPDX-License-Identifier: MIT */
/*
 * clone.h - a second address range with the contents of a first one, copy on write: what is in
 * memory is written out, and both sides' ptes then name the same slots (swap_map counts above 1).
 * Each reads back its own copy when it is touched.
 */
#ifndef PS_CLONE_H
#define PS_CLONE_H

#include "types.h"

/*
 * Gives [to, to + (end - start)) the contents of [start, end), which is registered.  Nobody knows
 * of the new range yet: it is mapped, no region, not registered.  It lies at the same place of its
 * 2 MiB.  0; -ENOMEM: no memory, or no room in a store; -EIO: a page cannot be read back.  After an
 * error the new range has a part of it: it is to be zapped.  Gate not held.
 */
int clone_range(struct ps_ctx *ctx, struct ps_mm *mm, u64 start, u64 end, u64 to);

/* The step of it that needs no userfaultfd: pages [i, last) of e that have slots are shared with d;
 * in `rest` a bit for each page that is to be copied.  -EIO: one is poisoned.  e->io held, gate
 * held. */
int clone_share(struct ps_ctx *ctx, struct extent *e, struct extent *d, unsigned i, unsigned last,
		u64 rest[PTRS_PER_PMD / 64]);

#endif
