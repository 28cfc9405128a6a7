/* SPDX-License-Identifier: MIT */
/*
 * demo.c - a program that needs more memory than it is allowed: fills SIZE bytes with data that
 * depends on the address, then twice checks every byte and writes it anew, then checks a sixteenth
 * of the pages once more in scattered order.  A quarter of each page is random, the rest
 * compresses.  Knows nothing of pswap.  Exit status 1 when a byte is wrong.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGE	     4096UL
#define WORDS	     (PAGE / sizeof(uint64_t))
#define RANDOM_WORDS (WORDS / 4)

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Sebastiano Vigna's splitmix64, public domain: the step by its increment, then its finalizer. */
static uint64_t mix(uint64_t *x)
{
	uint64_t z = *x += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static void make_page(uint64_t *out, uint64_t page, uint64_t version)
{
	uint64_t seed = page * 64 + version;

	for (unsigned i = 0; i < RANDOM_WORDS; i++)
		out[i] = mix(&seed);
	for (unsigned i = RANDOM_WORDS; i < WORDS; i++)
		out[i] = page << 16 | version << 8 | i % 8;
}

static void check_page(const uint64_t *mem, uint64_t page, uint64_t version)
{
	uint64_t want[WORDS];

	make_page(want, page, version);
	if (!memcmp(mem, want, PAGE))
		return;
	for (unsigned i = 0; i < WORDS; i++) {
		if (mem[i] != want[i]) {
			printf("\ndemo: WRONG: page %lu, word %u is %#lx, expected %#lx\n", page, i,
			       mem[i], want[i]);
			exit(1);
		}
	}
}

static unsigned long resident_mib(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f) {
		if (fscanf(f, "%*u %lu", &pages) != 1)
			pages = 0;
		fclose(f);
	}
	return pages / 256;
}

static void progress(const char *what, uint64_t done, uint64_t pages, double start)
{
	static const char bar[] = "####################";
	static bool tty, asked;

	if (!asked)
		tty = isatty(STDOUT_FILENO);
	asked = true;
	if (!tty && done != pages)
		return;
	printf("%s%-22s [%-20.*s] %3lu %%  resident %4lu MiB  %5.1f s%s", tty ? "\r" : "", what,
	       (int)(done * 20 / pages), bar, done * 100 / pages, resident_mib(), now() - start,
	       done == pages ? "\n" : "");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned long long mib = argc > 1 ? strtoull(argv[1], NULL, 0) : 1024;
	uint64_t pages = (mib << 20) / PAGE, step;
	static const char *const names[] = { "fill", "check and rewrite", "check and rewrite",
					     "check scattered pages" };
	uint64_t *mem;
	double start;

	if (argc > 2 || !pages || mib > 1 << 20) {
		fprintf(stderr, "usage: demo [MEBIBYTES]\n");
		return 2;
	}
	mem = malloc(pages * PAGE);
	if (!mem) {
		perror("demo: malloc");
		return 2;
	}
	printf("demo: %llu MiB of memory, data that depends on the address\n", mib);
	step = pages / 64 ? pages / 64 : 1;
	for (unsigned pass = 0; pass < 4; pass++) {
		uint64_t todo = pass == 3 ? pages / 16 : pages;

		start = now();
		for (uint64_t i = 0; i < todo; i++) {
			/* The odd factor spreads what is next to each other. */
			uint64_t page = pass == 3 ? i * 2654435761ULL % pages : i;

			if (pass)
				check_page(mem + page * WORDS, page, pass == 3 ? 2 : pass - 1);
			if (pass < 3)
				make_page(mem + page * WORDS, page, pass);
			if (i % step == 0)
				progress(names[pass], i, todo, start);
		}
		progress(names[pass], todo, todo, start);
	}
	printf("demo: every byte is right\n");
	free(mem);
	return 0;
}
