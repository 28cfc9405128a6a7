/* SPDX-License-Identifier: MIT */
/*
 * The compressed RAM store: what is written comes back, what is damaged does not, and memory
 * returns to where it began.
 */
#include "store_ram_util.h"

static void test_options(void **state)
{
	static const struct store_ram_options bad[] = {
		{ .nr_slots = 0, .nr_workers = 1 },
		{ .nr_slots = 511, .nr_workers = 1 },
		{ .nr_slots = 512, .nr_workers = 0 },
		{ .nr_slots = 512, .nr_workers = 1, .max_bytes = 4096 },
		{ .nr_slots = 512, .nr_workers = 1, .codec = CODEC_ZSTD, .level = 25 },
	};
	u64 meta = arena_bytes(ARENA_META);
	int err;

	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		err = 0;
		assert_null(store_ram_open(&bad[i], &err));
		assert_int_equal(err, -EINVAL);
	}
	err = 0;
	assert_null(store_ram_open(&(struct store_ram_options){ .nr_slots = 1ULL << 39,
								.nr_workers = 1 << 20 },
				   &err));
	assert_int_equal(err, -ENOMEM);
	assert_true(arena_bytes(ARENA_META) == meta);
	store_close(NULL);
}

static void test_kinds(void **state)
{
	struct store *st = open_ram((struct store_ram_options){ .nr_slots = 1024, .verify = true });
	struct store_stat s;

	for (unsigned i = 0; i < 1024; i++)
		assert_int_equal(write_one(st, i, i, (enum kind)(i % NR_KINDS)), 1);
	for (unsigned i = 1024; i-- > 0;)
		expect(st, i, i, (enum kind)(i % NR_KINDS));
	s = stat_of(st);
	assert_int_equal(s.pages_same_filled, 205 + 205 + 205);
	assert_int_equal(s.pages_incompressible, 204);
	/* One word that repeats every 4 bytes takes no memory, one of 8 takes 16 bytes. */
	assert_true(s.used_bytes >= 205 * 16 + 204 * 4104 && s.used_bytes < 205 * 16 + 204 * 5400);
	assert_true(s.memory_bytes >= s.used_bytes);
	assert_int_equal(s.io_errors, 0);
	check(st);
	/* Overwriting, also by another kind. */
	for (unsigned i = 0; i < 1024; i++)
		assert_int_equal(write_one(st, i, i + 1, (enum kind)((i + 2) % NR_KINDS)), 1);
	for (unsigned i = 0; i < 1024; i++)
		expect(st, i, i + 1, (enum kind)((i + 2) % NR_KINDS));
	check(st);
	st->ops->invalidate(st, 0, 1024);
	assert_int_equal(stat_of(st).used_bytes, 0);
	check(st);
	store_close(st);
}

static void test_empty(void **state)
{
	struct store *st = open_ram((struct store_ram_options){ .nr_slots = 2048, .verify = true });
	void *p[4] = { page, page, page, page };
	u64 slots[4] = { 1, 2, 3, 4 };
	int err = 0;

	assert_int_equal(read_one(st, 0), -ENODATA);
	assert_int_equal(st->ops->write(st, 0, slots, (const void *const *)p, 0), 0);
	assert_int_equal(st->ops->read(st, 0, slots, p, 0, &err), 0);
	assert_int_equal(err, 0);
	write_one(st, 1, 1, MIXED);
	write_one(st, 2, 1, MIXED);
	write_one(st, 4, 1, MIXED);
	/* The first two are right, the third has never been written. */
	assert_int_equal(st->ops->read(st, 0, slots, p, 4, &err), 2);
	assert_int_equal(err, -ENODATA);
	/* Invalidating what is empty is fine, and touches nothing else. */
	st->ops->invalidate(st, 512, 1536);
	st->ops->invalidate_cluster(st, 3);
	st->ops->invalidate(st, 3, 1);
	expect(st, 4, 1, MIXED);
	st->ops->invalidate(st, 2, 1);
	assert_int_equal(read_one(st, 2), -ENODATA);
	expect(st, 1, 1, MIXED);
	/* A run over cluster borders. */
	write_one(st, 511, 1, MIXED);
	write_one(st, 512, 1, WORD64);
	write_one(st, 1024, 1, MIXED);
	write_one(st, 1025, 1, MIXED);
	st->ops->invalidate(st, 511, 514);
	assert_int_equal(read_one(st, 511), -ENODATA);
	assert_int_equal(read_one(st, 512), -ENODATA);
	assert_int_equal(read_one(st, 1024), -ENODATA);
	expect(st, 1025, 1, MIXED);
	check(st);
	store_close(st);
}

static void test_corruption(void **state)
{
	static const enum kind kinds[] = { WORD64, MIXED, RANDOM };

	for (unsigned codec = 0; codec < 2; codec++) {
		struct store *st = open_ram((struct store_ram_options){
			.nr_slots = 512, .verify = true, .codec = (enum codec_id)codec });
		void *p[3] = { page, want, page };
		u64 slots[3] = { 0, 1, 2 };
		int err = 0;

		for (unsigned i = 0; i < 3; i++) {
			write_one(st, i, 9, kinds[i]);
			expect(st, i, 9, kinds[i]);
			assert_true(store_ram_flip(st, i));
			assert_int_equal(read_one(st, i), -EIO);
			assert_int_equal(stat_of(st).io_errors, i + 1);
			assert_true(store_ram_flip(st, i));
			expect(st, i, 9, kinds[i]);
		}
		store_ram_flip(st, 1);
		assert_int_equal(st->ops->read(st, 0, slots, p, 3, &err), 1);
		assert_int_equal(err, -EIO);
		/* A damaged slot can be written again. */
		write_one(st, 1, 10, MIXED);
		expect(st, 1, 10, MIXED);
		/* What is in the tables has no object. */
		write_one(st, 3, 1, WORD32);
		assert_false(store_ram_flip(st, 3));
		assert_false(store_ram_flip(st, 4));
		store_close(st);
	}
}

static void test_unverified(void **state)
{
	struct store *st = open_ram((struct store_ram_options){ .nr_slots = 512 });

	write_one(st, 0, 1, RANDOM);
	store_ram_flip(st, 0);
	assert_int_equal(read_one(st, 0), 0);
	/* A damaged stream is still refused or gives some page: it never overruns. */
	write_one(st, 1, 1, MIXED);
	store_ram_flip(st, 1);
	read_one(st, 1);
	store_close(st);
}

static void test_zstd(void **state)
{
	u64 used[20];

	for (int level = 1; level <= 19; level += 6) {
		struct store *st = open_ram((struct store_ram_options){
			.nr_slots = 512, .codec = CODEC_ZSTD, .level = level, .verify = true });

		write_cluster(st, 0, 0, 5, MIXED);
		for (unsigned i = 0; i < 512; i++)
			expect(st, i, 5, MIXED);
		used[level] = stat_of(st).used_bytes;
		assert_true(used[level] < 512 * 1200);
		store_close(st);
	}
}

/* Whole clusters: one step frees them, the space comes back, nothing of an older life shines
 * through, also when the generation goes round. */
static void test_invalidate_cluster(void **state)
{
	u64 pool = arena_bytes(ARENA_POOL);
	struct store *st = open_ram((struct store_ram_options){ .nr_slots = 4 * 512, .verify = true });

	for (unsigned round = 0; round < 300; round++) {
		u64 c = round % 4;

		if (round % 50 == 0) {
			write_cluster(st, 0, c, round, MIXED);
			expect(st, c * 512 + 100, round, MIXED);
		}
		write_one(st, c * 512 + round % 512, round, MIXED);
		expect(st, c * 512 + round % 512, round, MIXED);
		st->ops->invalidate_cluster(st, c);
		for (unsigned i = 0; i < 512; i++)
			assert_int_equal(read_one(st, c * 512 + i), -ENODATA);
		assert_int_equal(stat_of(st).used_bytes, 0);
	}
	check(st);
	/* Slots that were filled 127 generations ago. */
	write_cluster(st, 0, 0, 1, MIXED);
	for (unsigned round = 0; round < 127; round++) {
		st->ops->invalidate_cluster(st, 0);
		write_one(st, 7, round, MIXED);
		assert_int_equal(read_one(st, 8), -ENODATA);
		check(st);
	}
	st->ops->invalidate(st, 0, 2048);
	st->ops->purge(st);
	assert_int_equal(stat_of(st).memory_bytes, 0);
	assert_true(arena_bytes(ARENA_POOL) == pool);
	store_close(st);
}

/* A cluster with parts in more segments than its record holds. */
static void test_scattered(void **state)
{
	struct store *st =
		open_ram((struct store_ram_options){ .nr_slots = 64 * 512, .verify = true });

	for (unsigned i = 0; i < 20; i++) {
		write_one(st, i * 7, 1, MIXED);
		write_cluster(st, 0, 1 + i, 1, RANDOM);
		check(st);
	}
	for (unsigned i = 0; i < 20; i++)
		expect(st, i * 7, 1, MIXED);
	st->ops->invalidate(st, 0, 70);
	check(st);
	for (unsigned i = 10; i < 20; i++)
		expect(st, i * 7, 1, MIXED);
	st->ops->invalidate_cluster(st, 0);
	check(st);
	for (unsigned i = 0; i < 20; i++)
		st->ops->invalidate_cluster(st, 1 + i);
	assert_int_equal(stat_of(st).used_bytes, 0);
	check(st);
	/* Compaction brings its parts together. */
	for (unsigned i = 0; i < 20; i++) {
		write_one(st, i, 2, MIXED);
		write_cluster(st, 0, 1 + i, 2, RANDOM);
	}
	for (unsigned i = 0; i < 20; i++)
		st->ops->invalidate_cluster(st, 1 + i);
	housekeep(st);
	check(st);
	for (unsigned i = 0; i < 20; i++)
		expect(st, i, 2, MIXED);
	assert_in_range(stat_of(st).segments, 1, 3);
	store_close(st);
}

static void fill_and_empty(bool inline_purge, bool whole)
{
	u64 pool = arena_bytes(ARENA_POOL), meta = arena_bytes(ARENA_META);
	struct store *st = open_ram((struct store_ram_options){
		.nr_slots = 64 * 512, .verify = true, .purge_inline = inline_purge });
	struct store_stat s;

	for (unsigned round = 0; round < 2; round++) {
		for (unsigned c = 0; c < 64; c++)
			write_cluster(st, 0, c, round, c % 2 ? MIXED : RANDOM);
		s = stat_of(st);
		assert_true(s.used_bytes > 32 * 512 * 5000);
		assert_true(s.memory_bytes < s.used_bytes + MiB(3));
		assert_true(arena_bytes(ARENA_POOL) == pool + s.memory_bytes);
		for (unsigned c = 0; c < 64; c++) {
			if (whole)
				st->ops->invalidate_cluster(st, c);
			for (unsigned i = 0; !whole && i < 512; i++)
				st->ops->invalidate(st, c * 512 + i, 1);
		}
		check(st);
		s = stat_of(st);
		assert_int_equal(s.used_bytes, 0);
		if (inline_purge) {
			/* Only the open segment is left. */
			assert_int_equal(s.memory_bytes, MiB(2));
		} else {
			assert_true(s.memory_bytes > MiB(80));
			housekeep(st);
			/* The open segment goes when it is found idle. */
			housekeep(st);
			assert_int_equal(stat_of(st).memory_bytes, 0);
		}
	}
	st->ops->purge(st);
	s = stat_of(st);
	assert_int_equal(s.memory_bytes, 0);
	assert_int_equal(s.segments, 0);
	assert_true(s.returned_bytes > MiB(160));
	assert_true(arena_bytes(ARENA_POOL) == pool);
	store_close(st);
	assert_true(arena_bytes(ARENA_META) == meta);
}

static void test_memory_returns(void **state)
{
	fill_and_empty(false, true);
	fill_and_empty(false, false);
	fill_and_empty(true, true);
	fill_and_empty(true, false);
}

/* Of slots [first, end) those that n divides stay. */
static void keep_every(struct store *st, unsigned first, unsigned end, unsigned n)
{
	for (unsigned i = first; i < end; i++)
		if (i % n)
			st->ops->invalidate(st, i, 1);
}

/* What another process has as well is not moved, unless hardly anything lives there; what comes later is. */
static void test_compaction_shared(void **state)
{
	struct store *st = open_ram((struct store_ram_options){ .nr_slots = 64 * 512, .verify = true });
	struct store_stat then, now;

	for (unsigned c = 0; c < 32; c++)
		write_cluster(st, 0, c, 3, MIXED);
	keep_every(st, 0, 32 * 512, 4);
	st->ops->share(st, true);
	then = stat_of(st);
	housekeep(st);
	check(st);
	now = stat_of(st);
	assert_int_equal(now.segments_compacted, 0);
	assert_int_equal(now.memory_bytes, then.memory_bytes);
	for (unsigned c = 32; c < 64; c++)
		write_cluster(st, 0, c, 3, MIXED);
	keep_every(st, 32 * 512, 64 * 512, 4);
	housekeep(st);
	now = stat_of(st);
	assert_true(now.segments_compacted > 5 && now.memory_bytes > then.memory_bytes);
	then = now;
	keep_every(st, 0, 32 * 512, 16);
	housekeep(st);
	now = stat_of(st);
	assert_true(now.segments_compacted > then.segments_compacted + 5);
	keep_every(st, 32 * 512, 64 * 512, 8);
	st->ops->share(st, true); /* once more */
	then = stat_of(st);
	housekeep(st);
	/* The one that was open may hold next to nothing. */
	assert_true(stat_of(st).segments_compacted <= then.segments_compacted + 1);
	st->ops->share(st, false);
	housekeep(st);
	check(st);
	assert_true(stat_of(st).segments_compacted > then.segments_compacted + 1);
	for (unsigned i = 0; i < 32 * 512; i += 16)
		expect(st, i, 3, MIXED);
	st->ops->purge(st);
	store_close(st);
}

static void test_compaction(void **state)
{
	struct store *st =
		open_ram((struct store_ram_options){ .nr_slots = 64 * 512, .verify = true });
	struct store_stat before, after;

	for (unsigned c = 0; c < 64; c++)
		write_cluster(st, 0, c, 3, MIXED);
	keep_every(st, 0, 64 * 512, 4);
	before = stat_of(st);
	assert_true(before.memory_bytes > 3 * before.used_bytes);
	housekeep(st);
	check(st);
	after = stat_of(st);
	assert_true(after.used_bytes == before.used_bytes);
	assert_true(after.memory_bytes < before.used_bytes + MiB(6));
	assert_true(after.segments_compacted > 10);
	for (unsigned i = 0; i < 64 * 512; i++) {
		if (i % 4)
			assert_int_equal(read_one(st, i), -ENODATA);
		else
			expect(st, i, 3, MIXED);
	}
	/* A cut short pass lets go of its victims. */
	for (unsigned c = 0; c < 64; c++)
		write_cluster(st, 0, c, 4, MIXED);
	keep_every(st, 0, 64 * 512, 3);
	st->ops->housekeep(st, 0);
	st->ops->invalidate(st, 0, 64 * 512);
	st->ops->purge(st);
	check(st);
	assert_int_equal(stat_of(st).memory_bytes, 0);
	store_close(st);
}

static void test_max_bytes(void **state)
{
	struct store *st = open_ram((struct store_ram_options){
		.nr_slots = 64 * 512, .max_bytes = MiB(16), .verify = true });
	const void *p[64];
	u64 slots[64];
	unsigned n = 0;
	int ret;

	assert_true(stat_of(st).capacity_bytes == MiB(16));
	while ((ret = write_one(st, n, 1, RANDOM)) == 1)
		n++;
	assert_int_equal(ret, -ENOSPC);
	assert_in_range(n, 8 * 509, 8 * 511);
	assert_int_equal(stat_of(st).memory_bytes, MiB(16));
	check(st);
	/* Same-filled pages need no room; a batch stops where there is none. */
	assert_int_equal(write_one(st, 60 * 512, 1, ZERO), 1);
	for (unsigned i = 0; i < 64; i++) {
		slots[i] = 61 * 512 + i;
		p[i] = page;
	}
	st->ops->invalidate(st, 0, 600);
	ret = 0;
	for (unsigned i = 0; i < 10; i++) {
		fill(page, i, 1, RANDOM);
		ret = st->ops->write(st, 0, slots, p, 64);
		assert_in_range(ret, 1, 64);
		if (ret < 64)
			break;
		for (unsigned j = 0; j < 64; j++)
			slots[j] += 64;
	}
	check(st);
	for (unsigned i = 600; i < n; i++)
		expect(st, i, 1, RANDOM);
	/* Nearly full of half dead segments: compaction makes room within the limit. */
	for (unsigned i = 600; i < n; i += 2)
		st->ops->invalidate(st, i, 1);
	assert_in_range(st->ops->write(st, 0, slots, p, 0), 0, 0);
	st->ops->invalidate(st, 61 * 512, 1536);
	while (write_one(st, 0, 1, RANDOM) == 1)
		;
	for (unsigned i = 0; i < 3; i++)
		housekeep(st);
	check(st);
	assert_true(stat_of(st).memory_bytes <= MiB(16));
	for (unsigned i = 0; i < 500; i++)
		assert_int_equal(write_one(st, 1024 * 20 + i, 1, RANDOM), 1);
	assert_true(stat_of(st).memory_bytes <= MiB(16));
	for (unsigned i = 601; i < n; i += 2)
		expect(st, i, 1, RANDOM);
	check(st);
	store_close(st);
}

/* With few segments allowed, a worker takes what another has begun. */
static void test_borrow(void **state)
{
	struct store *st = open_ram((struct store_ram_options){
		.nr_slots = 4 * 512, .max_bytes = MiB(4), .nr_workers = 3, .verify = true });
	const void *p = page;
	unsigned n = 2;
	int ret;

	for (u64 slot = 0; slot < 2; slot++) {
		fill(page, slot, 1, RANDOM);
		assert_int_equal(st->ops->write(st, 2 - (unsigned)slot, &slot, &p, 1), 1);
	}
	assert_int_equal(stat_of(st).segments, 2);
	while ((ret = write_one(st, n, 1, RANDOM)) == 1)
		n++;
	assert_int_equal(ret, -ENOSPC);
	assert_in_range(n, 2 * 509, 2 * 511);
	for (unsigned i = 0; i < n; i++)
		expect(st, i, 1, RANDOM);
	check(st);
	st->ops->invalidate(st, 0, 4 * 512);
	st->ops->purge(st);
	assert_int_equal(stat_of(st).memory_bytes, 0);
	store_close(st);
}

/* No address space left: the write says so and nothing is lost. */
static void test_no_memory(void **state)
{
	pid_t pid;
	int status;

	if (SANITIZED)
		skip(); /* sanitizers need more address space than any limit */
	pid = fork();
	if (!pid) {
		struct store *st = open_ram((struct store_ram_options){
			.nr_slots = 1024 * 512, .verify = true });
		struct rlimit lim = { MiB(512), MiB(512) };
		unsigned n = 0;
		int ret;

		setrlimit(RLIMIT_AS, &lim);
		while ((ret = write_one(st, n, 1, RANDOM)) == 1)
			n++;
		if (ret != -ENOMEM || n < 10000 || store_ram_check(st))
			_exit(1);
		for (unsigned i = 0; i < n; i += 100)
			expect(st, i, 1, RANDOM);
		/* With memory free again, it goes on. */
		st->ops->invalidate(st, 0, 1024);
		if (write_one(st, n, 1, RANDOM) != 1)
			_exit(2);
		expect(st, n, 1, RANDOM);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_metadata(void **state)
{
	struct store *st =
		open_ram((struct store_ram_options){ .nr_slots = 1024 * 512, .nr_workers = 2 });
	struct store_stat s = stat_of(st);

	assert_true(s.metadata_bytes < KiB(128));
	for (unsigned c = 0; c < 1024; c++)
		write_cluster(st, 0, c, 1, WORD32);
	s = stat_of(st);
	assert_true(s.metadata_bytes < 1024 * MiB(2) / 400); /* 0.25 % */
	assert_true(s.metadata_bytes > 1024 * 4096);
	assert_int_equal(s.memory_bytes, 0);
	st->ops->invalidate(st, 0, 1024 * 512);
	housekeep(st);
	assert_true(stat_of(st).metadata_bytes < 1024 * MiB(2) / 1000);
	st->ops->purge(st);
	assert_true(stat_of(st).metadata_bytes < KiB(256));
	for (unsigned i = 0; i < 512; i++)
		assert_int_equal(read_one(st, i), -ENODATA);
	write_one(st, 3, 1, MIXED);
	expect(st, 3, 1, MIXED);
	check(st);
	store_close(st);
}

/* All of a cluster, every byte the same. */
static void write_uniform(struct store *st, u64 cluster, unsigned nr, u8 byte)
{
	const void *p[CLUSTER];
	u64 slots[CLUSTER];

	memset(page, byte, PAGE_SIZE);
	for (unsigned i = 0; i < nr; i++) {
		slots[i] = cluster * CLUSTER + i;
		p[i] = page;
	}
	assert_int_equal(st->ops->write(st, 0, slots, p, nr), nr);
	check(st);
}

/* Slots [from, to) hold pages of that byte. */
static void expect_byte(struct store *st, u64 from, u64 to, u8 byte)
{
	memset(want, byte, PAGE_SIZE);
	for (u64 s = from; s < to; s++) {
		assert_int_equal(read_one(st, s), 0);
		assert_memory_equal(page, want, PAGE_SIZE);
	}
}

/* A cluster that is all one word has no descriptors until a part of it changes. */
static void test_uniform(void **state)
{
	struct store *st = open_ram((struct store_ram_options){ .nr_slots = 8 * 512, .verify = true });
	u64 meta = stat_of(st).metadata_bytes, returned;

	for (unsigned c = 0; c < 8; c++)
		write_uniform(st, c, CLUSTER, 0x11 * c);
	assert_int_equal(stat_of(st).pages_same_filled, 8 * 512);
	assert_int_equal(stat_of(st).metadata_bytes, meta + PAGE_SIZE); /* the records */
	for (unsigned c = 0; c < 8; c++)
		expect_byte(st, c * 512, c * 512 + 512, 0x11 * c);
	/* A slot goes, one is written over, all are written over. */
	st->ops->invalidate(st, 512 + 5, 2);
	check(st);
	expect_byte(st, 512, 512 + 5, 0x11);
	assert_int_equal(read_one(st, 512 + 5), -ENODATA);
	assert_int_equal(read_one(st, 512 + 6), -ENODATA);
	expect_byte(st, 512 + 7, 1024, 0x11);
	write_one(st, 1024 + 511, 1, MIXED);
	check(st);
	expect_byte(st, 1024, 1024 + 511, 0x22);
	expect(st, 1024 + 511, 1, MIXED);
	write_uniform(st, 3, CLUSTER, 0x99);
	expect_byte(st, 3 * 512, 4 * 512, 0x99);
	/* Descriptors of three clusters now, and the table of segments. */
	assert_int_equal(stat_of(st).metadata_bytes, meta + 5 * PAGE_SIZE);
	/* Not all of a cluster, or not one word. */
	st->ops->invalidate_cluster(st, 4);
	assert_int_equal(read_one(st, 4 * 512), -ENODATA);
	write_uniform(st, 4, CLUSTER - 1, 7);
	assert_int_equal(read_one(st, 5 * 512 - 1), -ENODATA);
	expect_byte(st, 4 * 512, 5 * 512 - 1, 7);
	write_cluster(st, 0, 5, 1, WORD32);
	write_cluster(st, 0, 6, 1, WORD64);
	for (unsigned i = 0; i < CLUSTER; i++) {
		expect(st, 5 * 512 + i, 1, WORD32);
		expect(st, 6 * 512 + i, 1, WORD64);
	}
	check(st);
	/* With descriptors and without, through all generations. */
	for (unsigned round = 0; round < 300; round++) {
		st->ops->invalidate_cluster(st, 7);
		assert_int_equal(read_one(st, 7 * 512 + round), -ENODATA);
		if (round % 3 == 0)
			write_uniform(st, 7, CLUSTER, (u8)round);
		else
			write_one(st, 7 * 512 + round, round, WORD32);
		if (round % 3 == 0)
			expect_byte(st, 7 * 512, 8 * 512, (u8)round);
		assert_int_equal(read_one(st, 7 * 512 + (round + 1) % 512),
				 round % 3 ? -ENODATA : 0);
		check(st);
	}
	/* Uniform, it gives the descriptors back that it had. */
	st->ops->invalidate(st, 0, 8 * 512);
	for (unsigned c = 0; c < 8; c++)
		write_uniform(st, c, CLUSTER, 0x11 * c);
	assert_true(stat_of(st).metadata_bytes > meta + 6 * PAGE_SIZE);
	st->ops->purge(st);
	check(st);
	assert_in_range(stat_of(st).metadata_bytes, meta, meta + 2 * PAGE_SIZE);
	for (unsigned c = 0; c < 8; c++)
		expect_byte(st, c * 512, c * 512 + 512, 0x11 * c);
	returned = stat_of(st).returned_bytes;
	st->ops->invalidate(st, 0, 8 * 512);
	st->ops->purge(st);
	assert_int_equal(stat_of(st).returned_bytes, returned);
	check(st);
	store_close(st);
}

/* The child's copy is its own: both write and free the same slots. */
static void test_fork(void **state)
{
	struct store *st = open_ram((struct store_ram_options){ .nr_slots = 8 * 512, .verify = true });
	pid_t pid;
	int status;

	for (unsigned c = 0; c < 8; c++)
		write_cluster(st, 0, c, 1, MIXED);
	assert_null(st->ops->before_fork);
	pid = fork();
	if (!pid) {
		arena_after_fork();
		st->ops->after_fork(st);
		for (unsigned i = 0; i < 4096; i++)
			expect(st, i, 1, MIXED);
		for (unsigned c = 0; c < 8; c += 2)
			write_cluster(st, 0, c, 2, MIXED);
		st->ops->invalidate_cluster(st, 1);
		st->ops->housekeep(st, 0);
		st->ops->purge(st);
		for (unsigned i = 1024; i < 4096; i++)
			expect(st, i, i / 512 % 2 ? 1 : 2, MIXED);
		_exit(store_ram_check(st) ? 1 : 0);
	}
	for (unsigned c = 0; c < 8; c++)
		write_cluster(st, 0, c, 3, MIXED);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	for (unsigned i = 0; i < 4096; i++)
		expect(st, i, 3, MIXED);
	check(st);
	store_close(st);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_kinds),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_corruption),
		cmocka_unit_test(test_unverified),
		cmocka_unit_test(test_zstd),
		cmocka_unit_test(test_invalidate_cluster),
		cmocka_unit_test(test_scattered),
		cmocka_unit_test(test_memory_returns),
		cmocka_unit_test(test_compaction),
		cmocka_unit_test(test_compaction_shared),
		cmocka_unit_test(test_max_bytes),
		cmocka_unit_test(test_borrow),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_metadata),
		cmocka_unit_test(test_uniform),
		cmocka_unit_test(test_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
