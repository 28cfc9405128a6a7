/* SPDX-License-Identifier: MIT */
/*
 * zap.h - forget what pswap keeps of a range whose contents are gone: unmap, DONTNEED, truncate,
 * exit.  Whole-2 MiB entries are freed in one step, tables by runs (swap_pte_batch).
 */
#ifndef PS_ZAP_H
#define PS_ZAP_H

#include "types.h"

#define ZAP_KEEP_GUARDS 1 /* DONTNEED leaves guard markers in place */
#define ZAP_KEEP_PRESENT 2 /* resident pages stay (MADV_FREE, or a caller that drops them later) */

/* Page-aligned range. The gate of mm is held exclusively (nothing is being moved in or out). */
void zap_range(struct ps_mm *mm, u64 start, u64 end, unsigned flags);

/* Moves what is known of [from, from + len) to `to`, as mremap did with the pages. Pages in the
 * swap cache are written to slots. Gate held exclusively. */
void zap_remap(struct ps_ctx *ctx, struct ps_mm *mm, u64 from, u64 to, u64 len);

#endif
