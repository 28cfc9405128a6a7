/* SPDX-License-Identifier: MIT */
/*
 * bench_fill.c - the bytes of a benchmark's memory, the same on every side, and the passes over
 * them that check what they read.
 *
 * Every 8-byte word is a function of the fill, the number of its page in the region and its place
 * in the page, so any word can be checked without a copy of the memory:
 *
 *   same    every byte is 0x11
 *   random  every word is splitmix64 of its number in the region
 *   mixed   the first 1024 bytes of a page as in `random` (a quarter, does not compress); the
 *           other 3072 are text: lines of 64 bytes, eight words of eight characters, the first of
 *           them the page's number in hexadecimal, the rest from a small table.  Four different
 *           lines take turns.
 */
#include <string.h>

#include "bench.h"

#define WORDS	     (BENCH_PAGE / sizeof(uint64_t))
#define MIXED_RANDOM (1024 / sizeof(uint64_t))
#define LINE_WORDS   8u
#define LINES	     4u

static const char words[LINES * (LINE_WORDS - 1)][9] = {
	" keeps  ", "the old ", "harbour ", "lights, ", "counted ", "nightly ", "by two.\n",
	" sells  ", "her red ", "apples, ", "weighed ", "against ", "a brass ", "weight.\n",
	" writes ", "a short ", "letter, ", "folded, ", "sealed, ", "and not ", "posted.\n",
	" walks  ", "between ", "hedges, ", "in fog, ", "to find ", "a small ", "bridge.\n",
};

static uint64_t splitmix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t hex_word(uint64_t page)
{
	char c[8];
	uint64_t w;

	for (int i = 7; i >= 0; i--, page >>= 4)
		c[i] = "0123456789abcdef"[page & 15];
	memcpy(&w, c, sizeof(w));
	return w;
}

static uint64_t text_word(uint64_t page, unsigned i)
{
	unsigned k = i % LINE_WORDS, line = i / LINE_WORDS % LINES;
	uint64_t w;

	if (!k)
		return hex_word(page);
	memcpy(&w, words[line * (LINE_WORDS - 1) + k - 1], sizeof(w));
	return w;
}

/* Word i of the page. */
uint64_t bench_word(enum bench_fill fill, uint64_t page, unsigned i)
{
	if (fill == FILL_SAME)
		return 0x1111111111111111u;
	if (fill == FILL_RANDOM || i < MIXED_RANDOM)
		return splitmix64(page * WORDS + i);
	return text_word(page, i);
}

static void fill_page(enum bench_fill fill, uint64_t page, uint64_t *to)
{
	uint64_t block[LINES * LINE_WORDS];
	unsigned n = fill == FILL_RANDOM ? WORDS : MIXED_RANDOM;

	if (fill == FILL_SAME) {
		memset(to, 0x11, BENCH_PAGE);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		to[i] = splitmix64(page * WORDS + i);
	if (n == WORDS)
		return;
	for (unsigned i = 0; i < LINES * LINE_WORDS; i++)
		block[i] = text_word(page, i);
	for (; n < WORDS; n += LINES * LINE_WORDS)
		memcpy(to + n, block, sizeof(block));
}

/* Writes the region from its start to its end, which is also how its pages are first touched. */
void bench_fill_range(enum bench_fill fill, void *addr, uint64_t size)
{
	uint64_t *p = addr;

	for (uint64_t page = 0; page < size / BENCH_PAGE; page++, p += WORDS)
		fill_page(fill, page, p);
}

/* Fletcher's sum in two lanes: words that changed places are seen too, and a page costs 0.1 us. */
static uint64_t sum_words(const uint64_t *p)
{
	uint64_t a0 = 0, a1 = 0, b0 = 0, b1 = 0;

	for (unsigned i = 0; i < WORDS; i += 2) {
		a0 += p[i];
		a1 += p[i + 1];
		b0 += a0;
		b1 += a1;
	}
	return b0 ^ (b1 << 1) ^ (b1 >> 63);
}

uint64_t bench_page_sum(enum bench_fill fill, uint64_t page)
{
	uint64_t buf[WORDS];

	fill_page(fill, page, buf);
	return sum_words(buf);
}

/* Reads every byte in address order. */
bool bench_scan_pass(const struct bench_req *req, const void *addr, struct bench_sample *s)
{
	const uint64_t *p = addr;

	for (uint64_t page = 0; page < req->size / BENCH_PAGE; page++, p += WORDS) {
		if (sum_words(p) != req->sums[page]) {
			bench_fail(s, "wrong contents in page %lu", (unsigned long)page);
			return false;
		}
	}
	return true;
}

/* Reads n words, each in a page drawn at random. */
bool bench_random_pass(const struct bench_req *req, const void *addr, uint64_t n, uint64_t *state,
		       struct bench_sample *s)
{
	const volatile uint64_t *p = addr;
	uint64_t pages = req->size / BENCH_PAGE;

	while (n--) {
		uint64_t r = splitmix64((*state)++);
		uint64_t page = (uint64_t)(((unsigned __int128)r * pages) >> 64);
		unsigned i = r % WORDS;

		if (p[page * WORDS + i] != bench_word(req->fill, page, i)) {
			bench_fail(s, "wrong contents in page %lu, word %u", (unsigned long)page,
				   i);
			return false;
		}
	}
	return true;
}

/* scan: pages read in the timed passes (two); random: accesses timed. */
uint64_t bench_timed_accesses(const struct bench_req *req)
{
	uint64_t pages = req->size / BENCH_PAGE;

	return req->kind == BENCH_SCAN ? 2 * pages : pages / 4;
}

/*
 * The timed part of scan and random, over memory just filled.  scan: two passes; the first pushes
 * out pages that were never written out before, the second mostly pages that were.  random: half
 * as many accesses as are timed go first, to leave the state that the fill left behind.
 */
bool bench_timed_passes(const struct bench_req *req, const void *addr, struct bench_sample *s)
{
	uint64_t n = bench_timed_accesses(req), state = req->seed << 32, t, cpu;

	if (req->kind == BENCH_RANDOM && !bench_random_pass(req, addr, n / 2, &state, s))
		return false;
	cpu = bench_cpu();
	t = bench_now();
	if (req->kind == BENCH_RANDOM) {
		if (!bench_random_pass(req, addr, n, &state, s))
			return false;
	} else if (!bench_scan_pass(req, addr, s) || !bench_scan_pass(req, addr, s)) {
		return false;
	}
	s->value = (double)(bench_now() - t) / (double)n;
	s->cpu_ns = bench_cpu() - cpu;
	return true;
}
