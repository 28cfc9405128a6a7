/* SPDX-License-Identifier: MIT */
/*
 * folio_batch.c - see folio_batch.h.
 *
 * "Per CPU" is a matter of speed only: a thread may be moved to another CPU at any instruction, so
 * each CPU's batches have a lock, which hardly ever is contended.  What a thread put into a batch
 * before it was moved is then not found by its drain.  This does no harm: a folio that waits
 * carries where it belongs (folio.want), and the move looks there and not at what was asked for
 * when the folio came into the batch.
 */
#include "folio_batch.h"
#include "lru.h"

/* Goes on with the lock of f's lruvec (none when f is NULL): the same for a run of folios. */
static void lock_run(struct lruvec **held, struct folio *f)
{
	if (*held && f && *held == relaxed_load(&f->lruvec))
		return;
	if (*held)
		ps_mutex_unlock(&(*held)->lock);
	*held = f ? folio_lruvec_lock(f) : NULL;
}

void folio_batch_move_lru(struct folio_batch *fb, enum lru_op op)
{
	struct lruvec *vec = NULL;

	for (unsigned i = 0; i < fb->nr; i++) {
		struct folio *f = fb->folios[i];

		lock_run(&vec, f);
		lruvec_apply(vec, f, op);
		/* Last, and under the lock: see folio_del_lru(). */
		atomic_fetch_sub(&f->pending, 1);
	}
	lock_run(&vec, NULL);
	folio_batch_reinit(fb);
}

void folio_batch_release(struct lru *lru, struct folio_batch *fb)
{
	struct lruvec *vec = NULL;

	if (!fb->nr)
		return;
	if (!fb->percpu_pvec_drained || lru->drain_every) {
		lru_add_drain(lru);
		fb->percpu_pvec_drained = true;
	}
	for (unsigned i = 0; i < fb->nr; i++) {
		struct folio *f = fb->folios[i];

		/* Pages of one folio follow each other. */
		if (i && f == fb->folios[i - 1])
			continue;
		lock_run(&vec, f);
		lruvec_release(vec, f);
	}
	lock_run(&vec, NULL);
	folio_batch_reinit(fb);
}

static void drain_locked(struct lru_cpu *c)
{
	for (unsigned op = 0; op < LRU_NR_OPS; op++)
		if (folio_batch_count(&c->batch[op]))
			folio_batch_move_lru(&c->batch[op], op);
	relaxed_store(&c->nr, 0);
}

void lru_batch_add(struct lru *lru, struct folio *folio, enum lru_op op)
{
	unsigned cpu = sys_cpu() % LRU_MAX_CPUS;
	struct lru_cpu *c = &lru->cpus[cpu];
	u32 used = relaxed_load(&lru->nr_cpus);

	while (unlikely(used <= cpu) &&
	       !atomic_compare_exchange_weak(&lru->nr_cpus, &used, cpu + 1))
		;
	atomic_fetch_add(&folio->pending, 1);
	ps_mutex_lock(&c->lock);
	relaxed_store(&c->nr, c->nr + 1);
	if (!folio_batch_add(&c->batch[op], folio) ||
	    relaxed_load(&folio->pages) >= LRU_LARGE_PAGES) {
		relaxed_store(&c->nr, c->nr - folio_batch_count(&c->batch[op]));
		folio_batch_move_lru(&c->batch[op], op);
	}
	ps_mutex_unlock(&c->lock);
}

void lru_add_drain_cpu(struct lru *lru, unsigned cpu)
{
	struct lru_cpu *c = &lru->cpus[cpu % LRU_MAX_CPUS];

	/* What this thread put there it sees without the lock. */
	if (!relaxed_load(&c->nr))
		return;
	ps_mutex_lock(&c->lock);
	drain_locked(c);
	ps_mutex_unlock(&c->lock);
}

void lru_add_drain(struct lru *lru)
{
	relaxed_add(&lru->drains, 1);
	lru_add_drain_cpu(lru, sys_cpu());
}

void lru_add_drain_all(struct lru *lru)
{
	for (unsigned cpu = 0; cpu < relaxed_load(&lru->nr_cpus); cpu++)
		lru_add_drain_cpu(lru, cpu);
}
