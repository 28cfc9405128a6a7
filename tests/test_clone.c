/* SPDX-License-Identifier: MIT */
/*
 * test_clone.c - pswap_clone(): contents, isolation, both orders of freeing, counts past the byte's
 * range, stores, groups, threads that write meanwhile, under each fallback.
 *
 * timeout: 300
 */
#include "api_fixture.h"

#include <pthread.h>

#define N 2048U /* pages: 8 MiB */

static char *clone_of(char *p, size_t pages)
{
	void *copy = NULL;

	assert_int_equal(pswap_clone(ps, p, PAGES(pages), &copy), 0);
	assert_ptr_not_equal(copy, p);
	assert_int_equal(((uintptr_t)copy ^ (uintptr_t)p) & (PMD_SIZE - 1), 0);
	return copy;
}

/* Quarters: swapped, cached, resident, never touched; then single pages in other states among them.
 */
static char *mixed(u64 seed, unsigned flags)
{
	char *p = map(N, NULL, flags);

	fill(p, seed, 3 * N / 4);
	advise(p, N / 4, MADV_PAGEOUT);
	advise(p + PAGES(N / 4), N / 4, MADV_COLD);
	for (unsigned i = 0; i < N / 2; i += 37)
		expect_page(p, seed, i);
	advise(p + PAGES(N / 2 + 7), 5, MADV_DONTNEED);
	return p;
}

static void expect_mixed(const char *p, u64 seed)
{
	for (unsigned i = 0; i < N; i++) {
		if (i < 3 * N / 4 && (i < N / 2 + 7 || i >= N / 2 + 12))
			expect_page(p, seed, i);
		else
			for (unsigned k = 0; k < PAGE_SIZE; k += 8)
				assert_int_equal(p[PAGES(i) + k], 0);
	}
}

/* What the maps say: count of the slot of page i; 0: none. */
static unsigned uses(const char *p, unsigned i)
{
	u64 addr = (u64)(uintptr_t)p + PAGES(i);
	struct extent *e = pt_find(&ps->mm, addr);
	pte_t pte = e ? pte_get(e, pt_index(addr)) : 0;

	return pte_kind(pte) == PTE_SWAP ? swap_count(&ps->swap, pte_to_swp(pte), NULL) : 0;
}

static unsigned clone_flags;

static void isolation(void)
{
	for (unsigned order = 0; order < 4; order++) {
		char *p, *c;

		ps = open_limit(MiB(256));
		p = mixed(1, clone_flags);
		c = clone_of(p, N);
		check_all();
		if (!ps->cfg.clone_copy)
			assert_true(stat_now().pages_cloned > 3 * N / 4 - 100);
		/* Later writes to either side are not seen by the other. */
		for (unsigned i = 0; i < N; i += 3)
			put_page(order % 2 ? c : p, 2, i);
		for (unsigned i = 0; i < N; i += 3)
			expect_page(order % 2 ? c : p, 2, i);
		if (order & 2)
			advise(order % 2 ? c : p, N, MADV_PAGEOUT);
		expect_mixed(order % 2 ? p : c, 1);
		for (unsigned i = 0; i < N; i += 3)
			expect_page(order % 2 ? c : p, 2, i);
		check_all();
		if (order & 2) {
			unmap(p, N);
			if (order % 2)
				for (unsigned i = 0; i < N; i += 3)
					expect_page(c, 2, i);
			else
				expect_mixed(c, 1);
			unmap(c, N);
		} else {
			unmap(c, N / 2);
			unmap(c + PAGES(N / 2), N / 2);
			if (order % 2)
				expect_mixed(p, 1);
			unmap(p, N);
		}
		close_empty();
	}
}

static void test_isolation(void **state)
{
	(void)state;
	clone_flags = 0;
	with_fallbacks(isolation);
	clone_flags = PSWAP_MAP_NOHUGE;
	with_fallbacks(isolation);
}

/* Untouched sides: all shared, freed in both orders with nothing read back. */
static void test_shared_slots(void **state)
{
	(void)state;
	for (unsigned order = 0; order < 2; order++) {
		u64 used;
		char *p, *c;

		ps = open_limit(MiB(256));
		p = map(N, NULL, 0);
		fill(p, 1, N);
		c = clone_of(p, N);
		used = stat_now().slots_used;
		assert_int_equal(used, N);
		assert_int_equal(stat_now().swapped_pages, 2 * N);
		for (unsigned i = 0; i < N; i += 11) {
			assert_int_equal(uses(p, i), 2);
			assert_int_equal(uses(c, i), 2);
		}
		unmap(order ? p : c, N);
		assert_int_equal(stat_now().slots_used, N);
		assert_int_equal(uses(order ? c : p, 5), 1);
		expect(order ? c : p, 1, N / 2);
		unmap(order ? c : p, N);
		close_empty();
	}
}

/* Hundreds of clones of clones: the count continues past the byte, and comes back. */
static void test_many(void **state)
{
	static char *c[400];
	unsigned n = ARRAY_SIZE(c), pages = 530;

	(void)state;
	for (unsigned order = 0; order < 3; order++) {
		ps = open_limit(MiB(256));
		c[0] = map(pages, NULL, 0);
		fill(c[0], 9, pages);
		for (unsigned i = 1; i < n; i++)
			c[i] = clone_of(c[order == 1 ? i - 1 : 0], pages);
		assert_int_equal(uses(c[0], 17), n);
		assert_int_equal(uses(c[n - 1], pages - 1), n);
		check_all();
		assert_int_equal(stat_now().slots_used, pages);
		/* One of them goes its own way. */
		put_page(c[n / 2], 10, 3);
		expect_page(c[n / 2], 9, 2);
		expect_page(c[n / 2], 10, 3);
		for (unsigned i = 0; i < n; i++) {
			unsigned k = order == 0 ? i : order == 1 ? n - 1 - i : (i * 7 + 3) % n;

			if (k != n / 2 && k % 8 == 0)
				expect_page(c[k], 9, 3);
			unmap(c[k], pages);
			if (i % 64 == 0)
				check_all();
		}
		close_empty();
	}
}

/* Parts, from anywhere to anywhere. */
static void test_parts(void **state)
{
	static const unsigned part[][2] = {
		{ 0, 1 },     { 5, 1 },	    { 511, 2 },	   { 100, 700 },
		{ 512, 512 }, { 600, 900 }, { 1536, 512 }, { 2047, 1 }
	};
	char *p;

	(void)state;
	ps = open_limit(MiB(256));
	p = mixed(4, 0);
	for (unsigned i = 0; i < ARRAY_SIZE(part); i++) {
		unsigned first = part[i][0], pages = part[i][1];
		char *c = clone_of(p + PAGES(first), pages);

		for (unsigned k = 0; k < pages; k += 3)
			assert_memory_equal(c + PAGES(k), p + PAGES(first + k), PAGE_SIZE);
		memset(c, 0xee, PAGES(pages));
		unmap(c, pages);
	}
	expect_mixed(p, 4);
	check_all();
	unmap(p, N);
	close_empty();
}

static void test_errors(void **state)
{
	void *copy = (void *)1;
	struct pswap *other;
	char *p, *q;

	(void)state;
	ps = open_limit(MiB(64));
	other = open_limit(MiB(64));
	p = map(100, NULL, 0);
	fill(p, 1, 100);
	q = pswap_mmap(other, PAGES(10), NULL, 0);
	expect_error(pswap_clone(ps, p, PAGES(101), &copy), EINVAL);
	expect_error(pswap_clone(ps, p + 1, PAGES(10), &copy), EINVAL);
	expect_error(pswap_clone(ps, p, 10, &copy), EINVAL);
	expect_error(pswap_clone(ps, p, 0, &copy), EINVAL);
	expect_error(pswap_clone(ps, p, PAGES(10), NULL), EINVAL);
	expect_error(pswap_clone(ps, q, PAGES(10), &copy), EINVAL);
	expect_error(pswap_clone(NULL, p, PAGES(10), &copy), EINVAL);
	unmap(p + PAGES(50), 1);
	expect_error(pswap_clone(ps, p, PAGES(100), &copy), EINVAL); /* a hole */
	assert_ptr_equal(copy, (void *)1);
	assert_int_equal(stat_now().pages_out, 0); /* nothing was done */
	assert_int_equal(pswap_close(other), 0);
	unmap(p, 50);
	unmap(p + PAGES(51), 49);
	close_empty();
}

/* No room in the stores: no copy, and the original as it was. */
static void test_store_full(void **state)
{
	static const char *const small[] = { "ram:max=2M" };
	unsigned pages = 4096;
	void *copy = NULL;
	char *p;

	(void)state;
	ps = open_with(MiB(256), small, 1);
	p = map(pages, NULL, 0);
	for (unsigned i = 0; i < pages; i++)
		for (unsigned k = 0; k < PAGE_SIZE; k += 8)
			*(u64 *)(p + PAGES(i) + k) = mix(i * 1000003UL + k);
	expect_error(pswap_clone(ps, p, PAGES(pages), &copy), ENOMEM);
	for (unsigned i = 0; i < pages; i++)
		for (unsigned k = 0; k < PAGE_SIZE; k += 8)
			assert_int_equal(*(u64 *)(p + PAGES(i) + k), mix(i * 1000003UL + k));
	check_all();
	unmap(p, pages);
	close_empty();
}

static void each_store(const char *store)
{
	const char *const stores[] = { store };
	char *p, *c;

	ps = open_with(MiB(64), stores, 1);
	p = mixed(6, 0);
	c = clone_of(p, N);
	expect_mixed(c, 6);
	fill(p, 7, N);
	advise(c, N, MADV_PAGEOUT);
	expect(p, 7, N);
	expect_mixed(c, 6);
	unmap(p, N);
	expect_mixed(c, 6);
	unmap(c, N);
	close_empty();
}

static void test_stores(void **state)
{
	(void)state;
	each_store("ram");
	each_store("ram:codec=zstd");
	each_store("file:size=256M");
	each_store("file:size=256M,encrypt=off");
}

/* Locked pages cannot be moved: they are copied. */
static void test_locked(void **state)
{
	char *p, *c;

	(void)state;
	ps = open_limit(MiB(64));
	p = mixed(8, 0);
	if (lock_pages(p + PAGES(600), 40)) {
		assert_int_equal(pswap_close(ps), 0);
		printf("memory cannot be locked here\n");
		skip();
	}
	c = clone_of(p, N);
	fill(p, 9, N);
	expect_mixed(c, 8);
	unmap(p, N);
	expect_mixed(c, 8);
	unmap(c, N);
	close_empty();
}

/* A slot is charged once, to who wrote it, wherever its other users are. */
static void test_groups(void **state)
{
	struct pswap_group *a, *b;
	char *p, *c;

	(void)state;
	ps = open_limit(MiB(256));
	a = new_group(MiB(64));
	b = new_group(MiB(64));
	p = map(N, a, 0);
	fill(p, 1, N);
	c = clone_of(p, N);
	check_all();
	assert_int_equal(group_stat_now(a).swapped_pages, N);
	assert_int_equal(group_stat_now(a).mapped_bytes, 2 * PAGES(N));
	assert_int_equal(pswap_group_move(ps, c, PAGES(N), b), 0);
	/* The owner of what is shared moves with whoever moves first. */
	assert_int_equal(group_stat_now(b).swapped_pages, N);
	assert_int_equal(group_stat_now(a).swapped_pages, 0);
	assert_int_equal(pswap_group_move(ps, p + PAGES(100), PAGES(1000), NULL), 0);
	check_all();
	expect(c, 1, 300);
	check_all();
	assert_int_equal(pswap_group_delete(b), 0);
	check_all();
	expect(c, 1, N);
	unmap(p, N);
	check_all();
	expect(c, 1, N);
	unmap(c, N);
	assert_int_equal(group_stat_now(a).swapped_pages, 0);
	assert_int_equal(relaxed_load(&ps->swap.split_batches), 0);
	close_empty();
}

/* ---- threads ---- */

#define WRITERS 3
#define WPAGES	1536U

static char *shared;
static _Atomic bool stop;
static _Atomic u64 writes;

/* Page k of a writer has one value everywhere, never smaller than before. */
static void *writer(void *arg)
{
	unsigned self = (unsigned)(uintptr_t)arg;
	u64 value = 1;

	for (; !relaxed_load(&stop); value++)
		for (unsigned i = self; i < WPAGES && !relaxed_load(&stop); i += WRITERS) {
			u64 *w = (u64 *)(shared + PAGES(i));

			/* First and last word: a page copied in between would differ by one at
			 * most. */
			__atomic_store_n(&w[0], value, __ATOMIC_RELEASE);
			__atomic_store_n(&w[511], value, __ATOMIC_RELEASE);
			relaxed_add(&writes, 1);
		}
	return NULL;
}

static void while_written(void)
{
	pthread_t t[WRITERS];
	u64 *last = calloc(WPAGES, sizeof(*last));

	ps = open_limit(MiB(64));
	shared = map(WPAGES, NULL, 0);
	relaxed_store(&stop, false);
	for (uintptr_t i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, writer, (void *)i), 0);
	for (unsigned round = 0; round < 6; round++) {
		char *c = clone_of(shared, WPAGES);

		for (unsigned i = 0; i < WPAGES; i++) {
			u64 *w = (u64 *)(c + PAGES(i)), first = w[0];

			/* The moment is one after the last clone and before now. */
			assert_true(first >= last[i]);
			assert_true(w[511] == first || w[511] + 1 == first);
			assert_true(first <=
				    __atomic_load_n((u64 *)(shared + PAGES(i)), __ATOMIC_ACQUIRE));
			last[i] = first;
		}
		/* And stays what it is while the original goes on. */
		for (unsigned i = 0; i < WPAGES; i++)
			assert_int_equal(*(u64 *)(c + PAGES(i)), last[i]);
		unmap(c, WPAGES);
	}
	relaxed_store(&stop, true);
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
	unmap(shared, WPAGES);
	free(last);
	close_empty();
}

static void test_while_written(void **state)
{
	(void)state;
	with_fallbacks(while_written);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_isolation), cmocka_unit_test(test_shared_slots),
		cmocka_unit_test(test_many),	  cmocka_unit_test(test_parts),
		cmocka_unit_test(test_errors),	  cmocka_unit_test(test_store_full),
		cmocka_unit_test(test_stores),	  cmocka_unit_test(test_locked),
		cmocka_unit_test(test_groups),	  cmocka_unit_test(test_while_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
