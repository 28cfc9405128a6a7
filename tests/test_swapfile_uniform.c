/* SPDX-License-Identifier: MIT */
/* test_swapfile_uniform.c - clusters whose slots all have one map byte (swapfile_internal.h). */
#include "swap_fixture.h"

static u64 maps_used(void)
{
	return sf.areas[0]->nr_map_used;
}

/* A whole cluster with its data written and `count` references to each slot. */
static swp_entry_t whole(unsigned count)
{
	swp_entry_t e;

	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &e), 0);
	mock_write(swap_store(&sf, e), swp_offset(e), C);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(swap_duplicate(&sf, e, C), 0);
	if (count)
		swapcache_free(&sf, e, C);
	assert_true(uniform(e));
	return e;
}

/* Bytes of slots [from, from + nr) are b, of the rest of the cluster `rest`. */
static void expect_bytes(swp_entry_t e, unsigned from, unsigned nr, u8 b, u8 rest)
{
	for (unsigned i = 0; i < C; i++)
		assert_int_equal(byte(plus(e, i)), i >= from && i < from + nr ? b : rest);
	check_ok();
}

/* The life of a run of order 9 does not touch the map, from first to last. */
static void test_uniform_life(void **state)
{
	swp_entry_t e;

	(void)state;
	sf.cache_drop = NULL;
	for (unsigned round = 0; round < 3; round++) {
		bool cached;

		assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &e), 0);
		expect_bytes(e, 0, C, SWAP_HAS_CACHE, 0);
		mock_write(swap_store(&sf, e), swp_offset(e), C);
		assert_int_equal(swap_duplicate(&sf, e, C), 0);
		expect_bytes(e, 0, C, SWAP_HAS_CACHE | 1, 0);
		assert_int_equal(swap_count(&sf, plus(e, 77), &cached), 1);
		assert_true(cached);
		swapcache_free(&sf, e, C);
		expect_bytes(e, 0, C, 1, 0);
		assert_false(swap_is_shared(&sf, plus(e, 3), 9));
		/* What is not done touches it no more than what is. */
		swapcache_free(&sf, plus(e, 5), 5);
		assert_int_equal(sf.bad_frees, 2 * round + 1);
		/* Cloned, and one of the clones goes. */
		assert_int_equal(swap_duplicate(&sf, e, C), 0);
		expect_bytes(e, 0, C, 2, 0);
		assert_true(swap_is_shared(&sf, plus(e, 3), 1));
		free_swap_and_cache_nr(&sf, e, C);
		expect_bytes(e, 0, C, 1, 0);
		/* Read back, and freed meanwhile. */
		assert_int_equal(swapcache_prepare(&sf, e, C), 0);
		assert_int_equal(swapcache_prepare(&sf, plus(e, 1), 2), -EEXIST);
		expect_bytes(e, 0, C, SWAP_HAS_CACHE | 1, 0);
		free_swap_and_cache_nr(&sf, e, C);
		expect_bytes(e, 0, C, SWAP_HAS_CACHE, 0);
		free_swap_and_cache_nr(&sf, plus(e, 8), 8);
		assert_int_equal(sf.bad_frees, 2 * round + 2);
		if (round) {
			swapcache_free(&sf, e, C);
		} else {
			assert_int_equal(swap_duplicate(&sf, e, C), 0);
			swapcache_free(&sf, e, C);
			free_swap_and_cache_nr(&sf, e, C);
		}
		expect_bytes(e, 0, C, 0, 0);
		assert_int_equal(list_of(e), SWAP_LIST_FREE);
		assert_true(uniform(e));
	}
	assert_int_equal(maps_used(), 0);
	assert_int_equal(mock_live(mock[0]), 0);
}

/* Errors leave a cluster without slots in use as it was, whether it was ever used or not. */
static void test_uniform_empty(void **state)
{
	swp_entry_t e = whole(1);

	(void)state;
	free_swap_and_cache_nr(&sf, e, C);
	for (unsigned i = 0; i < 2; i++, e = swp_entry(0, 3 * C)) {
		for (unsigned nr = 16; nr <= C; nr += C - 16) {
			assert_int_equal(swap_duplicate(&sf, e, nr), -EINVAL);
			assert_int_equal(swapcache_prepare(&sf, e, nr), -ENOENT);
			swapcache_free(&sf, e, nr);
			free_swap_and_cache_nr(&sf, e, nr);
			sf.free_mode = SWAP_FREE_ENTRY;
			free_swap_and_cache_nr(&sf, e, nr);
			free_swap_and_cache_nr(&sf, e, 1);
			sf.free_mode = SWAP_FREE_BATCH;
			assert_false(swap_is_shared(&sf, e, nr));
			assert_int_equal(swap_count(&sf, e, NULL), 0);
		}
		expect_bytes(e, 0, C, 0, 0);
	}
	assert_int_equal(sf.bad_frees, 2 * 2 * 4);
	assert_int_equal(maps_used(), 0);
}

/* A count past SWAP_MAP_MAX writes the map out, for all slots or for one. */
static void test_uniform_overflow(void **state)
{
	(void)state;
	for (enum swap_free_mode m = SWAP_FREE_BATCH; m <= SWAP_FREE_ENTRY; m++) {
		for (unsigned nr = C; nr; nr = nr == C ? 1 : 0) {
			swp_entry_t e = whole(SWAP_MAP_MAX);
			struct swap_cluster_info *ci = swap_cluster(sf.areas[0], swp_offset(e));

			sf.free_mode = m;
			expect_bytes(e, 0, C, SWAP_MAP_MAX, 0);
			for (unsigned i = 1; i <= 3; i++) {
				assert_int_equal(swap_duplicate(&sf, e, nr), 0);
				assert_false(uniform(e));
				assert_int_equal(ci->nr_cont, nr);
				assert_int_equal(swap_count(&sf, plus(e, nr - 1), NULL),
						 SWAP_MAP_MAX + i);
				expect_bytes(e, 0, nr, SWAP_MAP_MAX | SWAP_CONT, SWAP_MAP_MAX);
			}
			for (unsigned i = 0; i < 3; i++)
				free_swap_and_cache_nr(&sf, e, nr);
			expect_bytes(e, 0, C, SWAP_MAP_MAX, 0);
			assert_null(ci->cont);
			for (unsigned i = 0; i < SWAP_MAP_MAX; i++)
				free_swap_and_cache_nr(&sf, e, C);
			assert_true(uniform(e));
			assert_int_equal(used(), 0);
			assert_int_equal(mock_live(mock[0]), 0);
		}
	}
	assert_int_equal(sf.bad_frees, 0);
}

/* What there is of the cluster before `at` and from at + nr on. */
static void uncache_rest(swp_entry_t e, unsigned at, unsigned nr)
{
	if (at)
		swapcache_free(&sf, e, at);
	if (at + nr < C)
		swapcache_free(&sf, plus(e, at + nr), C - at - nr);
}

static void free_rest(swp_entry_t e, unsigned at, unsigned nr)
{
	free_swap_and_cache_nr(&sf, e, at);
	free_swap_and_cache_nr(&sf, plus(e, at + nr), C - at - nr);
}

/* Every change of a part of a cluster, from each byte that the whole can have. */
static void test_uniform_in_part(void **state)
{
	static const unsigned parts[][2] = {
		{ 0, 1 }, { 0, 16 }, { 7, 100 }, { 500, 12 }, { 1, 511 },
	};

	(void)state;
	for (enum swap_free_mode m = SWAP_FREE_BATCH; m <= SWAP_FREE_ENTRY; m++) {
		for (unsigned p = 0; p < ARRAY_SIZE(parts); p++) {
			unsigned at = parts[p][0], nr = parts[p][1];
			swp_entry_t e = whole(0), part = plus(e, at);

			sf.free_mode = m;
			/* Cache only: some are given back. */
			swapcache_free(&sf, part, nr);
			assert_false(uniform(e));
			expect_bytes(e, at, nr, 0, SWAP_HAS_CACHE);
			uncache_rest(e, at, nr);
			expect_bytes(e, 0, C, 0, 0);
			assert_true(uniform(e));

			/* A reference more for some, then for all, and one less for some. */
			e = whole(1);
			part = plus(e, at);
			assert_int_equal(swap_duplicate(&sf, part, nr), 0);
			expect_bytes(e, at, nr, 2, 1);
			assert_int_equal(swap_duplicate(&sf, e, C), 0);
			expect_bytes(e, at, nr, 3, 2);
			for (unsigned i = 0; i < 2; i++)
				free_swap_and_cache_nr(&sf, part, nr);
			expect_bytes(e, at, nr, 1, 2);
			free_swap_and_cache_nr(&sf, part, nr);
			expect_bytes(e, at, nr, 0, 2);
			assert_int_equal(list_of(e), SWAP_LIST_NONFULL + 2);
			for (unsigned i = 0; i < 2; i++)
				free_rest(e, at, nr);
			expect_bytes(e, 0, C, 0, 0);
			assert_true(uniform(e));

			/* The cache flag for some; then all lose their reference. */
			e = whole(1);
			part = plus(e, at);
			assert_int_equal(swapcache_prepare(&sf, part, nr), 0);
			expect_bytes(e, at, nr, SWAP_HAS_CACHE | 1, 1);
			free_swap_and_cache_nr(&sf, e, C);
			expect_bytes(e, at, nr, SWAP_HAS_CACHE, 0);
			swapcache_free(&sf, part, nr);
			assert_true(uniform(e));

			/* The flag of all, dropped from some. */
			e = whole(1);
			part = plus(e, at);
			assert_int_equal(swapcache_prepare(&sf, e, C), 0);
			swapcache_free(&sf, part, nr);
			expect_bytes(e, at, nr, 1, SWAP_HAS_CACHE | 1);
			free_swap_and_cache_nr(&sf, part, nr);
			expect_bytes(e, at, nr, 0, SWAP_HAS_CACHE | 1);
			uncache_rest(e, at, nr);
			free_rest(e, at, nr);
			assert_true(uniform(e));
			assert_int_equal(used(), 0);
			assert_int_equal(mock_live(mock[0]), 0);
		}
	}
	assert_int_equal(sf.bad_frees, 0);
}

/* Entry by entry it is one slot after the other, whatever the cluster was. */
static void test_uniform_entry_mode(void **state)
{
	swp_entry_t e = whole(2);

	(void)state;
	sf.free_mode = SWAP_FREE_ENTRY;
	free_swap_and_cache_nr(&sf, e, C);
	expect_bytes(e, 0, C, 1, 0);
	assert_false(uniform(e));
	mock[0]->invalidates = 0;
	free_swap_and_cache_nr(&sf, e, C);
	assert_int_equal(mock[0]->invalidates, C);
	assert_int_equal(sf.entry_frees, C);
	expect_bytes(e, 0, C, 0, 0);
	assert_true(uniform(e));
}

/* What was in the map before does not come back, and other orders find an empty one. */
static void test_uniform_and_old_bytes(void **state)
{
	swp_entry_t e = swapped(16), x;

	(void)state;
	assert_int_equal(swap_duplicate(&sf, plus(e, 3), 5), 0);
	assert_false(uniform(e));
	free_swap_and_cache_nr(&sf, e, 16);
	free_swap_and_cache_nr(&sf, plus(e, 3), 5);
	assert_int_equal(used(), 0);
	assert_true(uniform(e));
	/* In the map they are still cache only. */
	assert_int_equal(swap_cluster_map(sf.areas[0], swap_cluster(sf.areas[0], swp_offset(e)))[3],
			 SWAP_HAS_CACHE);
	x = whole(1);
	assert_int_equal(x.val, e.val);
	free_swap_and_cache_nr(&sf, plus(x, 100), 1);
	expect_bytes(x, 100, 1, 0, 1);
	free_swap_and_cache_nr(&sf, x, 100);
	free_swap_and_cache_nr(&sf, plus(x, 101), C - 101);
	assert_true(uniform(x));
	for (unsigned order = 0; order <= 4; order += 4) {
		swp_entry_t y;

		assert_int_equal(swap_alloc_order(&sf, 0, 5, order, &y), 0);
		assert_int_equal(y.val, x.val);
		expect_bytes(x, 0, 1U << order, SWAP_HAS_CACHE, 0);
		assert_int_equal(swap_alloc_order(&sf, 0, 5, order, &y), 0);
		expect_bytes(x, 0, 2U << order, SWAP_HAS_CACHE, 0);
		swapcache_free(&sf, x, 2U << order);
		assert_true(uniform(x));
	}
	assert_int_equal(maps_used(), 1);
	assert_int_equal(sf.bad_frees, 0);
}

static void test_uniform_groups(void **state)
{
	swp_entry_t e = whole(1);
	s64 n[4] = { 0 };

	(void)state;
	sf.uncharge = on_uncharge;
	assert_int_equal(swapfile_enable_groups(&sf), 0);
	/* Slots that are free are of no group: those of the cluster are not. */
	assert_int_equal(swap_group_change(&sf, e, C, 0, 1), C);
	assert_int_equal(swap_group_change(&sf, plus(e, 10), 20, 1, 2), 20);
	assert_int_equal(swap_group_change(&sf, swp_entry(0, 2 * C), C, 0, 1), 0);
	swap_group_count(&sf, n, 4);
	assert_int_equal(n[0], 0);
	assert_int_equal(n[1], C - 20);
	assert_int_equal(n[2], 20);
	assert_int_equal(swap_group_replace(&sf, 2, 3), 20);
	assert_true(uniform(e));
	/* A whole cluster of several groups: uncharged from each. */
	free_swap_and_cache_nr(&sf, e, C);
	assert_int_equal(uncharged.calls, 3);
	assert_int_equal(uncharged.total, C);
	assert_int_equal(sf.split_batches, 1);
	e = whole(1);
	assert_int_equal(swap_group_change(&sf, e, C, 0, 1), C);
	swap_free_runs(&sf, e, C);
	assert_int_equal(uncharged.calls, 4);
	assert_int_equal(uncharged.last_group, 1);
	assert_int_equal(maps_used(), 0);
	check_ok();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_uniform_life),
		T(test_uniform_empty),
		T(test_uniform_overflow),
		T(test_uniform_in_part),
		T(test_uniform_entry_mode),
		T(test_uniform_and_old_bytes),
		T(test_uniform_groups),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
