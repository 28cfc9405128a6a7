/* SPDX-License-Identifier: MIT */
/*
 * store_file_util.h - what the tests of the file store share. Included once by each.  Files go to
 * $PS_TEST_DIR or /var/tmp; without a disk there the tests are skipped.
 */
#ifndef STORE_FILE_UTIL_H
#define STORE_FILE_UTIL_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "arena.h"
#include "log.h"
#include "store_file.h"

#define CLUSTER 512U
#define SLOTS (8 * CLUSTER)

static const char *dir;
static char logged[4096];

static inline void keep_log(const char *line, size_t len)
{
	size_t n = MIN(len, sizeof(logged) - 1);

	memcpy(logged, line, n);
	logged[n] = 0;
}

static inline void fill(u8 *p, u64 slot, u32 version)
{
	u64 x = (slot + 1) * 0x9e3779b97f4a7c15ULL + version * 0xd1b54a32d192ed03ULL;
	u64 *w = (u64 *)p;

	for (unsigned i = 0; i < 512; i++) {
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		w[i] = x ^ x >> 31;
	}
}

static u8 page[PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
static u8 want[PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));
static u8 pages[CLUSTER * 2][PAGE_SIZE] __attribute__((aligned(PAGE_SIZE)));

static const struct mode {
	const char *name;
	bool encrypt;
	unsigned flags;
} modes[] = {
	{ "plain", false, 0 },
	{ "encrypted", true, 0 },
	{ "chacha", true, STORE_FILE_NO_AES },
	{ "no ring", true, STORE_FILE_NO_URING },
	{ "buffered", true, STORE_FILE_NO_DIRECT },
	{ "plain, no ring, buffered", false, STORE_FILE_NO_URING | STORE_FILE_NO_DIRECT },
};

static inline struct store *open_mode(const struct mode *m, unsigned workers)
{
	struct store_file_options o = { .nr_slots = SLOTS,
					.path = dir,
					.encrypt = m->encrypt,
					.flags = m->flags,
					.nr_workers = workers };
	struct store *st;
	int err = 0;

	st = store_file_open(&o, &err);
	assert_non_null(st);
	assert_int_equal(err, 0);
	assert_string_equal(st->name, "file");
	assert_false(st->counts_as_memory);
	return st;
}

static inline void check(struct store *st)
{
	const char *wrong = store_file_check(st);

	if (wrong)
		fail_msg("%s", wrong);
}

static inline struct store_stat stat_of(struct store *st)
{
	struct store_stat s;

	st->ops->stat(st, &s);
	return s;
}

static inline int write_one(struct store *st, u64 slot, u32 version)
{
	const void *p = page;

	fill(page, slot, version);
	return st->ops->write(st, 0, &slot, &p, 1);
}

static inline int read_one(struct store *st, u64 slot)
{
	void *p = page;
	int err = 0;

	return st->ops->read(st, 0, &slot, &p, 1, &err) == 1 ? 0 : err;
}

static inline void expect(struct store *st, u64 slot, u32 version)
{
	int err = read_one(st, slot);

	if (err)
		fail_msg("slot %d: error %d", (int)slot, err);
	fill(want, slot, version);
	assert_memory_equal(page, want, PAGE_SIZE);
}

static inline int write_run(struct store *st, u64 first, unsigned n, u32 version)
{
	const void *p[CLUSTER * 2] = { 0 };
	u64 slots[CLUSTER * 2] = { 0 };

	for (unsigned i = 0; i < n; i++) {
		slots[i] = first + i;
		p[i] = pages[i];
		fill(pages[i], slots[i], version);
	}
	return st->ops->write(st, 0, slots, p, n);
}

static inline void expect_run(struct store *st, u64 first, unsigned n, u32 version)
{
	void *p[CLUSTER * 2] = { 0 };
	u64 slots[CLUSTER * 2] = { 0 };
	int err = 0;

	for (unsigned i = 0; i < n; i++) {
		slots[i] = first + i;
		p[i] = pages[i];
		memset(pages[i], 0, PAGE_SIZE);
	}
	assert_int_equal(st->ops->read(st, 0, slots, p, n, &err), n);
	for (unsigned i = 0; i < n; i++) {
		fill(want, first + i, version);
		assert_memory_equal(pages[i], want, PAGE_SIZE);
	}
}

static inline int file_fd(struct store *st)
{
	int fd = -1;

	assert_int_equal(store_file_fds(st, &fd, 1), 1);
	return fd;
}

/* Test functions for every mode. */
static inline void for_modes(void (*fn)(struct store *st))
{
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
		struct store *st = open_mode(&modes[i], 1);

		fn(st);
		check(st);
		store_close(st);
	}
}

static inline int setup(void **state)
{
	struct store_file_options o = { .nr_slots = SLOTS, .nr_workers = 1 };
	struct store *st;
	int err;

	ps_log_to(keep_log);
	dir = getenv("PS_TEST_DIR") ? getenv("PS_TEST_DIR") : "/var/tmp";
	o.path = dir;
	st = store_file_open(&o, &err);
	if (!st) {
		fprintf(stderr, "no file store in %s: %s", dir, logged);
		dir = NULL;
	}
	store_close(st);
	return 0;
}

static inline int need_dir(void **state)
{
	if (!dir)
		skip();
	return 0;
}

#endif
