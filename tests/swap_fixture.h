/* SPDX-License-Identifier: MIT */
/* swap_fixture.h - what the cmocka tests of the swap file share: one swap file over mock stores, a
 * log that is caught, and short names for looking inside. */
#ifndef SWAP_FIXTURE_H
#define SWAP_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"
#include "swap_mock.h"
#include "swapfile_internal.h"

#define C SWAPFILE_CLUSTER

#ifdef __has_feature
#define HAS_TSAN __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#else
#define HAS_TSAN 0
#endif

static struct swapfile sf;
static struct mock_store *mock[MAX_SWAPFILES];
static char last_log[512];
static unsigned log_lines;

/* What the callbacks saw. */
static struct {
	unsigned calls, total, last_nr;
	u16 last_group;
} uncharged;
static struct {
	swp_entry_t at[1024];
	unsigned calls;
} dropped;

static inline void keep_log(const char *line, size_t len)
{
	len = MIN(len, sizeof(last_log) - 1);
	memcpy(last_log, line, len);
	last_log[len] = 0;
	log_lines++;
}

static inline void on_uncharge(void *ctx, u16 group, unsigned nr)
{
	(void)ctx;
	uncharged.calls++;
	uncharged.total += nr;
	uncharged.last_nr = nr;
	uncharged.last_group = group;
}

static inline void add_area(unsigned clusters)
{
	struct mock_store *m = mock_open(clusters * C);

	mock[sf.nr_areas] = m;
	assert_int_equal(swapfile_add_area(&sf, &m->st), 0);
}

static inline int setup(void **state)
{
	(void)state;
	memset(&sf, 0, sizeof(sf));
	memset(&uncharged, 0, sizeof(uncharged));
	dropped.calls = 0;
	log_lines = 0;
	ps_log_to(keep_log);
	add_area(4);
	return 0;
}

static inline int teardown(void **state)
{
	unsigned n = sf.nr_areas;

	(void)state;
	swapfile_close(&sf);
	for (unsigned i = 0; i < n; i++)
		mock_close(mock[i]);
	ps_log_to(NULL);
	return 0;
}

static inline void check_ok(void)
{
	const char *wrong = swapfile_check(&sf);

	if (wrong)
		fail_msg("%s", wrong);
}

static inline u64 used(void)
{
	struct swapfile_stat st;

	swapfile_stat(&sf, &st);
	return st.slots_used;
}

static inline u8 byte(swp_entry_t e)
{
	return swap_map_byte(sf.areas[swp_type(e)], swp_offset(e));
}

/* All slots of its cluster have one byte, which is kept with the cluster. */
static inline bool uniform(swp_entry_t e)
{
	return !swap_cluster(sf.areas[swp_type(e)], swp_offset(e))->in_map;
}

static inline unsigned list_of(swp_entry_t e)
{
	return swap_cluster(sf.areas[swp_type(e)], swp_offset(e))->list;
}

static inline swp_entry_t plus(swp_entry_t e, u64 n)
{
	return (swp_entry_t){ e.val + n };
}

/* nr consecutive slots (1, or a multiple of 16 up to 512), written, with one reference each and
 * without the cache flag. */
static inline swp_entry_t swapped(unsigned nr)
{
	swp_entry_t e[C];

	assert_int_equal(swap_alloc_pages(&sf, 0, 0, nr, e), nr);
	for (unsigned i = 0; i < nr; i++)
		assert_int_equal(e[i].val, e[0].val + i);
	mock_write(swap_store(&sf, e[0]), swp_offset(e[0]), nr);
	assert_int_equal(swap_duplicate(&sf, e[0], nr), 0);
	swapcache_free(&sf, e[0], nr);
	return e[0];
}

/* Address space as it is now plus `more`: what a child may map. */
static inline void limit_space(u64 more)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_int_equal(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	assert_int_equal(
		setrlimit(RLIMIT_AS, &(struct rlimit){ pages * PAGE_SIZE + more, RLIM_INFINITY }),
		0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

#endif
