/* SPDX-License-Identifier: MIT */
/*
 * account.h - how much memory is in use, and what the limit says of it.
 *
 * In run mode the truth is the kernel's: anonymous resident pages of the process (statm: resident
 * less shared), which holds the program's pages, frames, pool and metadata alike.  In API mode only
 * pswap's own memory counts, so it is summed up from our own counters.  Between two looks the
 * figure moves by what was filled and taken out.
 *
 * Watermarks, from the bottom: reclaim works until `low`, starts at `high`; who needs a page beyond
 * `gate`, a little below the limit, waits.
 */
#ifndef PS_ACCOUNT_H
#define PS_ACCOUNT_H

#include "types.h"

/* Bytes in use now; looks again if the last look is old (max_age_ns). */
s64 account_footprint(struct pswap *ps, u64 max_age_ns);
/* The same, by looking. Also refreshes the gauges in ps->stat and the share of the tree's limit. */
s64 account_refresh(struct pswap *ps);

static inline void account_add(struct pswap *ps, s64 bytes)
{
	relaxed_add(&ps->footprint, bytes);
}

s64 account_high(struct pswap *ps);
s64 account_low(struct pswap *ps);
s64 account_hard(struct pswap *ps);
s64 account_gate(struct pswap *ps); /* who needs a page beyond this waits */

/* Is the tree as a whole near its limit?  Then our share may shrink at any moment. */
bool account_tight(struct pswap *ps);

/* Before a fork, for both sides: all that is resident is shared from now on. */
void account_fork(struct pswap *ps);
void account_fork_done(struct pswap *ps);

/* account_fork.c, of rss bytes that are resident: a fork; how many others are to count after one, by what
 * the kernel says (*exact), or at least. */
void account_forked(struct pswap *ps, s64 rss);
s64 account_shared(struct pswap *ps, s64 rss, bool *exact);

/* Most bytes the pool in memory may have before the next store is preferred. */
u64 account_pool_cap(struct pswap *ps);
/* Bytes of the pool, less what others count of it after a fork. */
u64 account_pool(struct pswap *ps);

#endif
