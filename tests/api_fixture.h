/* SPDX-License-Identifier: MIT */
/* api_fixture.h - what the cmocka tests of the library share: an engine for each fallback, memory
 * whose contents are a function of a seed and the page, and a look inside. */
#ifndef API_FIXTURE_H
#define API_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "folio_batch.h"
#include "group.h"
#include "list_check.h"
#include "lru.h"
#include "pagetable.h"
#include "pswap.h"
#include "swapfile_internal.h"

#define PAGES(n) ((size_t)(n) << PAGE_SHIFT)

static struct pswap *ps;

/* What is switched in: "" is nothing. */
static const char *const fallbacks[] = { "",
					 "PSWAP_NO_MOVE",
					 "PSWAP_FREE",
					 "PSWAP_NO_THP",
					 "PSWAP_FAULT",
					 "PSWAP_NO_URING",
					 "PSWAP_CLONE" };

static inline void set_fallback(const char *name)
{
	for (unsigned i = 1; i < ARRAY_SIZE(fallbacks); i++)
		unsetenv(fallbacks[i]);
	if (*name)
		setenv(name,
		       strcmp(name, "PSWAP_FREE") == 0	  ? "entry"
		       : strcmp(name, "PSWAP_FAULT") == 0 ? "signal"
		       : strcmp(name, "PSWAP_CLONE") == 0 ? "copy"
							  : "1",
		       1);
}

static inline struct pswap *open_with(u64 limit, const char *const *stores, unsigned n)
{
	struct pswap_options opt = {
		.size = sizeof(opt), .memory_limit = limit, .stores = stores, .n_stores = n
	};
	struct pswap *new = NULL;

	if (pswap_open(&new, &opt)) {
		printf("no engine here: %s\n", pswap_strerror());
		skip();
	}
	return new;
}

static inline struct pswap *open_limit(u64 limit)
{
	return open_with(limit, NULL, 0);
}

static inline struct pswap_stat stat_now(void)
{
	struct pswap_stat st = { .size = sizeof(st) };

	assert_int_equal(pswap_stat(ps, &st), 0);
	return st;
}

/* A thread is woken by the page it waited for, before the page is charged. */
static inline void settle(void)
{
	ps_rwlock_write_lock(&ps->freeze);
	ps_rwlock_write_unlock(&ps->freeze);
}

static inline struct pswap_group_stat group_stat_now(struct pswap_group *g)
{
	struct pswap_group_stat st = { .size = sizeof(st) };

	settle();
	assert_int_equal(pswap_group_stat(g, &st), 0);
	return st;
}

/* Every list of every group: links both ways, and each folio on the lists of its extent's group. */
static inline void check_lists(void)
{
	struct lruvec *vec;

	lru_add_drain_all(&ps->lru);
	for (unsigned n = 0; (vec = group_lruvec(ps, n)); n++) {
		ps_mutex_lock(&vec->lock);
		for (unsigned list = LRU_ACTIVE; list < LRU_NR; list++)
			check_list(vec, list);
		ps_mutex_unlock(&vec->lock);
	}
}

/* Charges sum up, lists and swap map are in order. Other threads of the engine must have nothing to
 * do that would change it; a worker that is just ending is waited for. */
static inline void check_all(void)
{
	const char *wrong = NULL;

	for (unsigned tries = 0; tries < 100; tries++) {
		ps_rwlock_write_lock(&ps->freeze);
		wrong = group_check(ps);
		if (!wrong)
			wrong = swapfile_check(&ps->swap);
		ps_rwlock_write_unlock(&ps->freeze);
		if (!wrong)
			break;
		usleep(20000);
	}
	if (wrong)
		fail_msg("%s", wrong);
	check_lists();
}

/* A page has its first word, its last one, and some in between that do not compress. */
static inline u64 mix(u64 z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static inline void put_page(char *p, u64 seed, size_t page)
{
	u64 *w = (u64 *)(p + PAGES(page)), x = mix(seed << 32 | (page + 1));

	for (unsigned i = 0; i < PAGE_SIZE / sizeof(u64); i++)
		w[i] = i % 4 ? x : x + i;
}

static inline void expect_page(const char *p, u64 seed, size_t page)
{
	const u64 *w = (const u64 *)(p + PAGES(page));
	u64 x = mix(seed << 32 | (page + 1));

	for (unsigned i = 0; i < PAGE_SIZE / sizeof(u64); i++)
		if (w[i] != (i % 4 ? x : x + i))
			fail_msg("page %zu word %u: %lx, expected %lx", page, i,
				 (unsigned long)w[i], (unsigned long)(i % 4 ? x : x + i));
}

static inline void fill(char *p, u64 seed, size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		put_page(p, seed, i);
}

static inline void expect(const char *p, u64 seed, size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		expect_page(p, seed, i);
}

static inline char *map(size_t pages, struct pswap_group *g, unsigned flags)
{
	char *p = pswap_mmap(ps, PAGES(pages), g, flags);

	assert_true(p != MAP_FAILED);
	return p;
}

static inline void unmap(char *p, size_t pages)
{
	assert_int_equal(pswap_munmap(ps, p, PAGES(pages)), 0);
}

static inline void advise(char *p, size_t pages, int advice)
{
	assert_int_equal(pswap_madvise(ps, p, PAGES(pages), advice), 0);
}

/* Sanitizers make mlock() do nothing. */
static inline long lock_pages(char *p, size_t pages)
{
	return syscall(SYS_mlock, p, PAGES(pages));
}

static inline struct pswap_group *new_group(u64 limit)
{
	struct pswap_group *g = NULL;

	assert_int_equal(pswap_group_create(ps, limit, &g), 0);
	return g;
}

#define expect_error(call, err)                 \
	do {                                    \
		errno = 0;                      \
		assert_int_equal(call, -1);     \
		assert_int_equal(errno, err);   \
		assert_true(*pswap_strerror()); \
	} while (0)

/* Nothing is left when every region is unmapped. */
static inline void close_empty(void)
{
	struct pswap_stat st = stat_now();

	for (unsigned tries = 0; st.frames_used && tries < 100; tries++) {
		usleep(20000);
		st = stat_now();
	}
	assert_int_equal(st.slots_used, 0);
	assert_int_equal(st.frames_used, 0);
	assert_int_equal(st.swapped_pages, 0);
	assert_int_equal(pswap_close(ps), 0);
	ps = NULL;
}

/* Runs fn with each fallback. */
static inline void with_fallbacks(void (*fn)(void))
{
	for (unsigned i = 0; i < ARRAY_SIZE(fallbacks); i++) {
		set_fallback(fallbacks[i]);
		fn();
	}
	set_fallback("");
}

#endif
