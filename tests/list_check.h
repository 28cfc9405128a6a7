/* SPDX-License-Identifier: MIT */
/* list_check.h - is a list of a lruvec in order? */
#ifndef LIST_CHECK_H
#define LIST_CHECK_H

#include "lru.h"

/* Walks one list: links in both directions, every entry on this list, counts that sum up. */
static inline void check_list(struct lruvec *vec, enum lru_list list)
{
	u64 nr = 0, pages = 0;
	struct folio *prev = NULL;

	for (struct folio *f = vec->head[list]; f; prev = f, f = f->next) {
		assert_ptr_equal(f->prev, prev);
		assert_ptr_equal(relaxed_load(&f->lruvec), vec);
		assert_int_equal(f->list, list);
		nr++;
		pages += f->counted;
	}
	assert_ptr_equal(vec->tail[list], prev);
	assert_int_equal(lruvec_nr(vec, list), nr);
	assert_int_equal(lruvec_pages(vec, list), pages);
}

#endif
