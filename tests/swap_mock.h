/* SPDX-License-Identifier: MIT */
/*
 * swap_mock.h - a store that only remembers which slots hold data, for the tests of the swap file.
 * Plain bytes and no lock, on purpose: under ThreadSanitizer it proves that the swap file lets
 * nobody at a slot's data but its owner.
 */
#ifndef SWAP_MOCK_H
#define SWAP_MOCK_H

#include <stdlib.h>

#include "store.h"

struct mock_store {
	struct store st;
	u8 *live;
	_Atomic u64 invalidates, cluster_invalidates, invalidated;
};

static inline struct mock_store *mock_of(struct store *st)
{
	return container_of(st, struct mock_store, st);
}

static inline void mock_write(struct store *st, u64 slot, unsigned nr)
{
	memset(mock_of(st)->live + slot, 1, nr);
}

static inline void mock_invalidate(struct store *st, u64 slot, unsigned nr)
{
	struct mock_store *m = mock_of(st);

	memset(m->live + slot, 0, nr);
	relaxed_add(&m->invalidates, 1);
	relaxed_add(&m->invalidated, nr);
}

static inline void mock_invalidate_cluster(struct store *st, u64 cluster)
{
	relaxed_add(&mock_of(st)->cluster_invalidates, 1);
	mock_invalidate(st, cluster * 512, 512);
	relaxed_sub(&mock_of(st)->invalidates, 1);
}

static inline u64 mock_live(struct mock_store *m)
{
	u64 n = 0;

	for (u64 i = 0; i < m->st.nr_slots; i++)
		n += m->live[i];
	return n;
}

static inline struct mock_store *mock_open(u64 nr_slots)
{
	static const struct store_ops ops = {
		.invalidate = mock_invalidate,
		.invalidate_cluster = mock_invalidate_cluster,
	};
	struct mock_store *m = calloc(1, sizeof(*m));

	m->st.ops = &ops;
	m->st.nr_slots = nr_slots;
	memcpy(m->st.name, "mock", 5);
	m->live = calloc(1, nr_slots);
	return m;
}

static inline void mock_close(struct mock_store *m)
{
	free(m->live);
	free(m);
}

#endif
