/* SPDX-License-Identifier: MIT */
/*
 * test_group.c - groups of the library: charges, owners of slots, limits, moving, deleting, under
 * each fallback.
 *
 * timeout: 300
 */
#include "api_fixture.h"

#define N 4096U /* pages: 16 MiB */

static s64 resident(unsigned id)
{
	settle();
	return relaxed_load(&ps->groups.table[id].resident);
}

static u64 split_batches(void)
{
	return relaxed_load(&ps->swap.split_batches);
}

/* With the root group only, nothing is stored or looked up. */
static void no_lookups(void)
{
	char *p;

	ps = open_limit(MiB(256));
	p = map(N, NULL, 0);
	for (unsigned round = 0; round < 2; round++) {
		fill(p, round, N);
		advise(p, N, MADV_PAGEOUT);
		expect(p, round, N / 2);
		advise(p, N, MADV_COLD);
		advise(p, N, MADV_DONTNEED);
	}
	fill(p, 7, N);
	advise(p, N, MADV_PAGEOUT);
	unmap(p, N);
	assert_int_equal(stat_now().owner_lookups, 0);
	assert_null(ps->groups.table);
	for (unsigned i = 0; i < ps->swap.nr_areas; i++)
		assert_null(relaxed_load(&ps->swap.areas[i]->owner));
	close_empty();
}

static void test_no_lookups(void **state)
{
	(void)state;
	with_fallbacks(no_lookups);
}

/* Two groups whose pages alternate in pieces of `run`: no batch spans both. */
static void interleaved(unsigned run)
{
	struct pswap_group *a, *b;
	char *p;
	u64 frees;

	ps = open_limit(MiB(256));
	p = map(N, NULL, run >= 16 ? 0 : PSWAP_MAP_NOHUGE);
	fill(p, 1, N);
	a = new_group(MiB(64));
	b = new_group(MiB(64));
	assert_int_equal(pswap_group_move(ps, p, PAGES(N), a), 0);
	for (unsigned i = run; i < N; i += 2 * run)
		assert_int_equal(pswap_group_move(ps, p + PAGES(i), PAGES(run), b), 0);
	check_all();
	assert_int_equal(resident(a->id), N / 2);
	assert_int_equal(resident(b->id), N / 2);
	assert_int_equal(resident(0), 0);
	assert_int_equal(group_stat_now(a).mapped_bytes, PAGES(N / 2));
	advise(p, N, MADV_COLD);
	check_all();
	advise(p, N, MADV_PAGEOUT);
	check_all();
	if (stat_now().swapped_pages == N) {
		assert_int_equal(group_stat_now(a).swapped_pages, N / 2);
		assert_int_equal(group_stat_now(b).swapped_pages, N / 2);
		assert_int_equal(resident(a->id) + resident(b->id), 0);
		/* Some come back, and go again. */
		for (unsigned i = 0; i < N; i += 5)
			expect_page(p, 1, i);
		check_all();
		advise(p, N, MADV_PAGEOUT);
		check_all();
		assert_int_equal(group_stat_now(a).swapped_pages, N / 2);
		assert_int_equal(group_stat_now(b).swapped_pages, N / 2);
		for (unsigned i = 0; i < N / 2; i++)
			for (unsigned k = 0; k < 2; k++) {
				unsigned page = 2 * i + k;
				struct extent *e =
					pt_find(&ps->mm, (u64)(uintptr_t)p + PAGES(page));
				pte_t pte = pte_get(e, pt_index((u64)(uintptr_t)p + PAGES(page)));

				assert_int_equal(pte_kind(pte), PTE_SWAP);
				assert_int_equal(swap_group_lookup(&ps->swap, pte_to_swp(pte)),
						 page / run % 2 ? b->id : a->id);
			}
	}
	frees = relaxed_load(&ps->swap.batch_frees);
	assert_true(stat_now().owner_lookups > 0);
	unmap(p, N / 2);
	check_all();
	unmap(p + PAGES(N / 2), N / 2);
	check_all();
	assert_int_equal(split_batches(), 0);
	if (run > 1 && ps->swap.free_mode == SWAP_FREE_BATCH && ps->caps.move)
		assert_true(relaxed_load(&ps->swap.batch_frees) - frees >= N / run);
	assert_int_equal(group_stat_now(a).swapped_pages, 0);
	assert_int_equal(group_stat_now(b).swapped_pages, 0);
	assert_int_equal(pswap_group_delete(a), 0);
	assert_int_equal(pswap_group_delete(b), 0);
	close_empty();
}

static void by_pages(void)
{
	interleaved(1);
}

static void by_blocks(void)
{
	interleaved(16);
}

static void test_interleaved_pages(void **state)
{
	(void)state;
	with_fallbacks(by_pages);
}

static void test_interleaved_blocks(void **state)
{
	(void)state;
	with_fallbacks(by_blocks);
}

/* A region in four states: swapped, cached, resident, never touched. */
static char *four_states(u64 seed)
{
	char *p = map(N, NULL, 0);

	fill(p, seed, 3 * N / 4);
	advise(p, N / 4, MADV_PAGEOUT);
	advise(p + PAGES(N / 4), N / 4, MADV_COLD);
	return p;
}

static void expect_four(const char *p, u64 seed)
{
	expect(p, seed, 3 * N / 4);
	for (unsigned i = 3 * N / 4; i < N; i++)
		assert_int_equal(p[PAGES(i)], 0);
}

static void move_states(void)
{
	struct pswap_group *a, *b;
	char *p, *q;
	s64 pages;

	ps = open_limit(MiB(256));
	p = four_states(3);
	a = new_group(MiB(64));
	b = new_group(MiB(128));
	check_all();
	pages = resident(0);
	assert_int_equal(pswap_group_move(ps, p, PAGES(N), a), 0);
	check_all();
	assert_int_equal(resident(0), 0);
	assert_int_equal(resident(a->id), pages);
	assert_int_equal(resident(a->id) + group_stat_now(a).swapped_pages, 3 * N / 4);
	/* An odd part of it, from the middle of one extent into the middle of another. */
	assert_int_equal(pswap_group_move(ps, p + PAGES(N / 4 - 300), PAGES(N / 2 + 77), b), 0);
	check_all();
	assert_int_equal(group_stat_now(b).mapped_bytes, PAGES(N / 2 + 77));
	expect_four(p, 3);
	check_all();
	/* Memory that comes new to a group, beside memory of another in the same extent. */
	q = map(3, b, 0);
	fill(q, 4, 3);
	check_all();
	assert_int_equal(pswap_group_move(ps, p, PAGES(N), NULL), 0);
	assert_int_equal(resident(a->id), 0);
	assert_int_equal(resident(b->id), 3);
	check_all();
	unmap(q, 3);
	check_all();
	expect_four(p, 3);
	unmap(p, N);
	close_empty(); /* with the groups in it */
}

static void test_move_states(void **state)
{
	(void)state;
	with_fallbacks(move_states);
}

static void delete_hands_over(void)
{
	struct pswap_group_stat st = { .size = sizeof(st) };
	struct pswap_group *a, *b, *c;
	char *p, *q;
	u64 lookups;

	ps = open_limit(MiB(256));
	p = four_states(5);
	q = map(N, NULL, 0);
	a = new_group(MiB(64));
	b = new_group(MiB(64));
	assert_int_equal(pswap_group_move(ps, p, PAGES(N), a), 0);
	assert_int_equal(pswap_group_move(ps, p + PAGES(100), PAGES(N - 1000), b), 0);
	fill(q, 6, N);
	advise(q, N, MADV_PAGEOUT);
	check_all();
	a->refs++; /* a call in progress */
	expect_error(pswap_group_delete(a), EBUSY);
	a->refs--;
	assert_int_equal(pswap_group_delete(a), 0);
	check_all();
	expect_error(pswap_group_delete(a), EINVAL);
	expect_error(pswap_group_stat(a, &st), EINVAL);
	expect_error(pswap_group_move(ps, p, PAGES(N), a), EINVAL);
	assert_true(pswap_mmap(ps, PAGE_SIZE, a, 0) == MAP_FAILED);
	assert_int_equal(errno, EINVAL);
	/* A new one has nothing of it. */
	c = new_group(MiB(32));
	assert_ptr_not_equal(c, a);
	assert_int_equal(group_stat_now(c).mapped_bytes, 0);
	assert_int_equal(group_stat_now(c).swapped_pages, 0);
	assert_int_equal(pswap_group_delete(b), 0);
	check_all();
	assert_int_equal(pswap_group_delete(c), 0);
	check_all();
	/* The last one is gone: no look-ups any more. */
	lookups = stat_now().owner_lookups;
	expect_four(p, 5);
	expect(q, 6, N);
	advise(p, N, MADV_PAGEOUT);
	unmap(p, N);
	unmap(q, N);
	assert_int_equal(stat_now().owner_lookups, lookups);
	/* And again. */
	a = new_group(MiB(32));
	p = map(N, a, 0);
	fill(p, 8, N);
	check_all();
	advise(p, N, MADV_PAGEOUT);
	check_all();
	assert_int_equal(group_stat_now(a).swapped_pages + resident(a->id), N);
	expect(p, 8, N);
	unmap(p, N);
	close_empty();
}

static void test_delete(void **state)
{
	(void)state;
	with_fallbacks(delete_hands_over);
}

static bool page_resident(const char *p)
{
	struct extent *e = pt_find(&ps->mm, (u64)(uintptr_t)p);
	bool there;

	settle();
	ps_mutex_lock(&e->lock);
	there = present_test(e, pt_index((u64)(uintptr_t)p));
	ps_mutex_unlock(&e->lock);
	return there;
}

/* A full group takes from itself: the root's memory, older and idle, stays where it is. */
static void full_group(void)
{
	struct pswap_group *g;
	struct pswap_group_stat st;
	char *root, *own, *both;
	unsigned there = 0;

	ps = open_limit(MiB(512));
	root = map(N, NULL, 0);
	fill(root, 1, N);
	g = new_group(MiB(16));
	own = map(4 * N, g, 0);
	fill(own, 2, 4 * N);
	st = group_stat_now(g);
	assert_in_range(st.peak_resident_bytes, MiB(8), MiB(16));
	assert_int_equal(st.limit_bytes, MiB(16));
	assert_true(st.pages_reclaimed >= 3 * N - 2 * 512);
	assert_int_equal(resident(0), N);
	for (unsigned i = 0; i < N; i++)
		assert_true(page_resident(root + PAGES(i)));
	expect(own, 2, 4 * N);
	check_all();
	assert_int_equal(resident(0), N);
	unmap(own, 4 * N);
	/* The same where every extent has pages of both: taking them out leaves the root's. */
	both = map(4 * N, NULL, 0);
	for (unsigned i = 0; i < 4 * N; i += 64)
		assert_int_equal(pswap_group_move(ps, both + PAGES(i), PAGES(32), g), 0);
	fill(both, 3, 4 * N);
	assert_true(group_stat_now(g).resident_bytes <= MiB(16));
	check_all();
	for (unsigned i = 0; i < 4 * N; i++)
		if (i % 64 >= 32)
			there += page_resident(both + PAGES(i));
	assert_int_equal(there, 2 * N);
	expect(both, 3, 4 * N);
	assert_true(group_stat_now(g).resident_bytes <= MiB(16));
	assert_int_equal(resident(0), 3 * N);
	check_all();
	/* What is too much for it goes out when it comes. */
	assert_int_equal(pswap_group_move(ps, root, PAGES(N), g), 0);
	assert_true(group_stat_now(g).resident_bytes <= MiB(16));
	expect(root, 1, N);
	check_all();
	unmap(root, N);
	unmap(both, 4 * N);
	assert_int_equal(pswap_group_delete(g), 0);
	close_empty();
}

static void test_full(void **state)
{
	(void)state;
	with_fallbacks(full_group);
}

/* The engine is full: all groups give. */
static void test_global_pressure(void **state)
{
	struct pswap_group *g;
	char *p, *q;

	(void)state;
	ps = open_limit(MiB(96));
	g = new_group(MiB(512));
	p = map(4 * N, NULL, 0);
	q = map(4 * N, g, 0);
	for (unsigned round = 0; round < 3; round++) {
		fill(p, 10 + round, 4 * N);
		fill(q, 20 + round, 4 * N);
	}
	assert_true(group_stat_now(g).pages_out > N);
	assert_true(relaxed_load(&ps->groups.table[0].pages_out) > N);
	assert_int_equal(group_stat_now(g).pages_reclaimed, 0);
	expect(p, 12, 4 * N);
	expect(q, 22, 4 * N);
	check_all();
	unmap(p, 4 * N);
	assert_int_equal(pswap_group_delete(g), 0);
	expect(q, 22, 4 * N);
	unmap(q, 4 * N);
	close_empty();
}

static void test_errors(void **state)
{
	struct pswap_group *g = NULL, *other;
	struct pswap_group_stat st = { .size = sizeof(st) };
	struct pswap *first, *second;
	char *p;

	(void)state;
	second = open_limit(MiB(64));
	first = ps = open_limit(MiB(64));
	expect_error(pswap_group_create(ps, MiB(4) - 1, &g), EINVAL);
	expect_error(pswap_group_create(ps, 0, &g), EINVAL);
	expect_error(pswap_group_create(ps, UINT64_MAX, &g), EINVAL);
	expect_error(pswap_group_create(ps, MiB(8), NULL), EINVAL);
	expect_error(pswap_group_create(NULL, MiB(8), &g), EINVAL);
	expect_error(pswap_group_delete(NULL), EINVAL);
	expect_error(pswap_group_delete((struct pswap_group *)&st), EINVAL);
	assert_null(ps->groups.table);
	g = new_group(MiB(8));
	expect_error(pswap_group_delete(ps->groups.table), EINVAL); /* the root */
	expect_error(pswap_group_delete((struct pswap_group *)((char *)g + 8)), EINVAL);
	expect_error(pswap_group_stat(g, NULL), EINVAL);
	st.size--;
	expect_error(pswap_group_stat(g, &st), EINVAL);
	p = map(1024, g, 0);
	fill(p, 1, 1024);
	ps = second;
	other = new_group(MiB(8));
	ps = first;
	expect_error(pswap_group_move(ps, p, PAGES(1024), other), EINVAL);
	assert_true(pswap_mmap(ps, PAGE_SIZE, other, 0) == MAP_FAILED);
	assert_int_equal(errno, EINVAL);
	expect_error(pswap_group_move(ps, p + PAGES(8), PAGES(1024), NULL), EINVAL); /* past it */
	expect_error(pswap_group_move(ps, p + 1, PAGES(8), NULL), EINVAL);
	expect_error(pswap_group_move(ps, p, 0, NULL), EINVAL);
	expect_error(pswap_group_move(ps, &st, PAGE_SIZE, NULL), EINVAL);
	unmap(p + PAGES(100), 1);
	expect_error(pswap_group_move(ps, p, PAGES(1024), NULL), EINVAL); /* a hole */
	assert_int_equal(group_stat_now(g).mapped_bytes, PAGES(1023));
	check_all();
	unmap(p, 100);
	unmap(p + PAGES(101), 923);
	assert_int_equal(pswap_close(second), 0);
	expect_error(pswap_group_delete(other), EINVAL);
	close_empty();
	expect_error(pswap_group_delete(g), EINVAL);
}

/* More groups than there can be. */
static void test_many(void **state)
{
	static struct pswap_group *g[PS_MAX_GROUPS];

	(void)state;
	ps = open_limit(MiB(64));
	for (unsigned i = 1; i < PS_MAX_GROUPS; i++)
		g[i] = new_group(MiB(4) + i);
	expect_error(pswap_group_create(ps, MiB(4), &g[0]), ENOSPC);
	for (unsigned i = 1; i < PS_MAX_GROUPS; i += 2)
		assert_int_equal(pswap_group_delete(g[i]), 0);
	for (unsigned i = 1; i < PS_MAX_GROUPS; i += 2)
		g[i] = new_group(MiB(4));
	for (unsigned i = 1; i < PS_MAX_GROUPS; i++) {
		char *p = map(1, g[i], 0);

		fill(p, i, 1);
		assert_int_equal(resident(g[i]->id), 1);
	}
	check_all();
	for (unsigned i = 1; i < PS_MAX_GROUPS; i++)
		assert_int_equal(pswap_group_delete(g[i]), 0);
	assert_false(relaxed_load(&ps->groups.on));
	assert_int_equal(pswap_close(ps), 0);
}

static void test_locked(void **state)
{
	struct pswap_group *g;
	char *p;

	(void)state;
	ps = open_limit(MiB(64));
	g = new_group(MiB(4));
	p = map(2048, NULL, PSWAP_MAP_NOHUGE);
	fill(p, 1, 2048);
	if (lock_pages(p, 1536)) {
		assert_int_equal(pswap_close(ps), 0);
		printf("memory cannot be locked here\n");
		skip();
	}
	expect_error(pswap_group_move(ps, p, PAGES(2048), g), EBUSY);
	assert_int_equal(group_stat_now(g).mapped_bytes, 0);
	check_all();
	assert_int_equal(pswap_group_move(ps, p, PAGES(512), g), 0);
	expect_error(pswap_group_move(ps, p + PAGES(512), PAGES(1024), g), EBUSY);
	assert_int_equal(pswap_group_move(ps, p + PAGES(1536), PAGES(512), g), 0);
	check_all();
	syscall(SYS_munlock, p, PAGES(1536));
	assert_int_equal(pswap_group_move(ps, p, PAGES(2048), g), 0);
	expect(p, 1, 2048);
	check_all();
	unmap(p, 2048);
	close_empty();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_lookups),
		cmocka_unit_test(test_interleaved_pages),
		cmocka_unit_test(test_interleaved_blocks),
		cmocka_unit_test(test_move_states),
		cmocka_unit_test(test_delete),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_global_pressure),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_locked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
