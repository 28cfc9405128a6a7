/* SPDX-License-Identifier: MIT */
/*
 * store_bench - ns per page of writes and reads of whole clusters, and ns per invalidate_cluster,
 * for each kind of fill.
 *
 *	store_bench [-z LEVEL] [-f DIR [-e]] [-n CLUSTERS] [-r ROUNDS] [-i] [-m]
 *
 * Prints one line per fill: medians over the rounds, or (-m, for a machine with others on it) the
 * best.  -i gives segments back in invalidate; -f and -e: the file store, -e without encryption.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "arena.h"
#include "codec.h"
#include "store.h"

#define CLUSTER 512U

enum fill { SAME, MIXED, RANDOM };
static const char *const fill_name[] = { "same", "mixed", "random" };

static u64 rng = 88172645463325252ULL;

static u64 next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

/* mixed: a quarter of every page random bytes, the rest a short text that repeats. */
static void fill_page(u8 *p, enum fill fill)
{
	unsigned random_bytes = fill == RANDOM ? PAGE_SIZE : fill == MIXED ? PAGE_SIZE / 4 : 0;

	memset(p, 0x11, PAGE_SIZE);
	if (fill == MIXED)
		for (unsigned i = random_bytes; i < PAGE_SIZE; i++)
			p[i] = "the quick brown fox jumps over a lazy dog "[i % 42];
	for (unsigned i = 0; i < random_bytes; i += 8) {
		u64 v = next_random();

		memcpy(p + i, &v, 8);
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static bool best;

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[best ? 0 : n / 2];
}

static void die(const char *what, int err)
{
	fprintf(stderr, "store_bench: %s: %d\n", what, err);
	exit(1);
}

#define MAX_ROUNDS 101

static void run(struct store *st, enum fill fill, unsigned clusters, unsigned rounds)
{
	static double w[MAX_ROUNDS], r[MAX_ROUNDS], inv[MAX_ROUNDS], ret[MAX_ROUNDS];
	u8 *in = arena_map(CLUSTER * PAGE_SIZE), *out = arena_map(CLUSTER * PAGE_SIZE);
	const void *ins[CLUSTER];
	void *outs[CLUSTER];
	u64 slots[CLUSTER], pages = (u64)clusters * CLUSTER;
	struct store_stat full = { 0 };
	int err = 0;

	for (unsigned i = 0; i < CLUSTER; i++) {
		ins[i] = in + i * PAGE_SIZE;
		outs[i] = out + i * PAGE_SIZE;
		fill_page(in + i * PAGE_SIZE, fill);
	}
	memset(out, 1, CLUSTER * PAGE_SIZE);
	for (unsigned k = 0; k < rounds; k++) {
		u64 t0 = ps_now_ns(), t1, t2, t3, t4;

		for (unsigned c = 0; c < clusters; c++) {
			for (unsigned i = 0; i < CLUSTER; i++)
				slots[i] = (u64)c * CLUSTER + i;
			if (st->ops->write(st, 0, slots, ins, CLUSTER) != (int)CLUSTER)
				die("write", 0);
		}
		t1 = ps_now_ns();
		for (unsigned c = 0; c < clusters; c++) {
			for (unsigned i = 0; i < CLUSTER; i++)
				slots[i] = (u64)c * CLUSTER + i;
			if (st->ops->read(st, 0, slots, outs, CLUSTER, &err) != (int)CLUSTER)
				die("read", err);
		}
		t2 = ps_now_ns();
		if (memcmp(in, out, CLUSTER * PAGE_SIZE))
			die("wrong bytes", 0);
		st->ops->stat(st, &full);
		t3 = ps_now_ns();
		for (unsigned c = 0; c < clusters; c++)
			st->ops->invalidate_cluster(st, c);
		t4 = ps_now_ns();
		w[k] = (double)(t1 - t0) / pages;
		r[k] = (double)(t2 - t1) / pages;
		inv[k] = (double)(t4 - t3) / clusters;
		t3 = ps_now_ns();
		while (st->ops->housekeep(st, 0))
			;
		st->ops->purge(st);
		ret[k] = (double)(ps_now_ns() - t3) / 1000;
	}
	printf("%-6s write %7.1f ns/page  read %7.1f ns/page  invalidate_cluster %8.1f ns  "
	       "purge %8.1f us  stored/page %6.1f  metadata %.3f %%\n",
	       fill_name[fill], median(w, rounds), median(r, rounds), median(inv, rounds),
	       median(ret, rounds), (double)full.used_bytes / pages,
	       100.0 * full.metadata_bytes / (pages * PAGE_SIZE));
	arena_unmap(in, CLUSTER * PAGE_SIZE);
	arena_unmap(out, CLUSTER * PAGE_SIZE);
}

int main(int argc, char **argv)
{
	struct store_ram_options ram = { .nr_workers = 2, .verify = true };
	struct store_file_options file = { .nr_workers = 2, .encrypt = true };
	unsigned clusters = 128, rounds = 5;
	struct store *st;
	int opt, err;

	while ((opt = getopt(argc, argv, "z:f:n:r:iem")) != -1) {
		switch (opt) {
		case 'z':
			ram.codec = CODEC_ZSTD;
			ram.level = atoi(optarg);
			break;
		case 'f':
			file.path = optarg;
			break;
		case 'n':
			clusters = (unsigned)atoi(optarg);
			break;
		case 'r':
			rounds = MIN((unsigned)atoi(optarg), MAX_ROUNDS);
			break;
		case 'i':
			ram.purge_inline = true;
			break;
		case 'm':
			best = true;
			break;
		case 'e':
			file.encrypt = false;
			break;
		default:
			return 2;
		}
	}
	if (!clusters || !rounds)
		return 2;
	ram.nr_slots = file.nr_slots = (u64)clusters * CLUSTER;
	st = file.path ? store_file_open(&file, &err) : store_ram_open(&ram, &err);
	if (!st)
		die("open", err);
	for (enum fill f = SAME; f <= RANDOM; f++)
		run(st, f, clusters, rounds);
	store_close(st);
	return 0;
}
