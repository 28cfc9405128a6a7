/* SPDX-License-Identifier: MIT */
/* store_ram_util.h - what the tests of the RAM store share. Included once by each. */
#ifndef STORE_RAM_UTIL_H
#define STORE_RAM_UTIL_H

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "arena.h"
#include "store_ram.h"

#define CLUSTER 512U

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

enum kind { ZERO, WORD32, WORD64, MIXED, RANDOM, NR_KINDS };

/* What a page holds is a function of slot, version and kind. */
static inline void fill(u8 *page, u64 slot, u32 version, enum kind kind)
{
	u64 x = (slot + 1) * 0x9e3779b97f4a7c15ULL + version * 0xd1b54a32d192ed03ULL;
	u64 *w = (u64 *)page;
	unsigned random_words = kind == RANDOM ? 512 : kind == MIXED ? 128 : 0;

	x ^= x >> 29;
	if (kind == ZERO)
		x = 0;
	else if (kind == WORD32)
		x = (u32)x * 0x100000001ULL;
	for (unsigned i = 0; i < 512; i++)
		w[i] = x;
	for (unsigned i = 0; i < random_words; i++) {
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		w[i] = x ^ x >> 31;
	}
}

static inline struct store *open_ram(struct store_ram_options o)
{
	struct store *st;
	int err = 0;

	if (!o.nr_workers)
		o.nr_workers = 1;
	st = store_ram_open(&o, &err);
	assert_non_null(st);
	assert_int_equal(err, 0);
	assert_string_equal(st->name, "ram");
	assert_true(st->counts_as_memory);
	return st;
}

static inline void check(struct store *st)
{
	const char *wrong = store_ram_check(st);

	if (wrong)
		fail_msg("%s", wrong);
}

static inline struct store_stat stat_of(struct store *st)
{
	struct store_stat s;

	st->ops->stat(st, &s);
	return s;
}

static u8 page[PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
static u8 want[PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));

static inline int write_one(struct store *st, u64 slot, u32 version, enum kind kind)
{
	const void *p = page;

	fill(page, slot, version, kind);
	return st->ops->write(st, 0, &slot, &p, 1);
}

static inline int read_one(struct store *st, u64 slot)
{
	void *p = page;
	int err = 0;

	return st->ops->read(st, 0, &slot, &p, 1, &err) == 1 ? 0 : err;
}

static inline void expect(struct store *st, u64 slot, u32 version, enum kind kind)
{
	assert_int_equal(read_one(st, slot), 0);
	fill(want, slot, version, kind);
	assert_memory_equal(page, want, PAGE_SIZE);
}

static inline void write_cluster(struct store *st, unsigned worker, u64 cluster, u32 version,
			  enum kind kind)
{
	static u8 pages[CLUSTER][PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
	const void *p[CLUSTER];
	u64 slots[CLUSTER];

	for (unsigned i = 0; i < CLUSTER; i++) {
		slots[i] = cluster * CLUSTER + i;
		p[i] = pages[i];
		fill(pages[i], slots[i], version, kind);
	}
	assert_int_equal(st->ops->write(st, worker, slots, p, CLUSTER), CLUSTER);
}

static inline void housekeep(struct store *st)
{
	for (unsigned i = 0; i < 100000; i++)
		if (!st->ops->housekeep(st, 0))
			return;
	fail_msg("housekeeping never ends");
}

#endif
