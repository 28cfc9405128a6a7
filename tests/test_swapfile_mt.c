/* SPDX-License-Identifier: MIT */
/*
 * test_swapfile_mt.c - eight threads at one swap file.  Written for ThreadSanitizer, but it proves
 * something without it too: each slot carries a stamp of its owner in memory without locks.
 *
 * timeout: 300
 */
#include "swap_fixture.h"

#include <pthread.h>

#define THREADS	 8
#define HELD	 64 /* runs a thread holds at a time */
#define CLUSTERS 24
#define SLOTS	 (CLUSTERS * C)

#if HAS_TSAN
#define ROUNDS 60000
#else
#define ROUNDS 300000
#endif

struct run {
	swp_entry_t e;
	unsigned nr;
};

/* Runs that were duplicated for somebody else to free. */
static struct {
	struct ps_mutex lock;
	struct run runs[256];
	unsigned nr;
} mailbox;

/* A cache of single pages: 0 not in it, 1 in it, 2 somebody has it locked. */
static _Atomic u8 cache[SLOTS];
static _Atomic u32 stamp[SLOTS];
static _Atomic s64 charged;
static _Atomic unsigned failures;

#define CHECK(x)                                                        \
	do {                                                            \
		if (!(x) && relaxed_add(&failures, 1) == 0)             \
			fprintf(stderr, "line %d: %s\n", __LINE__, #x); \
	} while (0)

static void mt_uncharge(void *ctx, u16 group, unsigned nr)
{
	(void)ctx;
	CHECK(group == 1);
	relaxed_sub(&charged, nr);
}

/* As in the engine: lock the folio, then see whether the slot is still nobody's. */
static unsigned mt_drop(void *ctx, swp_entry_t e)
{
	u8 in = 1;

	(void)ctx;
	if (!atomic_compare_exchange_strong(&cache[swp_offset(e)], &in, 2))
		return 0;
	if (swap_count(&sf, e, NULL)) {
		atomic_store(&cache[swp_offset(e)], 1);
		return 0;
	}
	atomic_store(&cache[swp_offset(e)], 0);
	return 1;
}

static u32 rnd(u64 *s)
{
	*s += 0x9e3779b97f4a7c15ULL;
	u64 z = (*s ^ *s >> 30) * 0xbf58476d1ce4e5b9ULL;

	return (u32)((z ^ z >> 27) >> 16);
}

/* New slots are ours alone: stamp, write, charge, refer to them, let go of the data. */
static void use_new(swp_entry_t e, unsigned nr, unsigned self)
{
	for (unsigned i = 0; i < nr; i++)
		CHECK(atomic_exchange(&stamp[swp_offset(e) + i], self + 1) == 0);
	mock_write(swap_store(&sf, e), swp_offset(e), nr);
	swap_group_record(&sf, e, nr, 1);
	relaxed_add(&charged, nr);
	CHECK(swap_duplicate(&sf, e, nr) == 0);
	swapcache_free(&sf, e, nr);
}

static unsigned get_runs(u64 *seed, unsigned self, struct run *held)
{
	swp_entry_t e[C];
	unsigned n = 0, got;

	if (rnd(seed) % 2) {
		static const u8 orders[8] = { 0, 0, 0, 4, 4, 4, 4, 9 };
		unsigned order = orders[rnd(seed) % 8];

		if (swap_alloc_order(&sf, 0, self / 2, order, e))
			return 0;
		use_new(e[0], 1U << order, self);
		held[0] = (struct run){ e[0], 1U << order };
		return 1;
	}
	got = swap_alloc_pages(&sf, 0, self, 1 + rnd(seed) % 40, e);
	for (unsigned i = 0, k; i < got; i += k) {
		k = swap_entry_batch(&sf, e + i, got - i);
		use_new(e[i], k, self);
		held[n++] = (struct run){ e[i], k };
	}
	return n;
}

/* The stamps go just before the last reference: nobody else has the slots. */
static void drop_run(struct run r)
{
	for (unsigned i = 0; i < r.nr; i++)
		atomic_store(&stamp[swp_offset(r.e) + i], 0);
	free_swap_and_cache_nr(&sf, r.e, r.nr);
}

/* Read back into the cache, and sometimes out of it again. */
static void touch_cache(u64 *seed, struct run r)
{
	swp_entry_t e = plus(r.e, rnd(seed) % r.nr);
	u8 in = 1;

	if (swapcache_prepare(&sf, e, 1) == 0) {
		CHECK(mock_of(swap_store(&sf, e))->live[swp_offset(e)] == 1); /* a read */
		atomic_store(&cache[swp_offset(e)], 1);
	}
	if (rnd(seed) % 2 && atomic_compare_exchange_strong(&cache[swp_offset(e)], &in, 0))
		swapcache_free(&sf, e, 1);
}

/* Shares a run: one more reference, which whoever empties the mailbox drops. */
static void send(struct run r)
{
	CHECK(swap_duplicate(&sf, r.e, r.nr) == 0);
	ps_mutex_lock(&mailbox.lock);
	if (mailbox.nr < ARRAY_SIZE(mailbox.runs)) {
		mailbox.runs[mailbox.nr++] = r;
		r.nr = 0;
	}
	ps_mutex_unlock(&mailbox.lock);
	if (r.nr)
		free_swap_and_cache_nr(&sf, r.e, r.nr);
}

static bool receive(void)
{
	struct run r = { .nr = 0 };

	ps_mutex_lock(&mailbox.lock);
	if (mailbox.nr)
		r = mailbox.runs[--mailbox.nr];
	ps_mutex_unlock(&mailbox.lock);
	if (r.nr)
		free_swap_and_cache_nr(&sf, r.e, r.nr);
	return r.nr;
}

/*
 * A run that was sent may still be referred to by the mailbox when its owner drops it; then the
 * slots stay taken with the stamp gone, and are free when the receiver is done: still nobody
 * allocates them while they are stamped.
 */
static void *worker(void *arg)
{
	unsigned self = (unsigned)(uintptr_t)arg, n = 0;
	struct run held[HELD + 64];
	u64 seed = self * 1000003 + 1;

	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned what = rnd(&seed) % 8;
		unsigned at = n ? rnd(&seed) % n : 0;

		if (what < 3 && n < HELD) {
			n += get_runs(&seed, self, held + n);
		} else if (what < 5 && n) {
			drop_run(held[at]);
			held[at] = held[--n];
		} else if (what < 6 && n) {
			touch_cache(&seed, held[at]);
		} else if (what < 7 && n) {
			send(held[at]);
		} else {
			receive();
		}
	}
	while (n)
		drop_run(held[--n]);
	return NULL;
}

static void run_threads(enum swap_free_mode mode)
{
	pthread_t t[THREADS];

	sf.free_mode = mode;
	sf.cache_drop = mt_drop;
	sf.uncharge = mt_uncharge;
	assert_int_equal(swapfile_enable_groups(&sf), 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, worker, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	while (receive())
		;
	/* What was busy in the cache when its last reference went is its owner's to free: ours. */
	for (unsigned i = 0; i < SLOTS; i++) {
		u8 in = 1;

		if (atomic_compare_exchange_strong(&cache[i], &in, 0))
			swapcache_free(&sf, swp_entry(0, i), 1);
	}
	assert_int_equal(failures, 0);
	assert_int_equal(sf.bad_frees, 0);
	assert_int_equal(used(), 0);
	assert_int_equal(charged, 0);
	assert_int_equal(mock_live(mock[0]), 0);
	check_ok();
	assert_int_equal(sf.areas[0]->lists[SWAP_LIST_FREE].nr, sf.areas[0]->nr_touched);
}

static int mt_setup(void **state)
{
	int ret = setup(state);

	/* Instead of the four clusters of the fixture; small, so that it is full often. */
	swapfile_close(&sf);
	mock_close(mock[0]);
	add_area(CLUSTERS);
	return ret;
}

static void test_threads_batch(void **state)
{
	(void)state;
	run_threads(SWAP_FREE_BATCH);
	assert_true(sf.batch_frees > 0);
	assert_true(sf.cluster_frees > 0);
}

static void test_threads_entry(void **state)
{
	(void)state;
	run_threads(SWAP_FREE_ENTRY);
	assert_int_equal(sf.batch_frees, 0);
}

/* Every slot is had by somebody: no allocation fails while there is a free one, however busy. */
static _Atomic unsigned taken;

static void *take_all(void *arg)
{
	unsigned self = (unsigned)(uintptr_t)arg;
	swp_entry_t e[64];
	unsigned n;

	while ((n = swap_alloc_pages(&sf, 0, self, 1 + self * 7 % 64, e))) {
		for (unsigned i = 0; i < n; i++)
			CHECK(atomic_exchange(&stamp[swp_offset(e[i])], self + 1) == 0);
		relaxed_add(&taken, n);
	}
	return NULL;
}

static void test_threads_take_every_slot(void **state)
{
	pthread_t t[THREADS];

	(void)state;
	memset(stamp, 0, sizeof(stamp));
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, take_all, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(failures, 0);
	assert_int_equal(taken, SLOTS);
	assert_int_equal(used(), SLOTS);
	check_ok();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_threads_batch, mt_setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads_entry, mt_setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads_take_every_slot, mt_setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
