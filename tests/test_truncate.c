/* SPDX-License-Identifier: MIT */
/*
 * test_truncate.c - the library: objects of 1, 31, 32 and 10,000 folios, dropped by each of the calls
 * that release folios, under both drain rules.
 *
 * sanitize: no
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "pswap.h"

#define PAGE 4096UL
#define PMD (2UL << 20)
#define BATCH 31

static struct pswap *ps;
static bool every;

static int open_engine(void **state)
{
	static const char *const ram[] = { "ram" };
	struct pswap_options opt = { .size = sizeof(opt), .memory_limit = 1UL << 30,
				     .stores = ram, .n_stores = 1 };

	(void)state;
	setenv("PSWAP_DRAIN", every ? "every" : "once", 1);
	if (pswap_open(&ps, &opt)) {
		fprintf(stderr, "no engine here: %s\n", pswap_strerror());
		ps = NULL;
	}
	return 0;
}

static int open_once(void **state)
{
	every = false;
	return open_engine(state);
}

static int open_every(void **state)
{
	every = true;
	return open_engine(state);
}

static int close_engine(void **state)
{
	(void)state;
	if (ps)
		assert_int_equal(pswap_close(ps), 0);
	return 0;
}

static struct pswap_stat stat_now(void)
{
	struct pswap_stat st = { .size = sizeof(st) };

	assert_int_equal(pswap_stat(ps, &st), 0);
	return st;
}

static uint64_t drains(void)
{
	return stat_now().lru_drains;
}

static unsigned want(unsigned folios)
{
	return every ? (folios + BATCH - 1) / BATCH : 1;
}

/* An object of n pages, each a folio of its own. */
static char *object(unsigned n)
{
	char *p = pswap_mmap(ps, n * PAGE, NULL, PSWAP_MAP_NOHUGE);

	assert_true(p != MAP_FAILED);
	memset(p, 0x11, n * PAGE);
	return p;
}

enum how { TRUNCATE, DONTNEED, MUNMAP };

static void drop_counts(enum how how)
{
	static const unsigned sizes[] = { 1, 31, 32, 10000 };

	for (unsigned k = 0; k < 4; k++) {
		unsigned n = sizes[k];
		char *p = object(n);
		uint64_t before = drains();

		switch (how) {
		case TRUNCATE:
			assert_int_equal(pswap_truncate(ps, p, n * PAGE, 0), 0);
			break;
		case DONTNEED:
			assert_int_equal(pswap_madvise(ps, p, n * PAGE, MADV_DONTNEED), 0);
			break;
		case MUNMAP:
			assert_int_equal(pswap_munmap(ps, p, n * PAGE), 0);
		}
		assert_int_equal(drains() - before, want(n));
		if (how == MUNMAP)
			continue;
		for (unsigned i = 0; i < n; i++)
			assert_int_equal(p[i * PAGE], 0);
		assert_int_equal(pswap_munmap(ps, p, n * PAGE), 0);
	}
}

static void test_truncate(void **state)
{
	(void)state;
	if (!ps)
		skip();
	drop_counts(TRUNCATE);
}

static void test_dontneed(void **state)
{
	(void)state;
	if (!ps)
		skip();
	drop_counts(DONTNEED);
}

static void test_munmap(void **state)
{
	(void)state;
	if (!ps)
		skip();
	drop_counts(MUNMAP);
}

/* What is left of a truncated object stays as it was; the rest is dropped with one drain. */
static void test_parts(void **state)
{
	char *p;
	uint64_t before;

	(void)state;
	if (!ps)
		skip();
	p = object(1000);
	before = drains();
	assert_int_equal(pswap_truncate(ps, p, 1000 * PAGE, 100 * PAGE + 5), 0);
	assert_int_equal(drains() - before, want(899));
	for (unsigned i = 0; i < 1000; i++) {
		assert_int_equal(p[i * PAGE + 4], i <= 100 ? 0x11 : 0);
		assert_int_equal(p[i * PAGE + 5], i < 100 ? 0x11 : 0);
	}
	assert_int_equal(pswap_munmap(ps, p, 1000 * PAGE), 0);
}

/* Pages in the swap cache are folios too; those in a store are not, nor are huge pages many. */
static void test_cached_swapped_huge(void **state)
{
	unsigned n = 2048;
	struct pswap_stat st;
	uint64_t before;
	char *p;

	(void)state;
	if (!ps)
		skip();
	p = object(n);
	assert_int_equal(pswap_madvise(ps, p, n * PAGE, MADV_COLD), 0);
	if (stat_now().frames_used != n * PAGE / PMD + (((uintptr_t)p & (PMD - 1)) ? 1 : 0))
		skip(); /* no UFFDIO_MOVE here */
	before = drains();
	assert_int_equal(pswap_truncate(ps, p, n * PAGE, 0), 0);
	assert_int_equal(drains() - before, want(n));
	assert_int_equal(stat_now().frames_used, 0);
	memset(p, 0x22, n * PAGE);
	assert_int_equal(pswap_madvise(ps, p, n * PAGE, MADV_PAGEOUT), 0);
	before = drains();
	assert_int_equal(pswap_truncate(ps, p, n * PAGE, 0), 0);
	st = stat_now();
	assert_int_equal(st.lru_drains - before, 0);
	assert_int_equal(st.slots_used, 0);
	assert_int_equal(pswap_munmap(ps, p, n * PAGE), 0);

	p = pswap_mmap(ps, 40 * PMD, NULL, 0);
	assert_true(p != MAP_FAILED);
	memset(p, 0x11, 40 * PMD);
	before = drains();
	assert_int_equal(pswap_truncate(ps, p, 40 * PMD, 0), 0);
	assert_in_range(drains() - before, 1, want(40 * 32));
	if (!every)
		assert_int_equal(drains() - before, 1);
	assert_int_equal(p[17 * PMD], 0);
	assert_int_equal(pswap_munmap(ps, p, 40 * PMD), 0);
	st = stat_now();
	assert_int_equal(st.slots_used, 0);
	assert_int_equal(st.frames_used, 0);
}

#define T(f)                                                             \
	cmocka_unit_test_setup_teardown(f, open_once, close_engine),     \
		cmocka_unit_test_setup_teardown(f, open_every, close_engine)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_truncate),
		T(test_dontneed),
		T(test_munmap),
		T(test_parts),
		T(test_cached_swapped_huge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
