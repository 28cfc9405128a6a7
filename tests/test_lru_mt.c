/* SPDX-License-Identifier: MIT */
/*
 * test_lru_mt.c - eight threads at one LRU, each with folios of its own and a pool that all share,
 * reclaim beside them.  Written for ThreadSanitizer; the links, counts and sizes at the end prove
 * something without it too.
 *
 * timeout: 300
 */
#include "lru_fixture.h"

#include <pthread.h>

#define THREADS 8
#define OWN 200	   /* folios of each thread: it alone gives and takes their pages */
#define SHARED 400 /* folios that all threads send from list to list */

#define ROUNDS 625000U /* of each thread: 10^7 operations under both rules */

static struct folio *own[THREADS], *shared;
static _Atomic unsigned failures;
static _Atomic u64 releases; /* expected drains, under both rules */

#define CHECK(x)                                                        \
	do {                                                            \
		if (!(x) && relaxed_add(&failures, 1) == 0)             \
			fprintf(stderr, "line %d: %s\n", __LINE__, #x); \
	} while (0)

static u32 rnd(u64 *s)
{
	*s += 0x9e3779b97f4a7c15ULL;
	u64 z = (*s ^ *s >> 30) * 0xbf58476d1ce4e5b9ULL;

	return (u32)((z ^ z >> 27) >> 16);
}

/* Some of a thread's own folios lose all of their pages. */
static void truncate_some(struct folio *f, u64 *seed)
{
	unsigned first = rnd(seed) % OWN, n = 1 + rnd(seed) % 70, in_batch = 0;
	struct folio_batch fb;
	u64 drains = 0;

	folio_batch_init(&fb);
	for (unsigned i = first; i < OWN && n; i++, n--) {
		drop_pages(&f[i]);
		in_batch++;
		if (!folio_batch_add(&fb, &f[i])) {
			folio_batch_release(&lru, &fb);
			drains++;
			in_batch = 0;
		}
	}
	if (in_batch)
		drains++;
	folio_batch_release(&lru, &fb);
	relaxed_add(&releases, lru.drain_every ? drains : 1);
}

static void one(struct folio *f, u64 *seed)
{
	switch (rnd(seed) % 8) {
	case 0:
	case 1:
	case 2:
		if (!relaxed_load(&f->pages))
			relaxed_store(&f->pages, rnd(seed) % 8 ? 1 + rnd(seed) % 12 : 512);
		folio_add_lru(&lru, f);
		break;
	case 3:
		if (relaxed_load(&f->pages))
			folio_deactivate(&lru, f);
		break;
	case 4:
		if (relaxed_load(&f->pages))
			folio_activate(&lru, f);
		break;
	case 5:
		folio_del_lru(f);
		break;
	case 6:
		folio_recount(f);
		break;
	case 7:
		if (relaxed_load(&f->pages))
			folio_rotate_tail(&lru, f);
	}
}

static void *worker(void *arg)
{
	unsigned self = (unsigned)(uintptr_t)arg;
	u64 seed = self * 1000003 + 1;

	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned what = rnd(&seed) % 32;

		if (what == 0) {
			truncate_some(own[self], &seed);
		} else if (what == 1) {
			struct lruvec *vec = rnd(&seed) % 2 ? &vec2 : &lru.root;
			struct folio *f = lru_rotate(&lru, vec, LRU_ACTIVE + rnd(&seed) % 2);

			CHECK(!f || f->lruvec == vec);
		} else if (what < 20) {
			one(&own[self][rnd(&seed) % OWN], &seed);
		} else {
			one(&shared[rnd(&seed) % SHARED], &seed);
		}
	}
	return NULL;
}

/* Where a folio ended, and that its list knows. */
static void check_folios(struct folio *f, unsigned n, u64 nr[2][LRU_NR], u64 pages[2][LRU_NR])
{
	for (unsigned i = 0; i < n; i++) {
		unsigned v = f[i].lruvec == &vec2;

		folio_recount(&f[i]);
		assert_int_equal(f[i].pending, 0);
		if (f[i].list != LRU_NONE || f[i].pages)
			assert_int_equal(f[i].list, f[i].want);
		nr[v][f[i].list]++;
		pages[v][f[i].list] += f[i].pages;
	}
}

static void run_threads(bool every)
{
	u64 nr[2][LRU_NR] = { { 0 } }, pages[2][LRU_NR] = { { 0 } };
	pthread_t t[THREADS];

	lru.drain_every = every;
	releases = 0;
	shared = new_folios(SHARED, 1);
	for (unsigned i = 0; i < SHARED; i += 3)
		shared[i].lruvec = &vec2;
	for (unsigned i = 0; i < THREADS; i++) {
		own[i] = new_folios(OWN, 1);
		for (unsigned k = 0; k < OWN; k += 4)
			own[i][k].lruvec = &vec2;
	}
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, worker, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(failures, 0);
	assert_int_equal(lru.drains, releases);
	lru_add_drain_all(&lru);
	assert_int_equal(waiting(), 0);
	check_folios(shared, SHARED, nr, pages);
	for (unsigned i = 0; i < THREADS; i++)
		check_folios(own[i], OWN, nr, pages);
	check_lists();
	for (unsigned list = LRU_ACTIVE; list < LRU_NR; list++) {
		assert_int_equal(lruvec_nr(&lru.root, list), nr[0][list]);
		assert_int_equal(lruvec_nr(&vec2, list), nr[1][list]);
		assert_int_equal(lruvec_pages(&lru.root, list), pages[0][list]);
		assert_int_equal(lruvec_pages(&vec2, list), pages[1][list]);
	}
	free(shared);
	for (unsigned i = 0; i < THREADS; i++)
		free(own[i]);
}

static void test_threads_once(void **state)
{
	(void)state;
	run_threads(false);
}

static void test_threads_every(void **state)
{
	(void)state;
	run_threads(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_threads_once, lru_setup),
		cmocka_unit_test_setup(test_threads_every, lru_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
