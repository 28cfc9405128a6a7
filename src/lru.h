/* SPDX-License-Identifier: MIT */
/*
 * lru.h - which extent to take out next.  Active: extents with resident pages; inactive: extents
 * whose pages lie in a frame, out of the program's view, waiting to be asked for or written.  There
 * are no accessed bits in user space, so being asked for while inactive is the sign of use.
 */
#ifndef PS_LRU_H
#define PS_LRU_H

#include "types.h"

/* Puts e at the head of list (LRU_NONE: takes it off), wherever it was. */
void lru_move(struct lru *lru, struct extent *e, enum lru_list list);
/* The same at the tail: the next victim. */
void lru_move_tail(struct lru *lru, struct extent *e, enum lru_list list);
/* Puts e on list unless it is on one already (a fault on an active extent does not reorder). */
void lru_add(struct lru *lru, struct extent *e, enum lru_list list);
/* Takes the tail of list off and moves it to that list's head, so that the caller may look at it
 * without others picking it too; NULL when the list is empty. */
struct extent *lru_rotate(struct lru *lru, enum lru_list list);

#endif
