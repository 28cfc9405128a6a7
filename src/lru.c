/* SPDX-License-Identifier: MIT */
/*
 * lru.c - see lru.h.
 *
 * folio.want is where a folio belongs and is set first; folio.list, where it is, follows when a
 * batch is moved.  Batches of several CPUs may be moved in any order, or late: each move brings the
 * folio to where it belongs *then*, and after the last change of want comes the move of it.
 *
 * folio.lruvec changes under the lock of the one it names, so who holds that lock and still finds
 * it named has the folio's links for himself.
 */
#include "lru.h"
#include "folio_batch.h"

void folio_init(struct folio *f, struct lruvec *vec)
{
	memset(f, 0, sizeof(*f));
	atomic_init(&f->lruvec, vec);
}

struct lruvec *folio_lruvec_lock(struct folio *f)
{
	for (;;) {
		struct lruvec *vec = atomic_load_explicit(&f->lruvec, memory_order_acquire);

		ps_mutex_lock(&vec->lock);
		if (likely(vec == relaxed_load(&f->lruvec)))
			return vec;
		ps_mutex_unlock(&vec->lock);
	}
}

static void add_nr(struct lruvec *vec, enum lru_list list, int nr, s64 pages)
{
	relaxed_store(&vec->nr[list], relaxed_load(&vec->nr[list]) + nr);
	relaxed_store(&vec->nr_pages[list], relaxed_load(&vec->nr_pages[list]) + pages);
}

static void unlink_locked(struct lruvec *vec, struct folio *f)
{
	enum lru_list list = relaxed_load(&f->list);

	if (list == LRU_NONE)
		return;
	*(f->prev ? &f->prev->next : &vec->head[list]) = f->next;
	*(f->next ? &f->next->prev : &vec->tail[list]) = f->prev;
	add_nr(vec, list, -1, -(s64)relaxed_load(&f->counted));
	f->prev = f->next = NULL;
	relaxed_store(&f->counted, 0);
	atomic_store(&f->list, LRU_NONE);
}

static void link_locked(struct lruvec *vec, struct folio *f, enum lru_list list, bool tail)
{
	u16 pages = relaxed_load(&f->pages);

	if (list == LRU_NONE)
		return;
	if (tail) {
		f->prev = vec->tail[list];
		*(f->prev ? &f->prev->next : &vec->head[list]) = f;
		vec->tail[list] = f;
	} else {
		f->next = vec->head[list];
		*(f->next ? &f->next->prev : &vec->tail[list]) = f;
		vec->head[list] = f;
	}
	add_nr(vec, list, 1, pages);
	relaxed_store(&f->counted, pages);
	atomic_store(&f->list, list);
}

/* The list's size follows the folio's. */
static void recount_locked(struct lruvec *vec, struct folio *f)
{
	enum lru_list list = relaxed_load(&f->list);
	u16 pages = relaxed_load(&f->pages);

	if (list == LRU_NONE)
		return;
	add_nr(vec, list, 0, (s64)pages - relaxed_load(&f->counted));
	relaxed_store(&f->counted, pages);
}

void lruvec_apply(struct lruvec *vec, struct folio *f, enum lru_op op)
{
	enum lru_list want = atomic_load(&f->want);

	if (op == LRU_OP_ADD && relaxed_load(&f->list) != LRU_NONE) {
		recount_locked(vec, f);
		return;
	}
	/* Released while it waited. */
	if (op == LRU_OP_ADD && !relaxed_load(&f->pages) && !relaxed_load(&f->held))
		want = LRU_NONE;
	unlink_locked(vec, f);
	link_locked(vec, f, want, op == LRU_OP_ROTATE);
}

void lruvec_release(struct lruvec *vec, struct folio *f)
{
	recount_locked(vec, f);
	if (relaxed_load(&f->pages) || relaxed_load(&f->held))
		return;
	atomic_store(&f->want, LRU_NONE);
	unlink_locked(vec, f);
}

void folio_recount(struct folio *f)
{
	struct lruvec *vec = folio_lruvec_lock(f);

	recount_locked(vec, f);
	ps_mutex_unlock(&vec->lock);
}

void folio_set_lruvec(struct folio *f, struct lruvec *to)
{
	struct lruvec *vec;

	if (relaxed_load(&f->lruvec) == to)
		return;
	/* As if it waited in a batch: who takes it off or adds it meanwhile takes the lock. */
	atomic_fetch_add(&f->pending, 1);
	vec = folio_lruvec_lock(f);
	unlink_locked(vec, f);
	atomic_store_explicit(&f->lruvec, to, memory_order_release);
	ps_mutex_unlock(&vec->lock);
	vec = folio_lruvec_lock(f);
	lruvec_apply(vec, f, LRU_OP_ADD);
	atomic_fetch_sub(&f->pending, 1);
	ps_mutex_unlock(&vec->lock);
}

void folio_add_lru(struct lru *lru, struct folio *f)
{
	bool waits = atomic_load(&f->pending);
	u8 none = LRU_NONE;

	if (!waits && relaxed_load(&f->list) != LRU_NONE &&
	    relaxed_load(&f->counted) == relaxed_load(&f->pages))
		return;
	atomic_compare_exchange_strong(&f->want, &none, LRU_ACTIVE);
	if (waits || relaxed_load(&f->list) != LRU_NONE) {
		/* With the lock no move is half done: one that is still to come sees what we see. */
		struct lruvec *vec = folio_lruvec_lock(f);

		recount_locked(vec, f);
		waits = atomic_load(&f->pending) || relaxed_load(&f->list) != LRU_NONE;
		ps_mutex_unlock(&vec->lock);
	}
	if (!waits)
		lru_batch_add(lru, f, LRU_OP_ADD);
}

void folio_activate(struct lru *lru, struct folio *f)
{
	atomic_store(&f->want, LRU_ACTIVE);
	lru_batch_add(lru, f, LRU_OP_ACTIVATE);
}

void folio_deactivate(struct lru *lru, struct folio *f)
{
	atomic_store(&f->want, LRU_INACTIVE);
	lru_batch_add(lru, f, LRU_OP_DEACTIVATE);
}

void folio_rotate_tail(struct lru *lru, struct folio *f)
{
	atomic_store(&f->want, LRU_INACTIVE);
	lru_batch_add(lru, f, LRU_OP_ROTATE);
}

void folio_del_lru(struct folio *f)
{
	struct lruvec *vec;

	/* Often it is on no list: one barrier less. */
	if (atomic_load(&f->want) != LRU_NONE)
		atomic_store(&f->want, LRU_NONE);
	/* A move that still saw the old want has not come to its end: pending is not 0 yet. */
	if (!atomic_load(&f->pending) && atomic_load(&f->list) == LRU_NONE)
		return;
	vec = folio_lruvec_lock(f);
	unlink_locked(vec, f);
	ps_mutex_unlock(&vec->lock);
}

struct folio *lru_rotate(struct lru *lru, struct lruvec *vec, enum lru_list list)
{
	struct folio *f;

	lru_add_drain_all(lru);
	ps_mutex_lock(&vec->lock);
	f = vec->tail[list];
	if (f) {
		unlink_locked(vec, f);
		link_locked(vec, f, list, false);
	}
	ps_mutex_unlock(&vec->lock);
	return f;
}

void lru_after_fork(struct lru *lru)
{
	memset(&lru->root.lock, 0, sizeof(lru->root.lock));
	for (unsigned cpu = 0; cpu < LRU_MAX_CPUS; cpu++)
		memset(&lru->cpus[cpu].lock, 0, sizeof(lru->cpus[cpu].lock));
}
