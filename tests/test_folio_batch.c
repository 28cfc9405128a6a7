/* SPDX-License-Identifier: MIT */
/* test_folio_batch.c - batches, both drain rules, and the lists they move folios to. */
#include "lru_fixture.h"

#include <sched.h>

#define N FOLIO_BATCH_SIZE

/* "This CPU" stays the same. */
static int pin(void **state)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(sched_getcpu(), &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
	return lru_setup(state);
}

static void test_batch_holds_31(void **state)
{
	struct folio *f = new_folios(N, 1);
	struct folio_batch fb;

	(void)state;
	folio_batch_init(&fb);
	assert_int_equal(folio_batch_count(&fb), 0);
	assert_int_equal(folio_batch_space(&fb), 31);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(folio_batch_add(&fb, &f[i]), N - 1 - i);
	assert_int_equal(folio_batch_count(&fb), 31);
	fb.percpu_pvec_drained = true;
	folio_batch_reinit(&fb);
	assert_int_equal(folio_batch_count(&fb), 0);
	assert_true(fb.percpu_pvec_drained);
	folio_batch_init(&fb);
	assert_false(fb.percpu_pvec_drained);
	free(f);
}

static void test_add_waits_for_31(void **state)
{
	struct folio *f = new_folios(N + 1, 1);

	(void)state;
	for (unsigned i = 0; i < N - 1; i++)
		folio_add_lru(&lru, &f[i]);
	folio_add_lru(&lru, &f[0]); /* it waits already */
	assert_int_equal(waiting(), N - 1);
	assert_int_equal(lruvec_nr(&lru.root, LRU_ACTIVE), 0);
	folio_add_lru(&lru, &f[N - 1]);
	assert_int_equal(waiting(), 0);
	assert_int_equal(lruvec_nr(&lru.root, LRU_ACTIVE), N);
	assert_int_equal(lruvec_pages(&lru.root, LRU_ACTIVE), N);
	assert_ptr_equal(lru.root.head[LRU_ACTIVE], &f[N - 1]);
	assert_ptr_equal(lru.root.tail[LRU_ACTIVE], &f[0]);
	folio_add_lru(&lru, &f[N]);
	assert_int_equal(waiting(), 1);
	lru_add_drain(&lru);
	assert_int_equal(waiting(), 0);
	assert_int_equal(lruvec_nr(&lru.root, LRU_ACTIVE), N + 1);
	check_lists();
	free(f);
}

static void test_large_does_not_wait(void **state)
{
	struct folio *small = new_folios(3, 1), *large = new_folios(1, 512);

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		folio_add_lru(&lru, &small[i]);
	folio_add_lru(&lru, large);
	assert_int_equal(waiting(), 0);
	assert_int_equal(lruvec_nr(&lru.root, LRU_ACTIVE), 4);
	assert_int_equal(lruvec_pages(&lru.root, LRU_ACTIVE), 515);
	check_lists();
	free(small);
	free(large);
}

static void test_drain_of_one_cpu_and_of_all(void **state)
{
	struct folio *f = new_folios(8, 1);

	(void)state;
	/* As if by threads on other CPUs. */
	for (unsigned cpu = 0; cpu < 4; cpu++) {
		struct lru_cpu *c = &lru.cpus[cpu];

		f[cpu].want = LRU_ACTIVE;
		f[cpu].pending = 1;
		folio_batch_add(&c->batch[LRU_OP_ADD], &f[cpu]);
		c->nr = 1;
	}
	lru.nr_cpus = 4;
	lru_add_drain_cpu(&lru, 2);
	assert_int_equal(f[2].list, LRU_ACTIVE);
	assert_int_equal(waiting(), 3);
	lru_add_drain_all(&lru);
	assert_int_equal(waiting(), 0);
	assert_int_equal(lruvec_nr(&lru.root, LRU_ACTIVE), 4);
	/* Reclaim's drains are not counted. */
	assert_int_equal(lru.drains, 0);
	check_lists();
	free(f);
}

static void test_operations(void **state)
{
	struct folio *f = new_folios(4, 1);

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		folio_add_lru(&lru, &f[i]);
	folio_deactivate(&lru, &f[0]);
	folio_deactivate(&lru, &f[1]);
	assert_int_equal(waiting(), 6);
	lru_add_drain(&lru);
	assert_ptr_equal(lru.root.head[LRU_INACTIVE], &f[1]);
	assert_ptr_equal(lru.root.tail[LRU_INACTIVE], &f[0]);
	folio_rotate_tail(&lru, &f[1]);
	folio_activate(&lru, &f[0]); /* a return from the swap cache promotes */
	lru_add_drain(&lru);
	assert_ptr_equal(lru.root.tail[LRU_INACTIVE], &f[1]);
	assert_ptr_equal(lru.root.head[LRU_ACTIVE], &f[0]);
	assert_int_equal(lruvec_nr(&lru.root, LRU_ACTIVE), 3);
	/* Reclaim sees what waits, and takes the tail to the head. */
	folio_deactivate(&lru, &f[2]);
	assert_ptr_equal(lru_rotate(&lru, &lru.root, LRU_INACTIVE), &f[1]);
	assert_ptr_equal(lru_rotate(&lru, &lru.root, LRU_INACTIVE), &f[2]);
	assert_ptr_equal(lru.root.head[LRU_INACTIVE], &f[2]);
	assert_null(lru_rotate(&lru, &vec2, LRU_ACTIVE));
	folio_del_lru(&f[2]);
	folio_del_lru(&f[2]);
	assert_int_equal(f[2].list, LRU_NONE);
	check_lists();
	free(f);
}

/* Batches are moved in any order; each folio ends where it was sent last. */
static void test_late_moves_do_not_undo(void **state)
{
	struct folio *f = new_folios(1, 1);
	struct folio_batch old;

	(void)state;
	folio_add_lru(&lru, f);
	lru_add_drain(&lru);
	folio_batch_init(&old);
	f->want = LRU_INACTIVE; /* a deactivation that another CPU keeps for long */
	f->pending = 1;
	folio_batch_add(&old, f);
	folio_activate(&lru, f);
	lru_add_drain(&lru);
	folio_batch_move_lru(&old, LRU_OP_DEACTIVATE);
	assert_int_equal(f->list, LRU_ACTIVE);
	/* Taken off while it waits: nothing brings it back. */
	folio_deactivate(&lru, f);
	folio_del_lru(f);
	lru_add_drain(&lru);
	assert_int_equal(f->list, LRU_NONE);
	assert_int_equal(f->pending, 0);
	check_lists();
	free(f);
}

static void test_sizes_follow(void **state)
{
	struct folio *f = new_folios(2, 10);

	(void)state;
	folio_add_lru(&lru, &f[0]);
	folio_add_lru(&lru, &f[1]);
	lru_add_drain(&lru);
	assert_int_equal(lruvec_pages(&lru.root, LRU_ACTIVE), 20);
	f[0].pages = 300;
	folio_add_lru(&lru, &f[0]);
	assert_int_equal(lruvec_pages(&lru.root, LRU_ACTIVE), 310);
	assert_ptr_equal(lru.root.tail[LRU_ACTIVE], &f[0]);
	f[1].pages = 4;
	folio_recount(&f[1]);
	assert_int_equal(lruvec_pages(&lru.root, LRU_ACTIVE), 304);
	folio_deactivate(&lru, &f[0]);
	assert_int_equal(lruvec_pages(&lru.root, LRU_ACTIVE), 4);
	assert_int_equal(lruvec_pages(&lru.root, LRU_INACTIVE), 300);
	check_lists();
	free(f);
}

/* Takes the lock of an lruvec once for each run of folios that share it; here: not at all twice. */
static void test_move_with_two_lruvecs(void **state)
{
	struct folio *f = new_folios(N, 1);
	struct folio_batch fb;

	(void)state;
	folio_batch_init(&fb);
	for (unsigned i = 0; i < N; i++) {
		f[i].lruvec = i / 5 % 2 ? &vec2 : &lru.root;
		f[i].want = LRU_ACTIVE;
		f[i].pending = 1;
		folio_batch_add(&fb, &f[i]);
	}
	folio_batch_move_lru(&fb, LRU_OP_ADD);
	assert_int_equal(folio_batch_count(&fb), 0);
	assert_int_equal(lruvec_nr(&lru.root, LRU_ACTIVE), 16);
	assert_int_equal(lruvec_nr(&vec2, LRU_ACTIVE), 15);
	check_lists();
	free(f);
}

/* Drops objects of n folios as zap_range does, the way the kernel's truncate does. */
static void drop_object(struct folio *f, unsigned n)
{
	struct folio_batch fb;

	folio_batch_init(&fb);
	for (unsigned i = 0; i < n; i++) {
		drop_pages(&f[i]);
		if (!folio_batch_add(&fb, &f[i]))
			folio_batch_release(&lru, &fb);
	}
	folio_batch_release(&lru, &fb);
}

static void drop_objects(bool every)
{
	static const unsigned sizes[] = { 1, 31, 32, 10000 };

	lru.drain_every = every;
	for (unsigned k = 0; k < ARRAY_SIZE(sizes); k++) {
		unsigned n = sizes[k];
		struct folio *f = new_folios(n, 1);
		u64 before;

		for (unsigned i = 0; i < n; i++)
			folio_add_lru(&lru, &f[i]);
		before = lru.drains;
		drop_object(f, n);
		assert_int_equal(lru.drains - before, every ? (n + N - 1) / N : 1);
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(f[i].list, LRU_NONE);
		assert_int_equal(waiting(), 0);
		assert_int_equal(lruvec_nr(&lru.root, LRU_ACTIVE), 0);
		check_lists();
		free(f);
	}
}

static void test_once_drains_once_an_object(void **state)
{
	(void)state;
	drop_objects(false);
}

static void test_every_drains_each_refill(void **state)
{
	(void)state;
	drop_objects(true);
}

static void test_nothing_to_release_drains_nothing(void **state)
{
	struct folio_batch fb;

	(void)state;
	folio_batch_init(&fb);
	folio_batch_release(&lru, &fb);
	assert_int_equal(lru.drains, 0);
	assert_false(fb.percpu_pvec_drained);
}

/* A move in the middle of a use must not make the next release drain again: the regression that
 * the seeds' source fixes (init where reinit belongs). */
static void test_move_keeps_drained(void **state)
{
	struct folio *f = new_folios(3, 1);
	struct folio_batch fb;

	(void)state;
	folio_batch_init(&fb);
	drop_pages(&f[0]);
	folio_batch_add(&fb, &f[0]);
	folio_batch_release(&lru, &fb);
	assert_int_equal(lru.drains, 1);
	assert_true(fb.percpu_pvec_drained);
	f[1].want = LRU_ACTIVE;
	f[1].pending = 1;
	folio_batch_add(&fb, &f[1]);
	folio_batch_move_lru(&fb, LRU_OP_ADD);
	assert_int_equal(folio_batch_count(&fb), 0);
	assert_true(fb.percpu_pvec_drained);
	drop_pages(&f[2]);
	folio_batch_add(&fb, &f[2]);
	folio_batch_release(&lru, &fb);
	assert_int_equal(lru.drains, 1);
	assert_int_equal(f[1].list, LRU_ACTIVE);
	folio_del_lru(&f[1]);
	free(f);
}

/* Parts of a folio go: it stays, smaller; with a frame it stays even without pages. */
static void test_release_of_parts(void **state)
{
	struct folio *f = new_folios(1, 512);
	struct folio_batch fb;

	(void)state;
	folio_add_lru(&lru, f);
	folio_batch_init(&fb);
	for (unsigned i = 0; i < 12; i++)
		folio_batch_add(&fb, f);
	f->pages = 500;
	folio_batch_release(&lru, &fb);
	assert_int_equal(f->list, LRU_ACTIVE);
	assert_int_equal(lruvec_pages(&lru.root, LRU_ACTIVE), 500);
	f->held = 1;
	drop_pages(f);
	folio_batch_add(&fb, f);
	folio_batch_release(&lru, &fb);
	assert_int_equal(f->list, LRU_ACTIVE);
	f->held = 0;
	folio_batch_add(&fb, f);
	folio_batch_release(&lru, &fb);
	assert_int_equal(f->list, LRU_NONE);
	check_lists();
	free(f);
}

/* What waits when its pages go must not come on a list afterwards, whoever's batch it waits in. */
static void test_released_while_it_waits_elsewhere(void **state)
{
	struct folio *f = new_folios(1, 1);
	struct folio_batch elsewhere;

	(void)state;
	f->want = LRU_ACTIVE;
	f->pending = 1;
	folio_batch_init(&elsewhere);
	folio_batch_add(&elsewhere, f);
	drop_object(f, 1);
	folio_batch_move_lru(&elsewhere, LRU_OP_ADD);
	assert_int_equal(f->list, LRU_NONE);
	/* Its next life. */
	f->pages = 1;
	folio_add_lru(&lru, f);
	lru_add_drain(&lru);
	assert_int_equal(f->list, LRU_ACTIVE);
	folio_del_lru(f);
	free(f);
}

#define T(f) cmocka_unit_test_setup(f, pin)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_batch_holds_31),
		T(test_add_waits_for_31),
		T(test_large_does_not_wait),
		T(test_drain_of_one_cpu_and_of_all),
		T(test_operations),
		T(test_late_moves_do_not_undo),
		T(test_sizes_follow),
		T(test_move_with_two_lruvecs),
		T(test_once_drains_once_an_object),
		T(test_every_drains_each_refill),
		T(test_nothing_to_release_drains_nothing),
		T(test_move_keeps_drained),
		T(test_release_of_parts),
		T(test_released_while_it_waits_elsewhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
