/* SPDX-License-Identifier: MIT */
/*
 * The file store: in all its modes what is written comes back, neighbours in a block survive each
 * other, and changed, moved and older records are found out.
 */
#include "store_file_util.h"

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

/* The block a worker remembers is of no use once another has written in the cluster. */
static void test_remembered_edge(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
		struct store *st = open_mode(&modes[i], 2);
		const void *p = page;
		u64 slot = 3;

		write_one(st, slot, 1);
		fill(page, slot, 2);
		assert_int_equal(st->ops->write(st, 1, &slot, &p, 1), 1);
		write_one(st, 4, 1);
		expect(st, 3, 2);
		expect(st, 4, 1);
		/* Nor after the slot was dropped and the space given back. */
		st->ops->invalidate(st, 0, CLUSTER);
		st->ops->purge(st);
		write_one(st, 3, 3);
		write_one(st, 4, 3);
		write_one(st, 5, 3);
		expect_run(st, 3, 3, 3);
		check(st);
		store_close(st);
	}
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_round_trip, need_dir),
		cmocka_unit_test_setup(test_neighbours, need_dir),
		cmocka_unit_test_setup(test_remembered_edge, need_dir),
		cmocka_unit_test_setup(test_invalidate, need_dir),
		cmocka_unit_test_setup(test_tampering, need_dir),
		cmocka_unit_test_setup(test_secrecy, need_dir),
		cmocka_unit_test_setup(test_device_errors, need_dir),
		cmocka_unit_test_setup(test_paths, need_dir),
		cmocka_unit_test_setup(test_space, need_dir),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
