/* SPDX-License-Identifier: MIT */
/* test_swapfile_free.c - swapfile.h: references, the cache flag, freeing, the reclaim step. */
#include "swap_fixture.h"

/* ---- references and the cache flag ---- */

static void test_duplicate(void **state)
{
	swp_entry_t e = swapped(16);
	bool cached = true;

	(void)state;
	assert_int_equal(swap_count(&sf, e, &cached), 1);
	assert_false(cached);
	assert_int_equal(swap_duplicate(&sf, e, 16), 0);
	assert_int_equal(swap_count(&sf, plus(e, 15), NULL), 2);
	/* A free slot in the run: nothing changes. */
	assert_int_equal(swap_duplicate(&sf, e, 17), -EINVAL);
	assert_int_equal(swap_count(&sf, e, NULL), 2);
	assert_int_equal(swap_duplicate(&sf, e, 0), -EINVAL);
	assert_int_equal(swap_duplicate(&sf, swp_entry(0, C - 1), 2), -EINVAL);
	assert_int_equal(swap_duplicate(&sf, swp_entry(0, 4 * C - 1), 2), -EINVAL);
	assert_int_equal(swap_duplicate(&sf, swp_entry(0, 4 * C), 1), -EINVAL);
	assert_int_equal(swap_duplicate(&sf, swp_entry(1, 0), 1), -EINVAL);
	assert_int_equal(swap_duplicate(&sf, (swp_entry_t){ 0 }, 1), -EINVAL);
	assert_int_equal(swap_count(&sf, swp_entry(1, 0), &cached), 0);
	assert_int_equal(swap_count(&sf, plus(e, 16), &cached), 0);
	assert_false(cached);
	check_ok();
}

/* Counts past SWAP_MAP_MAX, with and without the cache flag, freed by either path. */
static void test_overflow(void **state)
{
	(void)state;
	for (enum swap_free_mode m = SWAP_FREE_BATCH; m <= SWAP_FREE_ENTRY; m++) {
		swp_entry_t e = swapped(2);
		struct swap_cluster_info *ci = swap_cluster(sf.areas[0], swp_offset(e));
		bool cached;

		sf.free_mode = m;
		for (unsigned i = 1; i < SWAP_MAP_MAX; i++)
			assert_int_equal(swap_duplicate(&sf, e, 2), 0);
		assert_int_equal(byte(e), SWAP_MAP_MAX);
		assert_null(ci->cont);
		assert_int_equal(swap_duplicate(&sf, e, 1), 0);
		assert_int_equal(byte(e), SWAP_MAP_MAX | SWAP_CONT);
		assert_int_equal(byte(plus(e, 1)), SWAP_MAP_MAX);
		assert_int_equal(swap_count(&sf, e, NULL), SWAP_MAP_MAX + 1);
		assert_int_equal(ci->nr_cont, 1);
		for (unsigned i = 0; i < 1000; i++)
			assert_int_equal(swap_duplicate(&sf, e, 2), 0);
		assert_int_equal(swap_count(&sf, e, NULL), SWAP_MAP_MAX + 1001);
		assert_int_equal(swap_count(&sf, plus(e, 1), NULL), SWAP_MAP_MAX + 1000);
		assert_int_equal(swapcache_prepare(&sf, e, 2), 0);
		assert_int_equal(swap_count(&sf, e, &cached), SWAP_MAP_MAX + 1001);
		assert_true(cached);
		check_ok();
		for (unsigned i = 0; i < SWAP_MAP_MAX + 1000; i++) {
			free_swap_and_cache_nr(&sf, e, 2);
			if (i == 500)
				swapcache_free(&sf, e, 2);
		}
		assert_null(ci->cont);
		assert_int_equal(ci->nr_cont, 0);
		assert_int_equal(byte(e), 1);
		assert_int_equal(byte(plus(e, 1)), 0);
		check_ok();
		free_swap_and_cache_nr(&sf, e, 1);
		assert_int_equal(used(), 0);
		assert_int_equal(mock_live(mock[0]), 0);
	}
	assert_int_equal(sf.bad_frees, 0);
}

static void test_overflow_at_its_end(void **state)
{
	swp_entry_t e = swapped(2);
	struct swap_cluster_info *ci = swap_cluster(sf.areas[0], swp_offset(e));

	(void)state;
	for (unsigned i = 0; i < SWAP_MAP_MAX; i++)
		assert_int_equal(swap_duplicate(&sf, plus(e, 1), 1), 0);
	ci->cont[swp_offset(e) % C + 1] = UINT32_MAX;
	assert_int_equal(swap_duplicate(&sf, e, 2), -ENOMEM);
	assert_int_equal(swap_count(&sf, e, NULL), 1);
	assert_int_equal(swap_count(&sf, plus(e, 1), NULL), UINT32_MAX);
	check_ok();
	/* Closing with an overflow table left frees it. */
}

/* In a child, because it uses up all small objects there can be. */
static void test_no_memory_for_overflow(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0) {
		swp_entry_t e = swapped(1);

		for (unsigned i = 1; i < SWAP_MAP_MAX; i++)
			swap_duplicate(&sf, e, 1);
		limit_space(0);
		while (arena_alloc(4096) || arena_alloc(2048))
			;
		if (swap_duplicate(&sf, e, 1) != -ENOMEM)
			_exit(1);
		if (swap_count(&sf, e, NULL) != SWAP_MAP_MAX || swapfile_check(&sf))
			_exit(2);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_cache_flag(void **state)
{
	swp_entry_t e = swapped(32);
	bool cached;

	(void)state;
	assert_int_equal(swapcache_prepare(&sf, plus(e, 4), 8), 0);
	swap_count(&sf, plus(e, 4), &cached);
	assert_true(cached);
	swap_count(&sf, plus(e, 3), &cached);
	assert_false(cached);
	/* All or nothing. */
	assert_int_equal(swapcache_prepare(&sf, e, 5), -EEXIST);
	assert_int_equal(swapcache_prepare(&sf, e, 20), -EEXIST);
	swap_count(&sf, e, &cached);
	assert_false(cached);
	assert_int_equal(swapcache_prepare(&sf, plus(e, 20), 13), -ENOENT);
	assert_int_equal(swapcache_prepare(&sf, plus(e, 32), 1), -ENOENT);
	assert_int_equal(swapcache_prepare(&sf, e, 0), -EINVAL);
	assert_int_equal(swapcache_prepare(&sf, swp_entry(0, C - 1), 2), -EINVAL);
	assert_int_equal(swapcache_prepare(&sf, swp_entry(2, 0), 1), -EINVAL);
	assert_int_equal(byte(plus(e, 20)), 1);

	/* Dropped from some with a reference, some without. */
	free_swap_and_cache_nr(&sf, plus(e, 4), 2);
	assert_int_equal(byte(plus(e, 4)), SWAP_HAS_CACHE);
	swapcache_free(&sf, plus(e, 4), 8);
	assert_int_equal(byte(plus(e, 4)), 0);
	assert_int_equal(byte(plus(e, 5)), 0);
	assert_int_equal(byte(plus(e, 6)), 1);
	assert_int_equal(used(), 30);
	assert_int_equal(mock_live(mock[0]), 30);
	assert_int_equal(log_lines, 0);

	/* From slots that have none: reported, the others dropped. */
	assert_int_equal(swapcache_prepare(&sf, plus(e, 6), 2), 0);
	swapcache_free(&sf, plus(e, 5), 4);
	assert_int_equal(sf.bad_frees, 1);
	assert_int_equal(log_lines, 1);
	assert_non_null(strstr(last_log, "4 slots"));
	assert_int_equal(byte(plus(e, 5)), 0);
	assert_int_equal(byte(plus(e, 6)), 1);
	assert_int_equal(byte(plus(e, 8)), 1);
	swapcache_free(&sf, swp_entry(0, C - 1), 2);
	swapcache_free(&sf, swp_entry(0, 4 * C), 1);
	assert_int_equal(sf.bad_frees, 3);
	check_ok();
}

/* ---- freeing ---- */

static void test_free_bounds(void **state)
{
	swp_entry_t e[C], last = swp_entry(0, 4 * C - 1);

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(swap_alloc_pages(&sf, 0, 0, C, e), C);
		assert_int_equal(swap_duplicate(&sf, e[0], C), 0);
		swapcache_free(&sf, e[0], C);
	}
	for (enum swap_free_mode m = SWAP_FREE_BATCH; m <= SWAP_FREE_ENTRY; m++) {
		sf.free_mode = m;
		sf.bad_frees = 0;
		log_lines = 0;
		free_swap_and_cache_nr(&sf, last, 2);
		free_swap_and_cache_nr(&sf, swp_entry(0, 4 * C - 511), 512);
		free_swap_and_cache_nr(&sf, last, UINT32_MAX);
		free_swap_and_cache_nr(&sf, swp_entry(0, 4 * C), 1);
		free_swap_and_cache_nr(&sf, swp_entry(1, 0), 1);
		free_swap_and_cache_nr(&sf, (swp_entry_t){ 0 }, 1);
		assert_int_equal(sf.bad_frees, 6);
		assert_int_equal(log_lines, 6);
		assert_int_equal(used(), 4 * C);
		/* Nothing to do is not an error. */
		free_swap_and_cache_nr(&sf, last, 0);
		assert_int_equal(sf.bad_frees, 6);
		/* The last slot itself is fine. */
		swap_duplicate(&sf, last, 1);
		free_swap_and_cache_nr(&sf, last, 1);
		assert_int_equal(swap_count(&sf, last, NULL), 1);
	}
	check_ok();
}

/* A slot without a reference anywhere in a run: reported, and nothing is freed. */
static void test_free_of_free_slot(void **state)
{
	(void)state;
	for (enum swap_free_mode m = SWAP_FREE_BATCH; m <= SWAP_FREE_ENTRY; m++) {
		swp_entry_t e;

		sf.free_mode = m;
		sf.bad_frees = 0;
		log_lines = 0;
		e = swapped(32);
		free_swap_and_cache_nr(&sf, plus(e, 20), 12);
		free_swap_and_cache_nr(&sf, plus(e, 10), 1);
		free_swap_and_cache_nr(&sf, e, 20);
		free_swap_and_cache_nr(&sf, plus(e, 10), 10);
		free_swap_and_cache_nr(&sf, plus(e, 10), 1);
		free_swap_and_cache_nr(&sf, e, 11);
		assert_int_equal(sf.bad_frees, 4);
		assert_int_equal(log_lines, 4);
		assert_int_equal(used(), 19);
		assert_int_equal(mock_live(mock[0]), 19);
		/* Cache only is without a reference too. */
		assert_int_equal(swapcache_prepare(&sf, e, 1), 0);
		free_swap_and_cache_nr(&sf, e, 1);
		free_swap_and_cache_nr(&sf, e, 2);
		free_swap_and_cache_nr(&sf, e, 1);
		assert_int_equal(sf.bad_frees, 6);
		swapcache_free(&sf, e, 1);
		free_swap_and_cache_nr(&sf, plus(e, 1), 9);
		free_swap_and_cache_nr(&sf, plus(e, 11), 9);
		assert_int_equal(used(), 0);
		assert_int_equal(mock_live(mock[0]), 0);
		check_ok();
	}
}

static void test_free_batch_counts(void **state)
{
	struct swapfile_stat st;
	swp_entry_t e;

	(void)state;
	sf.uncharge = on_uncharge;
	e = swapped(C);
	mock[0]->invalidates = mock[0]->invalidated = 0;
	free_swap_and_cache_nr(&sf, e, 100);
	/* One of each: uncharge, invalidate; the correction that the first version forgot. */
	assert_int_equal(uncharged.calls, 1);
	assert_int_equal(uncharged.last_nr, 100);
	assert_int_equal(mock[0]->invalidates, 1);
	assert_int_equal(mock[0]->invalidated, 100);
	assert_int_equal(list_of(e), SWAP_LIST_NONFULL + 2);
	free_swap_and_cache_nr(&sf, plus(e, 100), 412);
	assert_int_equal(mock[0]->cluster_invalidates, 0);
	assert_int_equal(list_of(e), SWAP_LIST_FREE);
	swapfile_stat(&sf, &st);
	assert_int_equal(st.batch_frees, 2);
	assert_int_equal(st.cluster_frees, 0);
	assert_int_equal(st.entry_frees, 0);

	e = swapped(C);
	free_swap_and_cache_nr(&sf, e, C);
	assert_int_equal(mock[0]->cluster_invalidates, 1);
	swapfile_stat(&sf, &st);
	assert_int_equal(st.batch_frees, 3);
	assert_int_equal(st.cluster_frees, 1);
	assert_int_equal(mock_live(mock[0]), 0);

	/* A single slot is no batch. */
	e = swapped(1);
	free_swap_and_cache_nr(&sf, e, 1);
	swapfile_stat(&sf, &st);
	assert_int_equal(st.batch_frees, 3);
	assert_int_equal(st.entry_frees, 1);

	sf.free_mode = SWAP_FREE_ENTRY;
	uncharged.calls = 0;
	mock[0]->invalidates = mock[0]->cluster_invalidates = 0;
	e = swapped(C);
	free_swap_and_cache_nr(&sf, e, C);
	assert_int_equal(uncharged.calls, C);
	assert_int_equal(mock[0]->invalidates, C);
	assert_int_equal(mock[0]->cluster_invalidates, 0);
	swapfile_stat(&sf, &st);
	assert_int_equal(st.batch_frees, 3);
	assert_int_equal(st.entry_frees, 1 + C);
	assert_int_equal(st.bad_frees, 0);
	assert_int_equal(st.owner_lookups, 0);
	assert_int_equal(st.slots, 4 * C);
	assert_int_equal(st.slots_used, 0);
	assert_true(st.metadata_bytes >= sizeof(struct swap_info) + C);
	check_ok();
}

/* A run over the border of two clusters is right, slot by slot. */
static void test_free_across_clusters(void **state)
{
	swp_entry_t a = swapped(C), b = swapped(C);

	(void)state;
	assert_int_equal(b.val, a.val + C);
	free_swap_and_cache_nr(&sf, plus(a, 500), 24);
	assert_int_equal(sf.batch_frees, 0);
	assert_int_equal(sf.entry_frees, 24);
	assert_int_equal(used(), 2 * C - 24);
	free_swap_and_cache_nr(&sf, a, 500);
	free_swap_and_cache_nr(&sf, plus(b, 12), 500);
	assert_int_equal(sf.batch_frees, 2);
	assert_int_equal(used(), 0);
	assert_int_equal(mock_live(mock[0]), 0);
	check_ok();
}

static void test_free_shared(void **state)
{
	swp_entry_t e = swapped(64);

	(void)state;
	assert_int_equal(swap_duplicate(&sf, e, 64), 0);
	assert_int_equal(swap_duplicate(&sf, plus(e, 8), 8), 0);
	/* All shared: decreased, nothing freed. */
	free_swap_and_cache_nr(&sf, e, 64);
	assert_int_equal(swap_count(&sf, e, NULL), 1);
	assert_int_equal(swap_count(&sf, plus(e, 8), NULL), 2);
	assert_int_equal(sf.batch_frees + sf.entry_frees, 0);
	/* Mixed: one by one. */
	free_swap_and_cache_nr(&sf, e, 64);
	assert_int_equal(sf.batch_frees, 0);
	assert_int_equal(sf.entry_frees, 56);
	assert_int_equal(used(), 8);
	free_swap_and_cache_nr(&sf, plus(e, 8), 8);
	assert_int_equal(sf.batch_frees, 1);
	assert_int_equal(used(), 0);
	check_ok();
}

/* ---- the reclaim step ---- */

/* Folios of 16 slots, all droppable but that of slot 32. */
static unsigned drop_folio(void *ctx, swp_entry_t e)
{
	unsigned n = 16 - swp_offset(e) % 16;
	bool cached;

	assert_ptr_equal(ctx, &sf);
	assert_int_equal(swap_count(&sf, e, &cached), 0); /* no lock is held */
	assert_true(cached);
	dropped.at[dropped.calls++] = e;
	if (swp_offset(e) % C / 16 == 2)
		return 0;
	/* The front of the folio is the callback's to free. */
	if (n < 16)
		swapcache_free(&sf, (swp_entry_t){ e.val - (16 - n) }, 16 - n);
	return n;
}

static void test_reclaim_step(void **state)
{
	(void)state;
	sf.ctx = &sf;
	for (enum swap_free_mode m = SWAP_FREE_BATCH; m <= SWAP_FREE_ENTRY; m++) {
		swp_entry_t e = swapped(C);

		sf.free_mode = m;
		sf.cache_drop = drop_folio;
		dropped.calls = 0;
		/* Folios 1 to 3 cached; the run begins and ends inside folios. */
		assert_int_equal(swapcache_prepare(&sf, plus(e, 16), 48), 0);
		free_swap_and_cache_nr(&sf, plus(e, 4), 52);
		/* Slot 16 drops its folio in one step; 32 is busy, so each slot of it is tried;
		 * 48 drops its folio, and 8 slots of that are past the run. */
		assert_int_equal(dropped.calls, 1 + 16 + 1);
		assert_int_equal(dropped.at[0].val, e.val + 16);
		assert_int_equal(dropped.at[1].val, e.val + 32);
		assert_int_equal(dropped.at[17].val, e.val + 48);
		assert_int_equal(byte(plus(e, 3)), 1);
		for (unsigned i = 4; i < 32; i++)
			assert_int_equal(byte(plus(e, i)), 0);
		for (unsigned i = 32; i < 48; i++)
			assert_int_equal(byte(plus(e, i)), SWAP_HAS_CACHE);
		for (unsigned i = 48; i < 56; i++)
			assert_int_equal(byte(plus(e, i)), 0);
		for (unsigned i = 56; i < C; i++)
			assert_int_equal(byte(plus(e, i)), 1);
		assert_int_equal(used(), C - 12 - 16 - 8);
		assert_int_equal(mock_live(mock[0]), used());
		/* The owner of the busy folio frees it. */
		swapcache_free(&sf, plus(e, 32), 16);
		assert_int_equal(byte(plus(e, 32)), 0);
		check_ok();

		/* A run that begins in the middle of a folio: the front keeps its references. */
		assert_int_equal(swapcache_prepare(&sf, plus(e, 64), 16), 0);
		free_swap_and_cache_nr(&sf, plus(e, 70), 4);
		assert_int_equal(byte(plus(e, 69)), 1);
		assert_int_equal(byte(plus(e, 70)), 0);
		assert_int_equal(byte(plus(e, 74)), 1);

		/* Nobody to drop: cache only, until the owner comes. */
		sf.cache_drop = NULL;
		assert_int_equal(swapcache_prepare(&sf, plus(e, 96), 16), 0);
		free_swap_and_cache_nr(&sf, plus(e, 96), 32);
		assert_int_equal(byte(plus(e, 96)), SWAP_HAS_CACHE);
		assert_int_equal(byte(plus(e, 112)), 0);
		swapcache_free(&sf, plus(e, 96), 16);
		free_swap_and_cache_nr(&sf, e, 4);
		free_swap_and_cache_nr(&sf, plus(e, 56), 14);
		free_swap_and_cache_nr(&sf, plus(e, 74), 22);
		free_swap_and_cache_nr(&sf, plus(e, 128), 384);
		assert_int_equal(used(), 0);
		assert_int_equal(list_of(e), SWAP_LIST_FREE);
		assert_int_equal(mock_live(mock[0]), 0);
		assert_int_equal(sf.bad_frees, 0);
		check_ok();
	}
}

/* A whole cluster in the cache: 32 folios, 32 calls, but for the busy one. */
static void test_reclaim_whole_cluster(void **state)
{
	swp_entry_t e = swapped(C);

	(void)state;
	sf.ctx = &sf;
	sf.cache_drop = drop_folio;
	assert_int_equal(swapcache_prepare(&sf, e, C), 0);
	free_swap_and_cache_nr(&sf, e, C);
	assert_int_equal(dropped.calls, 31 + 16);
	assert_int_equal(used(), 16);
	assert_int_equal(sf.batch_frees, 1);
	assert_int_equal(sf.cluster_frees, 0);
	/* The callback only ever sees slots whose flag was set, not those that were freed. */
	swapcache_free(&sf, plus(e, 32), 16);
	assert_int_equal(used(), 0);
	check_ok();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_no_memory_for_overflow),
		T(test_duplicate),
		T(test_overflow),
		T(test_overflow_at_its_end),
		T(test_cache_flag),
		T(test_free_bounds),
		T(test_free_of_free_slot),
		T(test_free_batch_counts),
		T(test_free_across_clusters),
		T(test_free_shared),
		T(test_reclaim_step),
		T(test_reclaim_whole_cluster),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
