/* SPDX-License-Identifier: MIT */
/*
 * folio_batch.h - up to 31 folios that are handled together, so that the lock of an LRU list is
 * taken once for many.
 *
 * Each CPU has a batch for each operation on the lists (add, rotate, deactivate, activate); a full
 * one is moved in one go.  Who takes folios away (unmap, truncate, DONTNEED) collects them in a
 * batch on its stack and releases that: it must first drain its CPU's batches, since a folio that
 * goes may still wait in one, but once for each use of the batch, not each time it is refilled.
 *
 *	folio_batch_init(&fb);                       a use begins: nothing drained
 *	for each folio that goes
 *		if (!folio_batch_add(&fb, folio))    no room left
 *			folio_batch_release(lru, &fb);
 *	folio_batch_release(lru, &fb);               the rest
 *
 * A batch on a stack belongs to one thread; everything else here is thread-safe.
 */
#ifndef PS_FOLIO_BATCH_H
#define PS_FOLIO_BATCH_H

#include "types.h"

/* Begins a use: empty, and nothing has been drained for it. */
static inline void folio_batch_init(struct folio_batch *fb)
{
	fb->nr = 0;
	fb->percpu_pvec_drained = false;
}

/* Empties the batch within a use: that the CPU's batches were drained stays true. */
static inline void folio_batch_reinit(struct folio_batch *fb)
{
	fb->nr = 0;
}

static inline unsigned folio_batch_count(const struct folio_batch *fb)
{
	return fb->nr;
}

static inline unsigned folio_batch_space(const struct folio_batch *fb)
{
	return FOLIO_BATCH_SIZE - fb->nr;
}

/* Returns the room that is left, 0: move or release it before the next add. */
static inline unsigned folio_batch_add(struct folio_batch *fb, struct folio *folio)
{
	ps_debug_assert(folio_batch_space(fb) > 0);
	fb->folios[fb->nr++] = folio;
	return folio_batch_space(fb);
}

/* Brings each folio of fb to where it belongs by now, with the lruvec's lock taken once for each run
 * of folios that share it. Afterwards fb is empty, and still drained if it was. */
void folio_batch_move_lru(struct folio_batch *fb, enum lru_op op);

/*
 * The pages that fb stands for are gone: lists are told how many their folios have left, and a folio
 * without any leaves its list.  Drains this CPU's batches first, once a use (lru->drain_every: each
 * time).  Nothing happens when fb is empty.  Afterwards fb is empty and drained.  A folio may be in
 * fb several times, for pages of it that are released one by one.
 */
void folio_batch_release(struct lru *lru, struct folio_batch *fb);

/* Puts folio into this CPU's batch for op. A full batch is moved at once, and so is that of a folio
 * of LRU_LARGE_PAGES or more: 31 of those would be too much to keep from reclaim. */
void lru_batch_add(struct lru *lru, struct folio *folio, enum lru_op op);

/* Empties the batches of the CPU that runs this, and counts it in lru->drains. */
void lru_add_drain(struct lru *lru);
/* Of one CPU, of all: not counted, for reclaim, which must see every folio. cpu is taken modulo
 * LRU_MAX_CPUS. */
void lru_add_drain_cpu(struct lru *lru, unsigned cpu);
void lru_add_drain_all(struct lru *lru);

#endif
