/* SPDX-License-Identifier: MIT */
/*
 * test_swapfile.c - swapfile.h: areas, allocation, cluster lists, groups, figures, self-check.
 * References and freeing are test_swapfile_free.c's, random sequences fuzz_swapfile.c's, many
 * threads at once test_swapfile_mt.c's.
 */
#include "swap_fixture.h"

/* ---- areas ---- */

static void test_add_area(void **state)
{
	struct mock_store *m = mock_open(C);
	swp_entry_t e;

	(void)state;
	m->st.nr_slots = 0;
	assert_int_equal(swapfile_add_area(&sf, &m->st), -EINVAL);
	m->st.nr_slots = C + 1;
	assert_int_equal(swapfile_add_area(&sf, &m->st), -EINVAL);
	m->st.nr_slots = (1ULL << SWP_TYPE_SHIFT) + C;
	assert_int_equal(swapfile_add_area(&sf, &m->st), -EINVAL);
	m->st.nr_slots = C;
	while (sf.nr_areas < MAX_SWAPFILES)
		add_area(1);
	assert_int_equal(swapfile_add_area(&sf, &m->st), -ENOSPC);
	mock_close(m);

	/* In order of preference; first_area skips; the last is used when all before are full. */
	for (unsigned a = 0; a < MAX_SWAPFILES; a++) {
		assert_int_equal(swap_alloc_order(&sf, a, 0, 9, &e), 0);
		assert_int_equal(swp_type(e), a);
		assert_ptr_equal(swap_store(&sf, e), &mock[a]->st);
	}
	assert_int_equal(swap_alloc_order(&sf, 1, 0, 9, &e), -ENOSPC);
	assert_int_equal(swap_alloc_order(&sf, MAX_SWAPFILES, 0, 0, &e), -ENOSPC);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &e), 0);
	assert_int_equal(swp_type(e), 0);
	assert_null(swap_store(&sf, swp_entry(MAX_SWAPFILES, 0)));
	assert_null(swap_store(&sf, swp_entry(1, C)));
	assert_null(swap_store(&sf, (swp_entry_t){ 0 }));
	check_ok();
}

static void test_close_counts(void **state)
{
	struct mock_store *m = mock[0];

	(void)state;
	swapped(3);
	assert_int_equal(swapfile_close(&sf), 3);
	assert_int_equal(sf.nr_areas, 0);
	assert_int_equal(swapfile_close(&sf), 0);
	mock_close(m);
}

/* Tables that cannot be had, one after the other; 2^40 slots: 1 TiB of map, 128 GiB of clusters,
 * 2 TiB of owners. */
static void test_no_memory_for_tables(void **state)
{
	struct store st = mock[0]->st;
	struct rlimit old;

	(void)state;
	if (HAS_TSAN)
		skip(); /* not enough address space beside the sanitizer's */
	getrlimit(RLIMIT_AS, &old);
	st.nr_slots = 1ULL << SWP_TYPE_SHIFT;
	limit_space(GiB(512));
	assert_int_equal(swapfile_add_area(&sf, &st), -ENOMEM);
	limit_space(GiB(1024 + 64));
	assert_int_equal(swapfile_add_area(&sf, &st), -ENOMEM);
	limit_space(GiB(1024 + 512));
	assert_int_equal(swapfile_add_area(&sf, &st), 0);
	assert_int_equal(swapfile_enable_groups(&sf), -ENOMEM);
	assert_false(sf.groups);
	setrlimit(RLIMIT_AS, &old);
	/* Areas that have a table keep it, the rest is made up for. */
	assert_int_equal(swapfile_enable_groups(&sf), 0);
	assert_true(sf.groups);
	limit_space(GiB(1024 + 512));
	sf.nr_areas = 1; /* forget the large one for a moment */
	struct swap_info *large = sf.areas[1];
	assert_int_equal(swapfile_add_area(&sf, &st), -ENOMEM);
	setrlimit(RLIMIT_AS, &old);
	sf.areas[1] = large;
	sf.nr_areas = 2;
	/* The last slot of the largest area there can be. */
	swp_entry_t last = swp_entry(1, st.nr_slots - 1);
	assert_ptr_equal(swap_store(&sf, last), &st);
	free_swap_and_cache_nr(&sf, last, 1);
	free_swap_and_cache_nr(&sf, last, 2);
	assert_int_equal(sf.bad_frees, 2);
	assert_int_equal(swapfile_close(&sf), 0);
	mock_close(mock[0]);
}

/* ---- allocation ---- */

static void test_alloc_orders(void **state)
{
	swp_entry_t e0, e4, e9, x;

	(void)state;
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 1, &x), -EINVAL);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 10, &x), -EINVAL);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 0, &e0), 0);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 4, &e4), 0);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &e9), 0);
	assert_int_equal(swp_offset(e4) % 16, 0);
	assert_int_equal(swp_offset(e9) % C, 0);
	/* One cluster for each order. */
	assert_int_equal(list_of(e0), SWAP_LIST_NONFULL + 0);
	assert_int_equal(list_of(e4), SWAP_LIST_NONFULL + 1);
	assert_int_equal(list_of(e9), SWAP_LIST_FULL);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(byte(plus(e4, i)), SWAP_HAS_CACHE);
	assert_int_equal(byte(plus(e4, 16)), 0);
	/* The current cluster goes on. */
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 0, &x), 0);
	assert_int_equal(x.val, e0.val + 1);
	assert_int_equal(swap_alloc_order(&sf, 0, 16, 4, &x), 0); /* cpu modulo 16 */
	assert_int_equal(x.val, e4.val + 16);
	/* Another CPU has its own; here it is the last. */
	assert_int_equal(swap_alloc_order(&sf, 0, 1, 0, &x), 0);
	assert_int_equal(swp_offset(x) / C, 3);
	assert_int_equal(used(), 1 + 16 + 512 + 1 + 16 + 1);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &x), -ENOSPC);
	check_ok();
}

static void test_alloc_pages(void **state)
{
	swp_entry_t e[C + 1];

	(void)state;
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, 0, e), 0);
	/* 33 = two runs of 16 and a single. */
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, 33, e), 33);
	assert_int_equal(swp_offset(e[0]) % 16, 0);
	for (unsigned i = 1; i < 32; i++)
		assert_int_equal(e[i].val, e[0].val + i);
	assert_int_not_equal(swp_offset(e[32]) / C, swp_offset(e[0]) / C);
	/* A whole cluster, also when asked for more than that. */
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, C + 1, e), C);
	assert_int_equal(swp_offset(e[0]) % C, 0);
	for (unsigned i = 1; i < C; i++)
		assert_int_equal(e[i].val, e[0].val + i);
	/* No second free one would be left after this: smaller runs. */
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, C, e), C);
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, C, e), C);
	assert_int_equal(used(), 33 + 3 * C);
	check_ok();
	/* The rest, to the last slot. */
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, C, e), C - 33);
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, 1, e), 0);
	assert_int_equal(used(), 4 * C);
	check_ok();
}

/* The next area is used when the first has not enough, in one call. */
static void test_alloc_pages_two_areas(void **state)
{
	swp_entry_t e[C];

	(void)state;
	add_area(1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(swap_alloc_pages(&sf, 0, 0, C, e), C);
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, 100, e), 100);
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, 500, e), 500);
	assert_int_equal(swp_type(e[411]), 0);
	assert_int_equal(swp_type(e[412]), 1);
	assert_int_equal(swp_type(e[499]), 1);
	assert_int_equal(swap_alloc_pages(&sf, 1, 0, 500, e), C - 88);
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, 1, e), 0);
	check_ok();
}

/* Fragmented: no aligned run of 16 although most of the cluster is free. */
static void test_frag_list(void **state)
{
	swp_entry_t e[C], x;

	(void)state;
	while (swap_alloc_order(&sf, 0, 0, 9, &x) == 0)
		;
	/* Cluster 3 was allocated whole: give back 15 of each 16. */
	for (unsigned i = 0; i < C; i += 16)
		swapcache_free(&sf, swp_entry(0, 3 * C + i), 15);
	x = swp_entry(0, 3 * C);
	assert_int_equal(list_of(x), SWAP_LIST_NONFULL + 2);
	/* Order 4 looks at clusters of larger orders, finds nothing and says so. */
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 4, e), -ENOSPC);
	assert_int_equal(list_of(x), SWAP_LIST_FRAG);
	check_ok();
	/* A freed slot makes it worth another look. */
	swapcache_free(&sf, swp_entry(0, 3 * C + 15), 1);
	assert_int_equal(list_of(x), SWAP_LIST_NONFULL + 2);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 4, e), 0);
	assert_int_equal(e[0].val, x.val);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 4, e), -ENOSPC);
	assert_int_equal(list_of(x), SWAP_LIST_FRAG);
	/* Order 0 takes fragmented ones, which stay fragmented until they are full. */
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 0, e), 0);
	assert_int_equal(swp_offset(e[0]), 3 * C + 16);
	assert_int_equal(list_of(x), SWAP_LIST_FRAG);
	check_ok();
	assert_int_equal(swap_alloc_pages(&sf, 0, 0, C, e), 31 * 15 - 1);
	assert_int_equal(list_of(x), SWAP_LIST_FULL);
	check_ok();
	/* From full to non-full of the order it has had since it was empty. */
	swapcache_free(&sf, swp_entry(0, 3 * C + 100), 1);
	assert_int_equal(list_of(x), SWAP_LIST_NONFULL + 2);
	check_ok();
}

/* An empty cluster goes back to the free list and serves any order again. */
static void test_last_slot_frees_cluster(void **state)
{
	swp_entry_t a, b, x;

	(void)state;
	for (enum swap_free_mode m = SWAP_FREE_BATCH; m <= SWAP_FREE_ENTRY; m++) {
		sf.free_mode = m;
		a = swapped(1);
		b = swapped(1);
		assert_int_equal(list_of(a), SWAP_LIST_NONFULL + 0);
		free_swap_and_cache_nr(&sf, a, 1);
		assert_int_equal(list_of(a), SWAP_LIST_NONFULL + 0);
		free_swap_and_cache_nr(&sf, b, 1);
		assert_int_equal(list_of(a), SWAP_LIST_FREE);
		check_ok();
		/* The current cluster is on the free list now: still good, from its start. */
		assert_int_equal(swap_alloc_order(&sf, 0, 0, 0, &x), 0);
		assert_int_equal(x.val, a.val);
		swapcache_free(&sf, x, 1);
		/* And it is the next one handed out for another order. */
		assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &x), 0);
		assert_int_equal(x.val, a.val);
		/* The hint is stale now and must not be followed. */
		assert_int_equal(swap_alloc_order(&sf, 0, 0, 0, &b), 0);
		assert_int_not_equal(swp_offset(b) / C, swp_offset(x) / C);
		swapcache_free(&sf, b, 1);
		swapcache_free(&sf, x, C);
		assert_int_equal(used(), 0);
		check_ok();
	}
}

/* Once much more was touched than is in use, non-full clusters go before fresh ones. */
static void test_prefers_nonfull_to_many_fresh(void **state)
{
	swp_entry_t e[C], x;
	unsigned cpu1_cluster;

	(void)state;
	add_area(256);
	for (unsigned i = 0; i < 100; i++) {
		/* A cluster for each: order 9, then all but one slot given back. */
		assert_int_equal(swap_alloc_order(&sf, 1, 0, 9, &x), 0);
		e[i] = x;
	}
	/* 100 touched and full: fresh ones it is. */
	assert_int_equal(swap_alloc_order(&sf, 1, 1, 0, &x), 0);
	cpu1_cluster = swp_offset(x) / C;
	assert_int_equal(cpu1_cluster, 100);
	for (unsigned i = 0; i < 100; i++)
		swapcache_free(&sf, plus(e[i], 1), C - 1);
	/* Another CPU now shares the non-full cluster of its order. */
	assert_int_equal(swap_alloc_order(&sf, 1, 2, 0, &x), 0);
	assert_int_equal(swp_offset(x) / C, cpu1_cluster);
	/* Order 9 must have an empty one. */
	assert_int_equal(swap_alloc_order(&sf, 1, 2, 9, &x), 0);
	assert_int_equal(swp_offset(x) / C, 101);
	/* None of order 4 is there: a fresh one. */
	assert_int_equal(swap_alloc_order(&sf, 1, 2, 4, &x), 0);
	assert_int_equal(swp_offset(x) / C, 102);
	check_ok();
}

/* A cluster that somebody has locked is passed over, or waited for if it is the only one. */
static void test_pick_passes_over_busy(void **state)
{
	struct swap_info *si = sf.areas[0];
	swp_entry_t a, b, x;

	(void)state;
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &a), 0);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &b), 0);
	swapcache_free(&sf, a, C);
	swapcache_free(&sf, b, C);
	/* b was freed last, so is first. */
	ps_mutex_lock(&swap_cluster(si, swp_offset(b))->lock);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &x), 0);
	assert_int_equal(x.val, a.val);
	/* Fresh ones before waiting. */
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &x), 0);
	assert_int_equal(swp_offset(x) / C, 2);
	ps_mutex_unlock(&swap_cluster(si, swp_offset(b))->lock);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &x), 0);
	assert_int_equal(x.val, b.val);
	check_ok();
}

/* ---- groups ---- */

static void test_groups_disabled(void **state)
{
	swp_entry_t e = swapped(64), ents[64];

	(void)state;
	sf.uncharge = on_uncharge;
	swap_group_record(&sf, e, 64, 7); /* ignored */
	assert_int_equal(swap_group_lookup(&sf, e), 0);
	for (unsigned i = 0; i < 64; i++)
		ents[i] = plus(e, i);
	assert_int_equal(swap_entry_batch(&sf, ents, 64), 64);
	free_swap_and_cache_nr(&sf, e, 32);
	sf.free_mode = SWAP_FREE_ENTRY;
	free_swap_and_cache_nr(&sf, plus(e, 32), 32);
	assert_int_equal(sf.owner_lookups, 0);
	assert_int_equal(uncharged.total, 64);
	assert_int_equal(uncharged.last_group, 0);
}

static void test_groups(void **state)
{
	swp_entry_t e = swapped(64), ents[64], x;
	struct swapfile_stat before, after;

	(void)state;
	sf.uncharge = on_uncharge;
	swapfile_stat(&sf, &before);
	assert_int_equal(swapfile_enable_groups(&sf), 0);
	assert_int_equal(swapfile_enable_groups(&sf), 0);
	swapfile_stat(&sf, &after);
	assert_true(after.metadata_bytes > before.metadata_bytes);
	swap_group_record(&sf, plus(e, 16), 48, 3);
	swap_group_record(&sf, plus(e, 32), 16, 4);
	swap_group_record(&sf, swp_entry(0, 4 * C - 1), 2, 9); /* past the end: ignored */
	assert_int_equal(swap_group_lookup(&sf, swp_entry(0, 4 * C - 1)), 0);
	assert_int_equal(swap_group_lookup(&sf, swp_entry(0, 4 * C)), 0);
	assert_int_equal(swap_group_lookup(&sf, e), 0);
	assert_int_equal(swap_group_lookup(&sf, plus(e, 16)), 3);
	assert_int_equal(swap_group_lookup(&sf, plus(e, 47)), 4);
	assert_int_equal(sf.owner_lookups, 4);

	/* A batch ends where the group changes. */
	for (unsigned i = 0; i < 64; i++)
		ents[i] = plus(e, i);
	assert_int_equal(swap_entry_batch(&sf, ents, 64), 16);
	assert_int_equal(swap_entry_batch(&sf, ents + 16, 48), 16);
	assert_int_equal(swap_entry_batch(&sf, ents + 32, 32), 16);
	assert_int_equal(swap_entry_batch(&sf, ents + 48, 16), 16);
	assert_true(sf.owner_lookups > 4);

	free_swap_and_cache_nr(&sf, plus(e, 16), 16);
	assert_int_equal(uncharged.calls, 1);
	assert_int_equal(uncharged.last_group, 3);
	assert_int_equal(uncharged.last_nr, 16);
	/* A freed slot has no owner. */
	assert_int_equal(swap_group_lookup(&sf, plus(e, 16)), 0);
	/* A run that nobody cut is charged right all the same. */
	free_swap_and_cache_nr(&sf, plus(e, 40), 24);
	assert_int_equal(uncharged.calls, 3);
	assert_int_equal(uncharged.last_group, 3);
	assert_int_equal(uncharged.last_nr, 16);
	sf.free_mode = SWAP_FREE_ENTRY;
	free_swap_and_cache_nr(&sf, plus(e, 32), 8);
	assert_int_equal(uncharged.last_group, 4);
	assert_int_equal(uncharged.calls, 11);
	free_swap_and_cache_nr(&sf, e, 16);
	assert_int_equal(uncharged.last_group, 0);
	assert_int_equal(uncharged.total, 64);
	check_ok();

	/* An area that comes later records owners too. */
	add_area(1);
	assert_int_equal(swap_alloc_order(&sf, 1, 0, 0, &x), 0);
	swap_group_record(&sf, x, 1, 5);
	assert_int_equal(swap_group_lookup(&sf, x), 5);
	swapcache_free(&sf, x, 1);
	assert_int_equal(uncharged.last_group, 5);
	check_ok();
}

static void test_entry_batch(void **state)
{
	swp_entry_t ents[8];

	(void)state;
	add_area(1);
	for (unsigned i = 0; i < 8; i++)
		ents[i] = swp_entry(0, C - 4 + i);
	assert_int_equal(swap_entry_batch(&sf, ents, 1), 1);
	assert_int_equal(swap_entry_batch(&sf, ents, 3), 3);
	assert_int_equal(swap_entry_batch(&sf, ents, 8), 4); /* the cluster's border */
	assert_int_equal(swap_entry_batch(&sf, ents + 4, 4), 4);
	ents[2] = swp_entry(1, swp_offset(ents[2])); /* another area */
	assert_int_equal(swap_entry_batch(&sf, ents, 8), 2);
	ents[1] = (swp_entry_t){ 0 }; /* not swapped */
	assert_int_equal(swap_entry_batch(&sf, ents, 8), 1);
	ents[1] = ents[0];
	assert_int_equal(swap_entry_batch(&sf, ents, 8), 1);
	ents[0] = swp_entry(5, 0); /* no such area */
	assert_int_equal(swap_entry_batch(&sf, ents, 8), 1);
}

/* ---- the rest ---- */

static void test_after_fork(void **state)
{
	struct swap_info *si = sf.areas[0];
	swp_entry_t e = swapped(1);

	(void)state;
	ps_mutex_lock(&si->lock);
	ps_mutex_lock(&swap_cluster(si, swp_offset(e))->lock);
	swapfile_after_fork(&sf);
	check_ok();
	free_swap_and_cache_nr(&sf, e, 1);
	assert_int_equal(used(), 0);
}

static void test_stat_metadata_follows_use(void **state)
{
	struct swapfile_stat a, b;
	swp_entry_t e;

	(void)state;
	add_area(1 << 20); /* slots for 2 TiB */
	swapfile_stat(&sf, &a);
	assert_true(a.metadata_bytes < KiB(64));
	for (unsigned i = 0; i < 512; i++)
		assert_int_equal(swap_alloc_order(&sf, 1, 0, 9, &e), 0);
	swapfile_stat(&sf, &b);
	/* 1 GiB swapped in whole clusters: 64 bytes for each. */
	assert_int_equal(b.metadata_bytes - a.metadata_bytes, 512 * 64);
	/* The map is used once they differ: at most a page for each, and no more than there is. */
	for (unsigned i = 0; i < 512; i++)
		swapcache_free(&sf, swp_entry(1, i * C), 1);
	swapfile_stat(&sf, &b);
	assert_int_equal(b.metadata_bytes - a.metadata_bytes, 512 * (C + 64));
	assert_int_equal(b.slots, ((1 << 20) + 4) * (u64)C);
}

/* Each fact that swapfile_check knows, broken and put right again. */
#define EXPECT_WRONG(change, undo, what)                            \
	do {                                                        \
		change;                                             \
		assert_non_null(swapfile_check(&sf));               \
		assert_non_null(strstr(swapfile_check(&sf), what)); \
		undo;                                               \
		check_ok();                                         \
	} while (0)

static void test_check_finds(void **state)
{
	struct swap_info *si;
	struct swap_cluster_info *c, *full, *empty, *single;
	struct swap_cluster_list *free;
	swp_entry_t e = swapped(C), f, g;
	u8 *map;

	(void)state;
	swapfile_enable_groups(&sf);
	si = sf.areas[0];
	f = swapped(16);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 0, &g), 0);
	single = swap_cluster(si, swp_offset(g));
	for (unsigned i = 0; i < SWAP_MAP_MAX; i++)
		swap_duplicate(&sf, f, 1);
	assert_int_equal(swap_alloc_order(&sf, 0, 0, 9, &g), 0);
	swapcache_free(&sf, g, C);
	c = swap_cluster(si, swp_offset(f));
	full = swap_cluster(si, swp_offset(e));
	empty = swap_cluster(si, swp_offset(g));
	map = swap_cluster_map(si, c);
	free = &si->lists[SWAP_LIST_FREE];
	check_ok();

	EXPECT_WRONG(map[100] = 1, map[100] = 0, "cluster count");
	EXPECT_WRONG(map[1] = 0x3f, map[1] = 1, "over SWAP_MAP_MAX");
	EXPECT_WRONG(map[1] |= SWAP_CONT, map[1] = 1, "not full");
	EXPECT_WRONG(c->cont[1] = 1, c->cont[1] = 0, "disagree");
	EXPECT_WRONG(c->nr_cont++, c->nr_cont--, "overflowed");
	EXPECT_WRONG(full->byte = 0, full->byte = 1, "cluster count");
	EXPECT_WRONG(empty->byte = 1, empty->byte = 0, "cluster count");
	EXPECT_WRONG(c->in_map = false, c->in_map = true, "disagree");
	EXPECT_WRONG(c->map_used = false, c->map_used = true, "does not know");
	EXPECT_WRONG(full->map_used = true, full->map_used = false, "used the map");
	EXPECT_WRONG(empty->in_map = true, empty->in_map = false, "not uniform");
	EXPECT_WRONG(si->owner[swp_offset(f) + 100] = 1, si->owner[swp_offset(f) + 100] = 0,
		     "owner");
	EXPECT_WRONG(c->lock.word = 1, c->lock.word = 0, "cluster lock");
	EXPECT_WRONG(si->lock.word = 1, si->lock.word = 0, "area lock");
	EXPECT_WRONG(c->order_index = 3, c->order_index = 1, "out of range");
	EXPECT_WRONG(c->order_index = 0, c->order_index = 1, "another order");
	EXPECT_WRONG(c->list = SWAP_LIST_FREE, c->list = SWAP_LIST_NONFULL + 1, "free list");
	EXPECT_WRONG(c->list = SWAP_LIST_FULL, c->list = SWAP_LIST_NONFULL + 1, "full list");
	EXPECT_WRONG(c->list = SWAP_LIST_FRAG, c->list = SWAP_LIST_NONFULL + 1, "frag list");
	EXPECT_WRONG(single->list = SWAP_LIST_FRAG, single->list = SWAP_LIST_NONFULL, "order 0");
	EXPECT_WRONG(full->list = SWAP_LIST_NONFULL + full->order_index,
		     full->list = SWAP_LIST_FULL, "between");
	EXPECT_WRONG(empty->list = SWAP_LIST_NONFULL + empty->order_index,
		     empty->list = SWAP_LIST_FREE, "between");
	EXPECT_WRONG(free->first = c, free->first = empty, "does not name");
	EXPECT_WRONG(c->prev = full, c->prev = NULL, "links");
	EXPECT_WRONG(c->next = c; c->prev = NULL, c->next = NULL, "li");
	EXPECT_WRONG(free->last = NULL, free->last = empty, "last");
	EXPECT_WRONG(free->nr++, free->nr--, "length");
	EXPECT_WRONG(*free = (struct swap_cluster_list){ 0 },
		     *free = ((struct swap_cluster_list){ .first = empty, .last = empty, .nr = 1 }),
		     "no list");
	/* The full list is a number. */
	EXPECT_WRONG(si->lists[SWAP_LIST_FULL].nr++, si->lists[SWAP_LIST_FULL].nr--, "length");
	EXPECT_WRONG(si->lists[SWAP_LIST_FULL].first = full, si->lists[SWAP_LIST_FULL].first = NULL,
		     "l");
	EXPECT_WRONG(si->slots_used++, si->slots_used--, "slots in use");
	EXPECT_WRONG(si->nr_cont_tables++, si->nr_cont_tables--, "overflow tables");
	EXPECT_WRONG(si->type = 1, si->type = 0, "number");
	EXPECT_WRONG(si->nr_touched = 5, si->nr_touched = 4, "more clusters");
	EXPECT_WRONG(si->nr_touched = 3, si->nr_touched = 4, "never used");
	u64 cur = si->cpus[0].current[0];
	EXPECT_WRONG(si->cpus[0].current[0] = 9ULL << 16, si->cpus[0].current[0] = cur, "CPU");
	EXPECT_WRONG(si->cpus[0].current[0] = 1ULL << 16 | 512, si->cpus[0].current[0] = cur,
		     "CPU");
}
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_add_area),
		T(test_close_counts),
		T(test_no_memory_for_tables),
		T(test_alloc_orders),
		T(test_alloc_pages),
		T(test_alloc_pages_two_areas),
		T(test_frag_list),
		T(test_last_slot_frees_cluster),
		T(test_prefers_nonfull_to_many_fresh),
		T(test_pick_passes_over_busy),
		T(test_groups_disabled),
		T(test_groups),
		T(test_entry_batch),
		T(test_after_fork),
		T(test_stat_metadata_follows_use),
		T(test_check_finds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
