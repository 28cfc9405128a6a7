/* SPDX-License-Identifier: MIT */
/*
 * The file store: in all its modes what is written comes back, neighbours in a block survive each
 * other, changed, moved and older records are found out, and a fork's two sides do not disturb each
 * other.  Files go to $PS_TEST_DIR or /var/tmp; without a disk there the tests are skipped.
 */
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

static void keep_log(const char *line, size_t len)
{
	size_t n = MIN(len, sizeof(logged) - 1);

	memcpy(logged, line, n);
	logged[n] = 0;
}

static void fill(u8 *p, u64 slot, u32 version)
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

static struct store *open_mode(const struct mode *m, unsigned workers)
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

static void check(struct store *st)
{
	const char *wrong = store_file_check(st);

	if (wrong)
		fail_msg("%s", wrong);
}

static struct store_stat stat_of(struct store *st)
{
	struct store_stat s;

	st->ops->stat(st, &s);
	return s;
}

static int write_one(struct store *st, u64 slot, u32 version)
{
	const void *p = page;

	fill(page, slot, version);
	return st->ops->write(st, 0, &slot, &p, 1);
}

static int read_one(struct store *st, u64 slot)
{
	void *p = page;
	int err = 0;

	return st->ops->read(st, 0, &slot, &p, 1, &err) == 1 ? 0 : err;
}

static void expect(struct store *st, u64 slot, u32 version)
{
	int err = read_one(st, slot);

	if (err)
		fail_msg("slot %d: error %d", (int)slot, err);
	fill(want, slot, version);
	assert_memory_equal(page, want, PAGE_SIZE);
}

static int write_run(struct store *st, u64 first, unsigned n, u32 version)
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

static void expect_run(struct store *st, u64 first, unsigned n, u32 version)
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

static int file_fd(struct store *st)
{
	int fd = -1;

	assert_int_equal(store_file_fds(st, &fd, 1), 1);
	return fd;
}

/* Test functions for every mode. */
static void for_modes(void (*fn)(struct store *st))
{
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
		struct store *st = open_mode(&modes[i], 1);

		fn(st);
		check(st);
		store_close(st);
	}
}

static void round_trip(struct store *st)
{
	u64 slots[CLUSTER];
	void *p[CLUSTER];
	int err = 0;

	/* Whole clusters, more than one at once, singles, runs that overwrite the middle. */
	assert_int_equal(write_run(st, 0, CLUSTER, 1), CLUSTER);
	assert_int_equal(write_run(st, CLUSTER, 2 * CLUSTER, 1), 2 * CLUSTER);
	expect_run(st, 0, CLUSTER, 1);
	expect_run(st, CLUSTER, 2 * CLUSTER, 1);
	check(st);
	assert_int_equal(write_run(st, 100, 130, 2), 130);
	expect_run(st, 0, 100, 1);
	expect_run(st, 100, 130, 2);
	expect_run(st, 230, CLUSTER - 230, 1);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(write_one(st, CLUSTER + i * 11, 3), 1);
	for (unsigned i = 0; i < CLUSTER; i++)
		expect(st, CLUSTER + i, i % 11 || i / 11 >= 40 ? 1 : 3);
	/* A batch of scattered slots over two clusters, descending ones among them. */
	for (unsigned i = 0; i < 100; i++) {
		slots[i] = 4 * CLUSTER - 50 * 3 + i * 3;
		if (i > 90)
			slots[i] = 5 * CLUSTER - i;
		p[i] = pages[i];
		fill(pages[i], slots[i], 7);
	}
	assert_int_equal(st->ops->write(st, 0, slots, (const void *const *)p, 100), 100);
	check(st);
	memset(pages, 0, sizeof(pages));
	assert_int_equal(st->ops->read(st, 0, slots, p, 100, &err), 100);
	for (unsigned i = 0; i < 100; i++) {
		fill(want, slots[i], 7);
		assert_memory_equal(pages[i], want, PAGE_SIZE);
	}
	/* Reading stops at what was never written. */
	slots[57] = 7 * CLUSTER + 3;
	assert_int_equal(st->ops->read(st, 0, slots, p, 100, &err), 57);
	assert_int_equal(err, -ENODATA);
	assert_int_equal(st->ops->read(st, 0, slots + 57, p, 1, &err), 0);
	assert_int_equal(st->ops->read(st, 0, slots, p, 0, &err), 0);
	assert_int_equal(st->ops->write(st, 0, slots, (const void *const *)p, 0), 0);
	assert_int_equal(stat_of(st).io_errors, 0);
}

static void test_round_trip(void **state)
{
	for_modes(round_trip);
}

/* One record at a time, in every order, with what lies beside it alive, empty or dropped. */
static void neighbours(struct store *st)
{
	static u32 version[CLUSTER];
	u64 rng = 4711;

	memset(version, 0, sizeof(version));
	for (unsigned op = 1; op < 600; op++) {
		unsigned i, n;

		rng = rng * 6364136223846793005ULL + 1442695040888963407ULL;
		i = (unsigned)(rng >> 33) % 60;
		n = 1 + (unsigned)(rng >> 45) % 5;
		if (op % 4 == 3) {
			st->ops->invalidate(st, i, n);
			memset(version + i, 0, n * sizeof(version[0]));
			continue;
		}
		assert_int_equal(write_run(st, i, n, op), n);
		for (unsigned k = i; k < i + n; k++)
			version[k] = op;
		for (unsigned k = i > 2 ? i - 2 : 0; k < i + n + 2; k++) {
			if (version[k])
				expect(st, k, version[k]);
			else
				assert_int_equal(read_one(st, k), -ENODATA);
		}
	}
	for (unsigned k = 0; k < 70; k++)
		if (version[k])
			expect(st, k, version[k]);
}

static void test_neighbours(void **state)
{
	for_modes(neighbours);
}

static void invalidates(struct store *st)
{
	write_run(st, 0, CLUSTER, 1);
	write_run(st, CLUSTER, CLUSTER, 1);
	st->ops->invalidate_cluster(st, 0);
	check(st);
	for (unsigned i = 0; i < CLUSTER; i += 37)
		assert_int_equal(read_one(st, i), -ENODATA);
	expect_run(st, CLUSTER, CLUSTER, 1);
	write_one(st, 5, 2);
	expect(st, 5, 2);
	assert_int_equal(read_one(st, 4), -ENODATA);
	st->ops->invalidate(st, 0, 600);
	assert_int_equal(read_one(st, 5), -ENODATA);
	assert_int_equal(read_one(st, 599), -ENODATA);
	expect(st, 600, 1);
	check(st);
	st->ops->invalidate(st, 0, SLOTS);
	st->ops->invalidate_cluster(st, 3);
	assert_int_equal(stat_of(st).used_bytes, 0);
}

static void test_invalidate(void **state)
{
	for_modes(invalidates);
}

/* Writes bytes into the file behind the store's back, whatever mode it is in. */
static void meddle(struct store *st, u64 off, const u8 *bytes, size_t len, u8 *old)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd(st));
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	if (old)
		assert_int_equal(pread(fd, old, len, (off_t)off), len);
	if (bytes) {
		assert_int_equal(pwrite(fd, bytes, len, (off_t)off), len);
		fsync(fd);
	}
	close(fd);
}

#define RECORD (PAGE_SIZE + 16)

static void tampering(struct store *st)
{
	static u8 old[RECORD], now[RECORD];
	void *p[3] = { pages[0], pages[1], pages[2] };
	u64 slots[3] = { 9, 10, 11 };
	int err = 0;

	write_run(st, 9, 3, 1);
	/* A bit of the page, of the tag. */
	for (unsigned at = 0; at < RECORD; at += RECORD - 1) {
		u8 byte;

		meddle(st, store_file_offset(10) + at, NULL, 1, &byte);
		byte ^= 4;
		meddle(st, store_file_offset(10) + at, &byte, 1, NULL);
		assert_int_equal(st->ops->read(st, 0, slots, p, 3, &err), 1);
		assert_int_equal(err, -EIO);
		expect(st, 11, 1);
		byte ^= 4;
		meddle(st, store_file_offset(10) + at, &byte, 1, NULL);
		expect(st, 10, 1);
	}
	assert_int_equal(stat_of(st).io_errors, 2);
	/* An older record of the same slot. */
	meddle(st, store_file_offset(10), NULL, RECORD, old);
	write_one(st, 10, 2);
	expect(st, 10, 2);
	meddle(st, store_file_offset(10), old, RECORD, now);
	assert_int_equal(read_one(st, 10), -EIO);
	/* The right record in another slot's place. */
	meddle(st, store_file_offset(10), now, RECORD, NULL);
	meddle(st, store_file_offset(11), now, RECORD, NULL);
	expect(st, 10, 2);
	assert_int_equal(read_one(st, 11), -EIO);
	/* Writing makes it good again. */
	write_one(st, 11, 5);
	expect(st, 9, 1);
	expect(st, 10, 2);
	expect(st, 11, 5);
}

static void test_tampering(void **state)
{
	for_modes(tampering);
}

/* No two records of one page look alike, nor does the page show. */
static void test_secrecy(void **state)
{
	for (unsigned i = 1; i <= 2; i++) {
		struct store *st = open_mode(&modes[i], 1);
		static u8 a[RECORD], b[RECORD], c[RECORD];
		const void *p[2] = { page, page };
		u64 slots[2] = { 0, 1 };

		memset(page, 0x11, PAGE_SIZE);
		assert_int_equal(st->ops->write(st, 0, slots, p, 2), 2);
		meddle(st, store_file_offset(0), NULL, RECORD, a);
		meddle(st, store_file_offset(1), NULL, RECORD, b);
		assert_int_equal(st->ops->write(st, 0, slots, p, 2), 2);
		meddle(st, store_file_offset(0), NULL, RECORD, c);
		assert_memory_not_equal(a, b, PAGE_SIZE);
		assert_memory_not_equal(a, c, PAGE_SIZE);
		assert_memory_not_equal(a, page, PAGE_SIZE);
		assert_memory_not_equal(a + PAGE_SIZE, c + PAGE_SIZE, 16);
		store_close(st);
	}
}

/* The device fails, or is full. */
static void test_device_errors(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
		struct store *st = open_mode(&modes[i], 1);
		int fd = file_fd(st), keep = dup(fd), full = open("/dev/full", O_RDWR);
		void *p[1] = { page };
		u64 slot = 0;
		int err = 0;

		assert_int_equal(write_run(st, 0, 100, 1), 100);
		assert_true(full >= 0);
		assert_int_equal(dup2(full, fd), fd);
		assert_int_equal(write_one(st, 200, 1), -ENOSPC);
		assert_int_equal(write_run(st, 0, 100, 2), -ENOSPC);
		assert_int_equal(stat_of(st).io_errors, 0);
		check(st);
		/* What could not be written is not half there. */
		assert_int_equal(read_one(st, 0), -ENODATA);
		assert_int_equal(dup2(keep, fd), fd);
		assert_int_equal(read_one(st, 0), -ENODATA);
		assert_int_equal(write_run(st, 0, 100, 3), 100);
		expect_run(st, 0, 100, 3);
		close(fd);
		assert_int_equal(write_one(st, 200, 1), -EIO);
		assert_int_equal(st->ops->read(st, 0, &slot, p, 1, &err), 0);
		assert_int_equal(err, -EIO);
		assert_int_equal(stat_of(st).io_errors, 2);
		assert_int_equal(dup2(keep, fd), fd);
		expect(st, 0, 3);
		/* A file that has become shorter. */
		assert_int_equal(ftruncate(fd, 4096), 0);
		assert_int_equal(read_one(st, 50), -EIO);
		close(keep);
		close(full);
		check(st);
		store_close(st);
	}
}

static int try_open(const char *path, u64 slots)
{
	struct store_file_options o = { .nr_slots = slots, .path = path, .nr_workers = 1 };
	struct store *st;
	int err = 77;

	logged[0] = 0;
	st = store_file_open(&o, &err);
	store_close(st);
	return st ? 0 : err;
}

static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void test_paths(void **state)
{
	char base[256], path[512];
	u64 meta = arena_bytes(ARENA_META);
	struct rlimit old, lim;
	int fd;

	snprintf(base, sizeof(base), "%s/pswap-test-XXXXXX", dir);
	assert_non_null(mkdtemp(base));
	assert_int_equal(try_open(base, SLOTS), 0);
	assert_int_equal(entries(base), 2);
	/* A file to create: unlinked at once. */
	snprintf(path, sizeof(path), "%s/swap", base);
	assert_int_equal(try_open(path, SLOTS), 0);
	assert_int_equal(entries(base), 2);
	/* An existing one is never touched. */
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, "data", 4), 4);
	close(fd);
	assert_int_equal(try_open(path, SLOTS), -EEXIST);
	assert_non_null(strstr(logged, "exists and is not a directory"));
	fd = open(path, O_RDONLY);
	assert_int_equal(read(fd, path, 10), 4);
	close(fd);
	snprintf(path, sizeof(path), "%s/swap", base);
	unlink(path);
	/* A dangling link is not followed. */
	assert_int_equal(symlink("/nonexistent/file", path), 0);
	assert_int_not_equal(try_open(path, SLOTS), 0);
	unlink(path);
	/* Relative, also after the directory has changed. */
	assert_int_equal(chdir(base), 0);
	assert_int_equal(try_open(".", SLOTS), 0);
	assert_int_equal(try_open("swap", SLOTS), 0);
	assert_int_equal(chdir("/"), 0);

	snprintf(path, sizeof(path), "%s/none/swap", base);
	assert_int_equal(try_open(path, SLOTS), -ENOENT);
	assert_non_null(strstr(logged, "no such directory"));
	snprintf(path, sizeof(path), "%s/none/", base);
	assert_int_equal(try_open(path, SLOTS), -ENOENT);
	assert_int_equal(try_open("/dev/null/x", SLOTS), -ENOTDIR);
	assert_int_equal(try_open("/dev/null", SLOTS), -EEXIST);
	assert_int_equal(try_open("", SLOTS), -EINVAL);
	assert_int_equal(try_open(NULL, SLOTS), -EINVAL);
	assert_int_equal(try_open(base, 100), -EINVAL);
	assert_int_equal(try_open(base, 0), -EINVAL);
	memset(path, 'a', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = 0;
	assert_int_equal(try_open(path, SLOTS), -ENAMETOOLONG);
	/* In memory: refused, and said why. */
	if (!access("/dev/shm", W_OK)) {
		assert_int_equal(try_open("/dev/shm", SLOTS), -EINVAL);
		assert_non_null(strstr(logged, "in memory"));
		assert_int_equal(try_open("/dev/shm/swap", SLOTS), -EINVAL);
	}
	/* A limit on file sizes would kill the process at the first write. */
	getrlimit(RLIMIT_FSIZE, &old);
	lim = old;
	lim.rlim_cur = MiB(4);
	setrlimit(RLIMIT_FSIZE, &lim);
	assert_int_equal(try_open(base, SLOTS), -EFBIG);
	assert_non_null(strstr(logged, "ulimit -f"));
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(entries(base), 2);
	assert_int_equal(rmdir(base), 0);
	assert_true(arena_bytes(ARENA_META) == meta);
}

/* Space of freed clusters goes back: at the second visit of housekeeping, or by purge at once. */
static void test_space(void **state)
{
	struct store *st = open_mode(&modes[0], 1);
	u64 meta = stat_of(st).metadata_bytes;

	assert_int_equal(stat_of(st).memory_bytes, 0);
	for (unsigned c = 0; c < 8; c++)
		write_run(st, c * CLUSTER, CLUSTER, 1);
	assert_int_equal(stat_of(st).used_bytes, SLOTS * RECORD);
	assert_true(stat_of(st).memory_bytes >= SLOTS * RECORD);
	for (unsigned c = 0; c < 8; c += 2)
		st->ops->invalidate_cluster(st, c);
	st->ops->housekeep(st, 0);
	assert_true(stat_of(st).memory_bytes >= SLOTS * RECORD);
	/* One is used again meanwhile. */
	write_one(st, 2 * CLUSTER, 2);
	while (st->ops->housekeep(st, 0))
		;
	assert_true(stat_of(st).memory_bytes < MiB(11));
	expect(st, 2 * CLUSTER, 2);
	for (unsigned c = 1; c < 8; c += 2)
		expect_run(st, c * CLUSTER, CLUSTER, 1);
	st->ops->invalidate(st, 0, SLOTS);
	st->ops->purge(st);
	assert_int_equal(stat_of(st).memory_bytes, 0);
	assert_true(stat_of(st).returned_bytes >= SLOTS * RECORD);
	assert_true(stat_of(st).metadata_bytes < meta + MiB(1));
	write_one(st, 1, 9);
	expect(st, 1, 9);
	check(st);
	store_close(st);
}

/* Parent and child write and free the same slots, and both still read what was there before. */
static void run_fork(const struct mode *m, bool renumber)
{
	struct store *st = open_mode(m, 1);
	int status, fds[4], n, number;
	pid_t pid;

	write_run(st, 0, CLUSTER, 1);
	write_run(st, CLUSTER, 100, 1);
	assert_int_equal(st->ops->before_fork(st), 0);
	n = store_file_fds(st, fds, 4);
	assert_int_equal(n, 1);
	number = fds[0];
	pid = fork();
	if (!pid) {
		arena_after_fork();
		st->ops->after_fork(st);
		if (renumber) {
			/* Handed over under another number; the old one is something else here. */
			int fd = dup(number), other = open("/dev/null", O_RDWR);

			dup2(other, number);
			store_file_set_fds(st, &fd, 1);
		}
		expect_run(st, 0, CLUSTER, 1);
		assert_int_equal(write_run(st, 50, 100, 2), 100);
		assert_int_equal(store_file_fds(st, fds, 4), 2);
		st->ops->invalidate(st, 200, 10);
		for (unsigned i = 0; i < 300; i++) {
			if (i >= 200 && i < 210)
				assert_int_equal(read_one(st, i), -ENODATA);
			else
				expect(st, i, i >= 50 && i < 150 ? 2 : 1);
		}
		check(st);
		/* With its last slot the old file goes. */
		st->ops->invalidate_cluster(st, 1);
		write_run(st, 0, CLUSTER, 3);
		st->ops->housekeep(st, 0);
		assert_int_equal(store_file_fds(st, fds, 4), 1);
		expect_run(st, 0, CLUSTER, 3);
		check(st);
		store_close(st);
		/* The store has closed its file, not what has the file's old number here. */
		_exit((fcntl(number, F_GETFD) >= 0) == renumber ? 0 : 3);
	}
	write_run(st, 100, 100, 7);
	st->ops->invalidate_cluster(st, 1);
	st->ops->purge(st);
	write_run(st, CLUSTER, 5, 7);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	for (unsigned i = 0; i < CLUSTER; i++)
		expect(st, i, i >= 100 && i < 200 ? 7 : 1);
	expect_run(st, CLUSTER, 5, 7);
	assert_int_equal(read_one(st, CLUSTER + 5), -ENODATA);
	assert_int_equal(store_file_fds(st, fds, 4), 2);
	check(st);
	store_close(st);
}

static void test_fork(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
		run_fork(&modes[i], false);
		run_fork(&modes[i], true);
	}
}

/* One fork after the other: a file is opened only after slots were written, and closed when its
 * last slot goes. */
static void test_generations(void **state)
{
	struct store *st = open_mode(&modes[1], 1);
	int fds[100];

	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(st->ops->before_fork(st), 0);
	write_one(st, 0, 0);
	assert_int_equal(store_file_fds(st, fds, 100), 1);
	for (unsigned i = 0; i < 30; i++) {
		st->ops->before_fork(st);
		st->ops->before_fork(st);
		assert_int_equal(write_run(st, i * 5, 20, i), 20);
		check(st);
	}
	assert_int_equal(store_file_fds(st, fds, 0), 31);
	st->ops->housekeep(st, 0);
	/* Version 0's single slot was overwritten. */
	assert_int_equal(store_file_fds(st, fds, 100), 30);
	for (unsigned i = 0; i < 30; i++)
		for (unsigned k = 0; k < (i == 29 ? 20 : 5); k++)
			expect(st, i * 5 + k, i);
	st->ops->invalidate(st, 0, 100);
	st->ops->housekeep(st, 0);
	assert_int_equal(store_file_fds(st, fds, 100), 10);
	st->ops->invalidate_cluster(st, 0);
	check(st);
	st->ops->purge(st);
	assert_int_equal(store_file_fds(st, fds, 100), 1);
	write_one(st, 0, 5);
	expect(st, 0, 5);
	store_close(st);
}

/* No more files to be had: writes say that there is no space, reads go on. */
static void test_no_more_files(void **state)
{
	struct store *st = open_mode(&modes[0], 1);
	struct rlimit old, lim;

	write_one(st, 0, 1);
	st->ops->before_fork(st);
	getrlimit(RLIMIT_NOFILE, &old);
	lim = old;
	lim.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &lim);
	assert_int_equal(write_one(st, 1, 1), -ENOSPC);
	expect(st, 0, 1);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(write_one(st, 1, 1), 1);
	expect(st, 1, 1);
	check(st);
	store_close(st);
}

/* Four threads whose slots share blocks, and a housekeeper. */
#define THREADS 4U

struct thread {
	pthread_t id;
	struct store *st;
	unsigned nr, errors;
	u32 *version;
	u8 *mem;
};

static _Atomic bool stop;

static void *worker_main(void *arg)
{
	struct thread *t = arg;
	u64 rng = t->nr * 7777 + 1, slots[64];
	void *p[64];
	int err = 0;

	for (unsigned i = 0; i < 64; i++)
		p[i] = t->mem + i * PAGE_SIZE;
	for (unsigned op = 1; op < 150; op++) {
		unsigned n, c, first, what;

		rng = rng * 6364136223846793005ULL + 1442695040888963407ULL;
		c = (unsigned)(rng >> 33) % 4;
		n = 1 + (unsigned)(rng >> 40) % 30;
		first = (unsigned)(rng >> 48) % 60;
		what = (unsigned)(rng >> 60);
		/* Every fourth slot of two clusters: all blocks are shared. */
		for (unsigned i = 0; i < n; i++) {
			slots[i] = (c % 2) * CLUSTER + (first + i) * THREADS + t->nr;
			if (c >= 2) /* runs in an own cluster */
				slots[i] = (2 + t->nr) * CLUSTER + first + i;
		}
		if (what < 7) {
			for (unsigned i = 0; i < n; i++) {
				fill(p[i], slots[i], op);
				t->version[slots[i]] = op;
			}
			t->errors += t->st->ops->write(t->st, t->nr, slots,
						       (const void *const *)p, n) != (int)n;
		} else if (what < 14) {
			for (unsigned i = 0; i < n; i++)
				if (!t->version[slots[i]])
					n = i;
			t->errors += t->st->ops->read(t->st, t->nr, slots, p, n, &err) != (int)n;
			for (unsigned i = 0; i < n; i++) {
				u8 *expected = t->mem + 64 * PAGE_SIZE;

				fill(expected, slots[i], t->version[slots[i]]);
				t->errors += memcmp(expected, p[i], PAGE_SIZE) != 0;
			}
		} else if (c >= 2 && what == 15) {
			t->st->ops->invalidate_cluster(t->st, 2 + t->nr);
			memset(t->version + (2 + t->nr) * CLUSTER, 0, CLUSTER * sizeof(u32));
		} else {
			for (unsigned i = 0; i < n; i++) {
				t->st->ops->invalidate(t->st, slots[i], 1);
				t->version[slots[i]] = 0;
			}
		}
	}
	return NULL;
}

static void *housekeeper_main(void *arg)
{
	struct thread *t = arg;
	struct store_stat s;

	while (!stop) {
		t->st->ops->housekeep(t->st, t->nr);
		t->st->ops->purge(t->st);
		t->st->ops->stat(t->st, &s);
		usleep(1000);
	}
	return NULL;
}

static void test_threads(void **state)
{
	static u32 version[SLOTS];

	for (unsigned m = 0; m < ARRAY_SIZE(modes); m++) {
		struct store *st = open_mode(&modes[m], THREADS + 1);
		struct thread t[THREADS + 1];

		memset(version, 0, sizeof(version));
		stop = false;
		for (unsigned i = 0; i <= THREADS; i++) {
			t[i] = (struct thread){ .st = st, .nr = i, .version = version };
			t[i].mem = arena_map(65 * PAGE_SIZE);
			pthread_create(&t[i].id, NULL, i < THREADS ? worker_main : housekeeper_main,
				       &t[i]);
		}
		for (unsigned i = 0; i < THREADS; i++) {
			pthread_join(t[i].id, NULL);
			assert_int_equal(t[i].errors, 0);
		}
		stop = true;
		pthread_join(t[THREADS].id, NULL);
		for (unsigned i = 0; i <= THREADS; i++)
			arena_unmap(t[i].mem, 65 * PAGE_SIZE);
		check(st);
		for (u64 slot = 0; slot < SLOTS; slot++) {
			if (version[slot])
				expect(st, slot, version[slot]);
			else
				assert_int_equal(read_one(st, slot), -ENODATA);
		}
		assert_int_equal(stat_of(st).io_errors, 0);
		store_close(st);
	}
}

static int setup(void **state)
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

static int need_dir(void **state)
{
	if (!dir)
		skip();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_round_trip, need_dir),
		cmocka_unit_test_setup(test_neighbours, need_dir),
		cmocka_unit_test_setup(test_invalidate, need_dir),
		cmocka_unit_test_setup(test_tampering, need_dir),
		cmocka_unit_test_setup(test_secrecy, need_dir),
		cmocka_unit_test_setup(test_device_errors, need_dir),
		cmocka_unit_test_setup(test_paths, need_dir),
		cmocka_unit_test_setup(test_space, need_dir),
		cmocka_unit_test_setup(test_fork, need_dir),
		cmocka_unit_test_setup(test_generations, need_dir),
		cmocka_unit_test_setup(test_no_more_files, need_dir),
		cmocka_unit_test_setup(test_threads, need_dir),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
