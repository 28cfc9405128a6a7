/* SPDX-License-Identifier: MIT */
/*
 * lru.h - which folio to take out next.  Active: folios with resident pages; inactive: folios whose
 * pages lie in a frame, out of the program's view, waiting to be asked for or written.  There are
 * no accessed bits in user space, so being asked for while inactive is the sign of use.
 *
 * A struct lruvec has one pair of lists: of the root group, of each other group, and of the extents
 * whose pages are of several groups.  Lists change
 * through the batches of folio_batch.h, except that a folio is taken off at once.  All functions
 * are thread-safe; none sleeps or takes another lock than a CPU's batch lock and the lruvec's.
 *
 * docs/decisions/008-folios-and-batches.md says why an entry of a list is 2 MiB of addresses.
 */
#ifndef PS_LRU_H
#define PS_LRU_H

#include "types.h"

void folio_init(struct folio *f, struct lruvec *vec);

/* f has (more) pages: it goes to the head of the active list, unless it is on a list or on its way to
 * one already (a fault on an active folio does not reorder). Its size there follows. */
void folio_add_lru(struct lru *lru, struct folio *f);
/* To the head of the active or inactive list, wherever it was. */
void folio_activate(struct lru *lru, struct folio *f);
void folio_deactivate(struct lru *lru, struct folio *f);
/* To the tail of the inactive list: the next to be written. */
void folio_rotate_tail(struct lru *lru, struct folio *f);
/* Off its list, at once; whatever waits for it in a batch comes to nothing. */
void folio_del_lru(struct folio *f);

/* f belongs to the lists of another group from now on: it goes to the head of the same list there.
 * Who calls sees to it that only one thread at a time does so for f. */
void folio_set_lruvec(struct folio *f, struct lruvec *to);

/* Locks the lruvec of f, whichever that is by then, and returns it. */
struct lruvec *folio_lruvec_lock(struct folio *f);

/* The size of its list follows that of f, which changed without any of the above. */
void folio_recount(struct folio *f);

/* Takes the tail of a list off and moves it to that list's head, so that the caller may look at it
 * without others picking it too; NULL when the list is empty.  Drains all batches first. */
struct folio *lru_rotate(struct lru *lru, struct lruvec *vec, enum lru_list list);

/* Entries, and the pages of all of them. Looked at without the lock. */
static inline u32 lruvec_nr(struct lruvec *vec, enum lru_list list)
{
	return relaxed_load(&vec->nr[list]);
}
static inline u64 lruvec_pages(struct lruvec *vec, enum lru_list list)
{
	return relaxed_load(&vec->nr_pages[list]);
}

/* Where the folio belongs: on that list, or on its way there. */
static inline enum lru_list folio_lru(struct folio *f)
{
	return atomic_load(&f->want);
}

/* For folio_batch.c, with vec->lock held: bring f to where it belongs; its pages are gone. */
void lruvec_apply(struct lruvec *vec, struct folio *f, enum lru_op op);
void lruvec_release(struct lruvec *vec, struct folio *f);

/* In a fork's child, which was made while no operation was half done. */
void lru_after_fork(struct lru *lru);

#endif
