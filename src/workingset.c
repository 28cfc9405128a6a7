/* SPDX-License-Identifier: MIT */
/* workingset.c - see workingset.h. */
#include "workingset.h"
#include "lru.h"

void workingset_evict(struct extent *e, unsigned n)
{
	struct lruvec *vec = relaxed_load(&e->folio.lruvec);
	u64 age = relaxed_add(&vec->age, n) + n;

	/* The part of it that stays would be asked for, not read back. */
	e->evicted = e->nr_present ? 0 : age;
	relaxed_store(&e->spare, false);
}

void workingset_refault(struct extent *e)
{
	struct ps_member *stat = e->mm->ps->stat;
	struct lruvec *vec = relaxed_load(&e->folio.lruvec);
	u64 age = relaxed_load(&vec->age), out = e->evicted;

	if (!out)
		return;
	e->evicted = 0;
	stat_inc(stat, refaults);
	/* Moved to another group meanwhile, whose clock is another one: nothing can be said. */
	if (out > age || age - out > lruvec_pages(vec, LRU_ACTIVE))
		return;
	stat_inc(stat, activations);
	relaxed_store(&e->spare, true);
}

bool workingset_spare(struct extent *e)
{
	if (!relaxed_load(&e->spare))
		return false;
	relaxed_store(&e->spare, false);
	return true;
}
