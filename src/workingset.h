/* SPDX-License-Identifier: MIT */
/*
 * workingset.h - refault distance: was what comes back thrown out too early?
 *
 * Each lruvec has a clock that counts the pages that reclaim wrote out of it.  An extent remembers
 * the clock of when its last page went.  When it is asked for again, the difference is how many
 * pages went since, that is, how much longer the list would have had to be for it to have stayed.
 * If the active list is that long, keeping it instead of something there would have saved the read:
 * it belongs to a working set that reclaim keeps throwing out, and is spared once more than others.
 * What comes back later than that is not: it would only push out what is used more often.
 *
 * The idea is that of Linux mm/workingset.c.  Pages that were paged out on request do not count.
 */
#ifndef PS_WORKINGSET_H
#define PS_WORKINGSET_H

#include "types.h"

/* Reclaim wrote n pages of e out. e->io held. */
void workingset_evict(struct extent *e, unsigned n);
/* e is read back. e->io held. */
void workingset_refault(struct extent *e);
/* e is at the end of the active list, and is not to go yet after all. */
bool workingset_spare(struct extent *e);

#endif
