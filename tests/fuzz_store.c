/* SPDX-License-Identifier: MIT */
/*
 * fuzz_store - random writes, reads, invalidates and housekeeping against a plain model: for each
 * slot the version it was last written with, 0 when it is empty.  What a page holds is a function
 * of slot and version.
 *
 *	fuzz_store [SEED] [OPS]
 *
 * or, built with -DPS_LIBFUZZER, a libFuzzer target.  The first byte chooses the store.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "arena.h"
#include "store.h"
#include "store_file.h"
#include "store_ram.h"

#define SLOTS (8 * 512U)
#define BATCH 600U
#define WORKERS 3U

static const u8 *data;
static size_t data_left;
static u64 rng;

/* 16 bits of randomness: from the input while there is one, else from the generator. */
static unsigned next(void)
{
	if (data_left >= 2) {
		unsigned v = data[0] | data[1] << 8;

		data += 2;
		data_left -= 2;
		return v;
	}
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (unsigned)(rng >> 20) & 0xffff;
}

/* In a version: the pages of a cluster that were all filled with one word. */
#define FILLED (1U << 31)

static u32 version[SLOTS]; /* 0: empty */
static u32 last_version;
static u8 *bufs; /* BATCH pages */
static u8 *want;

static void fill(u8 *page, u64 slot, u32 ver)
{
	u64 x = slot * 0x9e3779b97f4a7c15ULL + ver * 0xd1b54a32d192ed03ULL;
	u64 *w = (u64 *)page;
	unsigned kind = ver % 8, random_words = 0;

	if (ver & FILLED) {
		x = ver * 0xd1b54a32d192ed03ULL;
		kind = ver % 2;
	}
	x ^= x >> 29;
	switch (kind) {
	case 0:
		x = 0;
		break;
	case 1:
		x = (u32)x * 0x100000001ULL;
		break;
	case 2:
		break;
	case 3:
		random_words = 512;
		break;
	default:
		random_words = (unsigned)(x >> 7) % 512;
		break;
	}
	for (unsigned i = 0; i < 512; i++)
		w[i] = x;
	for (unsigned i = 0; i < random_words; i++) {
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
		w[i] = x ^ x >> 31;
	}
}

static void fail(const char *what, u64 slot)
{
	fprintf(stderr, "fuzz_store: %s, slot %lu\n", what, (unsigned long)slot);
	abort();
}

/* Ascending slots: a run, or every so manyth. */
static unsigned pick(u64 *slots, unsigned max)
{
	unsigned n = 1 + next() % (next() & 1 ? max : 20), step = next() & 3 ? 1 : 1 + next() % 9;
	u64 s = next() % SLOTS;
	unsigned i;

	for (i = 0; i < n && s < SLOTS; i++, s += step)
		slots[i] = s;
	return i;
}

static void op_write(struct store *st, unsigned worker)
{
	const void *pages[BATCH];
	u64 slots[BATCH];
	unsigned n = pick(slots, BATCH);
	int done;

	for (unsigned i = 0; i < n; i++) {
		pages[i] = bufs + i * PAGE_SIZE;
		fill(bufs + i * PAGE_SIZE, slots[i], last_version + 1 + i);
	}
	done = st->ops->write(st, worker, slots, pages, n);
	if (done < 0 && done != -ENOSPC)
		fail("write", slots[0]);
	if (done > (int)n)
		fail("write says it wrote too much", slots[0]);
	for (int i = 0; i < done; i++)
		version[slots[i]] = last_version + 1 + (unsigned)i;
	last_version += n;
}

/* What a whole cluster of zeros, or of anything that was filled, comes to. */
static void op_write_filled(struct store *st, unsigned worker)
{
	unsigned c = next() % (SLOTS / 512), n = next() % 8 ? 512 : 500;
	u32 ver = ++last_version | FILLED;
	const void *pages[512];
	u64 slots[512];
	int done;

	fill(bufs, 0, ver);
	for (unsigned i = 0; i < n; i++) {
		pages[i] = bufs;
		slots[i] = c * 512 + i;
	}
	done = st->ops->write(st, worker, slots, pages, n);
	if (done != (int)n && done != -ENOSPC)
		fail("write of a filled cluster", slots[0]);
	for (int i = 0; i < done; i++)
		version[slots[i]] = ver;
}

static void op_read(struct store *st, unsigned worker)
{
	void *pages[BATCH];
	u64 slots[BATCH];
	unsigned n = pick(slots, BATCH);
	int done, err = 0;

	for (unsigned i = 0; i < n; i++)
		pages[i] = bufs + i * PAGE_SIZE;
	for (unsigned at = 0; at < n; at += (unsigned)done + 1) {
		done = st->ops->read(st, worker, slots + at, pages + at, n - at, &err);
		if (done < 0 || done > (int)(n - at))
			fail("read returned nonsense", slots[at]);
		for (unsigned i = at; i < at + (unsigned)done; i++) {
			if (!version[slots[i]])
				fail("read an empty slot", slots[i]);
			fill(want, slots[i], version[slots[i]]);
			if (memcmp(want, pages[i], PAGE_SIZE))
				fail("wrong bytes", slots[i]);
		}
		if (at + (unsigned)done < n &&
		    (err != -ENODATA || version[slots[at + (unsigned)done]]))
			fail("read failed", slots[at + (unsigned)done]);
	}
}

static void op_invalidate(struct store *st)
{
	u64 s = next() % SLOTS;
	unsigned n = 1 + next() % (next() & 3 ? 40 : 1200);

	n = MIN(n, (unsigned)(SLOTS - s));
	st->ops->invalidate(st, s, n);
	memset(version + s, 0, n * sizeof(version[0]));
}

static void op_invalidate_cluster(struct store *st)
{
	u64 c = next() % (SLOTS / 512);

	st->ops->invalidate_cluster(st, c);
	memset(version + c * 512, 0, 512 * sizeof(version[0]));
}

static void check(struct store *st, bool ram)
{
	const char *wrong = ram ? store_ram_check(st) : store_file_check(st);

	if (wrong)
		fail(wrong, 0);
}

static struct store *open_store(unsigned which, bool *ram)
{
	struct store_ram_options r = { .nr_slots = SLOTS, .nr_workers = WORKERS, .verify = true };
	struct store_file_options f = { .nr_slots = SLOTS, .nr_workers = WORKERS };
	const char *dir = getenv("PS_TEST_DIR");
	struct store *st;
	int err;

	*ram = which % 8 < 4;
	switch (which % 8) {
	case 1:
		r.purge_inline = true;
		break;
	case 2:
		r.codec = CODEC_ZSTD;
		r.level = 1 + (int)(which / 8 % 19);
		break;
	case 3:
		r.max_bytes = MiB(6);
		break;
	case 4:
		f.flags = STORE_FILE_NO_URING;
		break;
	case 5:
		f.encrypt = true;
		break;
	case 6:
		f.encrypt = true;
		f.flags = STORE_FILE_NO_AES | STORE_FILE_NO_DIRECT;
		break;
	default:
		break;
	}
	f.path = dir ? dir : "/var/tmp";
	st = *ram ? store_ram_open(&r, &err) : store_file_open(&f, &err);
	if (!st && !*ram && err == -EINVAL) { /* no place for files here */
		*ram = true;
		st = store_ram_open(&r, &err);
	}
	if (!st)
		fail("open", (u64)-err);
	return st;
}

static void run(unsigned ops)
{
	u64 pool = arena_bytes(ARENA_POOL);
	bool ram;
	struct store *st = open_store(next(), &ram);
	struct store_stat stat;

	memset(version, 0, sizeof(version));
	last_version = 0;
	for (unsigned i = 0; i < ops; i++) {
		unsigned worker = next() % (WORKERS - 1);

		switch (next() % 16) {
		case 0 ... 3:
			op_write(st, worker);
			break;
		case 4:
			op_write_filled(st, worker);
			break;
		case 5 ... 8:
			op_read(st, worker);
			break;
		case 9 ... 10:
			op_invalidate(st);
			break;
		case 11:
			op_invalidate_cluster(st);
			break;
		case 12 ... 13:
			st->ops->housekeep(st, WORKERS - 1);
			break;
		case 14:
			if (next() % 8 == 0)
				st->ops->purge(st);
			break;
		default:
			check(st, ram);
			break;
		}
	}
	st->ops->invalidate(st, 0, SLOTS);
	check(st, ram);
	st->ops->purge(st);
	st->ops->stat(st, &stat);
	if (stat.used_bytes || (ram && stat.memory_bytes))
		fail("memory is left", 0);
	if (stat.io_errors)
		fail("errors were counted", 0);
	store_close(st);
	if (arena_bytes(ARENA_POOL) != pool)
		fail("the arena is short of units", 0);
}

static void setup(void)
{
	if (!bufs) {
		bufs = arena_map(BATCH * PAGE_SIZE);
		want = arena_map(PAGE_SIZE);
	}
}

#ifdef PS_LIBFUZZER
int LLVMFuzzerTestOneInput(const u8 *in, size_t size);

int LLVMFuzzerTestOneInput(const u8 *in, size_t size)
{
	setup();
	rng = 88172645463325252ULL;
	data = in;
	data_left = size;
	run((unsigned)MIN(size, (size_t)200));
	return 0;
}
#else
int main(int argc, char **argv)
{
	u64 seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	unsigned ops = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 2000;

	setup();
	for (unsigned which = 0; which < 8; which++) {
		u8 first[2] = { (u8)(which + seed % 31 * 8), 0 };

		rng = seed * 0x9e3779b97f4a7c15ULL + which + 1;
		data = first;
		data_left = sizeof(first);
		run(ops / 8);
	}
	printf("fuzz_store: seed %lu, %u operations: ok\n", (unsigned long)seed, ops);
	return 0;
}
#endif
