/* SPDX-License-Identifier: MIT */
/* lru.c - see lru.h. */
#include "lru.h"

static void unlink_locked(struct lru *lru, struct extent *e)
{
	if (e->lru == LRU_NONE)
		return;
	if (e->prev)
		e->prev->next = e->next;
	else
		lru->head[e->lru] = e->next;
	if (e->next)
		e->next->prev = e->prev;
	else
		lru->tail[e->lru] = e->prev;
	relaxed_sub(&lru->nr[e->lru], 1);
	e->prev = e->next = NULL;
	__atomic_store_n(&e->lru, LRU_NONE, __ATOMIC_RELAXED);
}

static void link_locked(struct lru *lru, struct extent *e, enum lru_list list, bool tail)
{
	if (list == LRU_NONE)
		return;
	__atomic_store_n(&e->lru, list, __ATOMIC_RELAXED);
	relaxed_add(&lru->nr[list], 1);
	if (tail) {
		e->prev = lru->tail[list];
		if (e->prev)
			e->prev->next = e;
		else
			lru->head[list] = e;
		lru->tail[list] = e;
	} else {
		e->next = lru->head[list];
		if (e->next)
			e->next->prev = e;
		else
			lru->tail[list] = e;
		lru->head[list] = e;
	}
}

void lru_move(struct lru *lru, struct extent *e, enum lru_list list)
{
	ps_mutex_lock(&lru->lock);
	unlink_locked(lru, e);
	link_locked(lru, e, list, false);
	ps_mutex_unlock(&lru->lock);
}

void lru_move_tail(struct lru *lru, struct extent *e, enum lru_list list)
{
	ps_mutex_lock(&lru->lock);
	unlink_locked(lru, e);
	link_locked(lru, e, list, true);
	ps_mutex_unlock(&lru->lock);
}

void lru_add(struct lru *lru, struct extent *e, enum lru_list list)
{
	if (__atomic_load_n(&e->lru, __ATOMIC_RELAXED) != LRU_NONE)
		return;
	ps_mutex_lock(&lru->lock);
	if (e->lru == LRU_NONE)
		link_locked(lru, e, list, false);
	ps_mutex_unlock(&lru->lock);
}

struct extent *lru_rotate(struct lru *lru, enum lru_list list)
{
	struct extent *e;

	ps_mutex_lock(&lru->lock);
	e = lru->tail[list];
	if (e) {
		unlink_locked(lru, e);
		link_locked(lru, e, list, false);
	}
	ps_mutex_unlock(&lru->lock);
	return e;
}
