/* SPDX-License-Identifier: MIT */
/* lru_fixture.h - what the cmocka tests of the LRU share: lists without an engine, and a look at
 * all of their links. */
#ifndef LRU_FIXTURE_H
#define LRU_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "folio_batch.h"
#include "list_check.h"
#include "lru.h"

static struct lru lru;
static struct lruvec vec2; /* of a second group */

static inline int lru_setup(void **state)
{
	(void)state;
	memset(&lru, 0, sizeof(lru));
	memset(&vec2, 0, sizeof(vec2));
	return 0;
}

static inline struct folio *new_folios(unsigned n, unsigned pages)
{
	struct folio *f = calloc(n, sizeof(*f));

	assert_non_null(f);
	for (unsigned i = 0; i < n; i++) {
		folio_init(&f[i], &lru.root);
		f[i].pages = (u16)pages;
	}
	return f;
}

/* The pages of a folio are freed: what zap does before it releases. */
static inline void drop_pages(struct folio *f)
{
	relaxed_store(&f->pages, 0);
}

static inline void check_lists(void)
{
	struct lruvec *vecs[] = { &lru.root, &vec2 };

	for (unsigned v = 0; v < 2; v++) {
		assert_int_equal(vecs[v]->lock.word, 0);
		assert_null(vecs[v]->head[LRU_NONE]);
		check_list(vecs[v], LRU_ACTIVE);
		check_list(vecs[v], LRU_INACTIVE);
	}
}

/* All folios in batches. */
static inline u64 waiting(void)
{
	u64 n = 0;

	for (unsigned cpu = 0; cpu < LRU_MAX_CPUS; cpu++)
		n += lru.cpus[cpu].nr;
	return n;
}

#endif
