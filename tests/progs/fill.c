/* SPDX-License-Identifier: MIT */
/*
 * fill - fills memory with data that depends on the address, rewrites it, checks every byte.
 *
 *     fill [-c mixed|random|same|touch] [-r REWRITES] [-t THREADS] [-k] SIZE[KMG]
 *
 * mixed: a quarter of each page random (a PRNG of the page's own), the rest compressible; random:
 * all of it random; same: one repeated word; touch: one word of each page, as fast as memory can be
 * dirtied (the limit must hold against that, FACTS trap 12).  -k: keep going after a wrong page,
 * count all. Contents are a function of the address and the version; after each version all is read
 * back.
 */
#include "pt.h"

enum {
	MIXED,
	RANDOM,
	SAME,
	TOUCH
};
static int mode = MIXED;
static int keep;
static int rewrites = 2, threads = 1;
static char *base;
static size_t size;
static pthread_barrier_t barrier;
static _Atomic u64 wrong_bytes;

static inline u64 word(struct pt_gen *g, unsigned i)
{
	if (mode == SAME)
		return g->base;
	if (mode == MIXED && i >= PT_RANDOM_WORDS)
		return g->base + (i >> 4);
	g->x ^= g->x << 13;
	g->x ^= g->x >> 7;
	g->x ^= g->x << 17;
	return g->x;
}

static void put(u64 *p, u64 version)
{
	struct pt_gen g = pt_gen(version, (uintptr_t)p);

	if (mode == TOUCH) {
		p[0] = g.base;
		return;
	}
	for (unsigned i = 0; i < PT_WORDS; i++)
		p[i] = word(&g, i);
}

static void wrong(u64 *p, u64 version, unsigned i, u64 want, u64 got)
{
	static _Atomic int lines;
	const u8 *w = (const u8 *)&want, *g = (const u8 *)&got;
	unsigned n = 0, first = 8;

	for (unsigned b = 0; b < 8; b++) {
		if (w[b] != g[b]) {
			n++;
			if (first == 8)
				first = b;
		}
	}
	atomic_fetch_add(&wrong_bytes, n);
	if (atomic_fetch_add(&lines, 1) < 20)
		fprintf(stderr,
			"fill: wrong at %p (offset %#zx, version %llu): expected %02x, got %02x "
			"(word %016llx, %016llx)%s\n",
			(void *)((char *)(p + i) + first), (size_t)((char *)p - base) + 8 * i,
			(unsigned long long)version, w[first], g[first], (unsigned long long)want,
			(unsigned long long)got, pt_page_zero(p) ? ", page is all zero" : "");
}

static void check(u64 *p, u64 version)
{
	struct pt_gen g = pt_gen(version, (uintptr_t)p);
	unsigned i;

	if (mode == TOUCH) {
		if (p[0] != g.base)
			wrong(p, version, 0, g.base, p[0]);
		for (i = 1; i < PT_WORDS; i++)
			if (p[i])
				wrong(p, version, i, 0, p[i]);
		return;
	}
	for (i = 0; i < PT_WORDS; i++) {
		u64 want = word(&g, i);

		if (p[i] != want)
			wrong(p, version, i, want, p[i]);
	}
}

static void *run(void *arg)
{
	size_t me = (uintptr_t)arg, pages = size / PT_PAGE;
	size_t from = pages * me / threads, to = pages * (me + 1) / threads;
	u64 t0;

	for (int v = 1; v <= rewrites + 1; v++) {
		pthread_barrier_wait(&barrier);
		t0 = pt_now_ns();
		for (size_t i = from; i < to; i++)
			put((u64 *)(base + i * PT_PAGE), v);
		pthread_barrier_wait(&barrier);
		if (!me)
			fprintf(stderr, "fill: version %d written, %.2f s\n", v,
				(pt_now_ns() - t0) / 1e9);
		t0 = pt_now_ns();
		for (size_t i = from; i < to; i++)
			check((u64 *)(base + i * PT_PAGE), v);
		pthread_barrier_wait(&barrier);
		if (!me)
			fprintf(stderr, "fill: version %d checked, %.2f s\n", v,
				(pt_now_ns() - t0) / 1e9);
		if (wrong_bytes && !keep)
			break;
	}
	return NULL;
}

static int usage(void)
{
	fprintf(stderr, "fill [-c mixed|random|same|touch] [-r REWRITES] [-t THREADS] [-k] SIZE\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "mixed", "random", "same", "touch" };
	pthread_t th[256];
	char *end;
	int opt, i;

	while ((opt = getopt(argc, argv, "c:r:t:k")) != -1) {
		switch (opt) {
		case 'c':
			for (mode = 0; mode < 4 && strcmp(optarg, names[mode]); mode++)
				;
			if (mode == 4)
				return usage();
			break;
		case 'r':
			rewrites = atoi(optarg);
			break;
		case 't':
			threads = atoi(optarg);
			break;
		case 'k':
			keep = 1;
			break;
		default:
			return usage();
		}
	}
	if (optind + 1 != argc || threads < 1 || threads > 256)
		return usage();
	size = strtoul(argv[optind], &end, 0);
	size <<= *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
	if (!size)
		return usage();
	base = pt_map(size);
	PCHECK(pthread_barrier_init(&barrier, NULL, threads));
	for (i = 1; i < threads; i++)
		PCHECK(pthread_create(&th[i], NULL, run, (void *)(uintptr_t)i));
	run(NULL);
	for (i = 1; i < threads; i++)
		PCHECK(pthread_join(th[i], NULL));
	if (wrong_bytes) {
		printf("fill: %llu wrong bytes\n", (unsigned long long)wrong_bytes);
		return 1;
	}
	printf("fill: %zu bytes of %s, %d versions, %d threads: all right\n", size, names[mode],
	       rewrites + 1, threads);
	return 0;
}
