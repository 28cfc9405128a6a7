/* SPDX-License-Identifier: MIT */
/*
 * vm_brk - the heap up and down: contents stay, what was given back is zero when it comes again,
 * growth in small steps leaves few mappings (FACTS traps 10, 22), malloc on top of it.
 *
 *     vm_brk sbrk|syscall|asm     the break by hand
 *     vm_brk malloc               malloc, realloc, malloc_trim
 *     vm_brk steps                20,000 steps of one page, each touched at once
 */
#include "pt.h"

#include <malloc.h>

static enum pt_way way;

static char *set_brk(char *to)
{
	if (way == PT_LIBC)
		return brk(to) == 0 ? sbrk(0) : MAP_FAILED;
	return (char *)pt_raw(way, SYS_brk, (long)to, 0, 0, 0, 0, 0);
}

static void by_hand(void)
{
	char *start = sbrk(0), *base;
	size_t n = 24 * PT_MIB;

	/* nothing below may use malloc's heap from here on: the break moves under it */
	base = (char *)(((uintptr_t)start + PT_HUGE - 1) & ~(PT_HUGE - 1));
	for (int round = 0; round < 2; round++) {
		CHECK(set_brk(base + n) == base + n);
		pt_verify_zero(base, n);
		pt_fill(base, n, round);
		pt_evict(base, n);
		pt_verify(base, n, round);
		/* down by half; up again: zeros */
		CHECK(set_brk(base + n / 2) == base + n / 2);
		CHECK(pt_touch(base + n / 2, false) == SIGSEGV);
		pt_verify(base, n / 2, round);
		pt_press();
		CHECK(set_brk(base + n) == base + n);
		pt_verify(base, n / 2, round);
		pt_verify_zero(base + n / 2, n / 2);
		/* an unaligned break: its page stays as it is, to the end */
		CHECK(set_brk(base + n / 2 - 100) == base + n / 2 - 100);
		CHECK(set_brk(base + n) == base + n);
		pt_verify(base, n / 2, round);
		pt_evict(base, n / 2);
		CHECK(set_brk(base + n / 4 + 10) == base + n / 4 + 10);
		pt_verify(base, n / 4 + PT_PAGE, round);
		CHECK(set_brk(base + n / 4 + PT_PAGE) == base + n / 4 + PT_PAGE);
		pt_verify(base, n / 4 + PT_PAGE, round);
		CHECK(pt_touch(base + n / 4 + PT_PAGE, false) == SIGSEGV);
		/* in steps, each touched before and after */
		for (size_t o = n / 4 + PT_PAGE; o < n; o += 33 * PT_PAGE) {
			CHECK(set_brk(base + o + 33 * PT_PAGE) == base + o + 33 * PT_PAGE);
			pt_verify_zero(base + o, 33 * PT_PAGE);
			pt_fill_at(base + o, 33 * PT_PAGE, round, o / PT_PAGE);
		}
		pt_verify(base, n, round);
		CHECK(set_brk(start) == start);
	}
}

static size_t count_maps(void)
{
	static char buf[65536];
	int fd = open("/proc/self/maps", O_RDONLY);
	size_t lines = 0;
	ssize_t n;

	CHECK(fd >= 0);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < n; i++)
			lines += buf[i] == '\n';
	close(fd);
	return lines;
}

static void steps(void)
{
	size_t n = 20000, before = count_maps(), after;
	char *base = sbrk(0);

	base = (char *)(((uintptr_t)base + PT_PAGE - 1) & ~(PT_PAGE - 1));
	CHECK(brk(base) == 0);
	for (size_t i = 0; i < n; i++) {
		CHECK(sbrk(PT_PAGE) == base + i * PT_PAGE);
		pt_fill_page(base + i * PT_PAGE, 1, i);
	}
	after = count_maps();
	CHECKF(after < before + 500, "%zu mappings, before %zu", after, before);
	pt_verify(base, n * PT_PAGE, 1);
	CHECK(brk(base) == 0);
	CHECK(sbrk(PT_MIB) == base);
	pt_verify_zero(base, PT_MIB);
	CHECK(brk(base) == 0);
}

#define BLOCKS 40000
static void by_malloc(void)
{
	static u64 *block[BLOCKS];
	size_t press = 32 * PT_MIB;

	mallopt(M_MMAP_THRESHOLD, 1 << 30); /* all of it by brk */
	mallopt(M_TRIM_THRESHOLD, 65536);
	for (int round = 0; round < 3; round++) {
		for (u64 i = 0; i < BLOCKS; i++) {
			size_t words = 20 + pt_mix(i + round) % 300;

			block[i] = malloc(8 * words);
			CHECK(block[i]);
			block[i][0] = words;
			for (size_t k = 1; k < words; k++)
				block[i][k] = i * 1000 + k + round;
		}
		pt_press_n(press);
		for (u64 i = 0; i < BLOCKS; i++) {
			size_t words = 20 + pt_mix(i + round) % 300;

			CHECKF(block[i][0] == words, "block %llu", (unsigned long long)i);
			for (size_t k = 1; k < words; k++)
				CHECK(block[i][k] == i * 1000 + k + round);
			if (i % 4 == 1) {
				block[i] = realloc(block[i], 8 * words * 2);
				CHECK(block[i]);
				for (size_t k = 1; k < words; k++)
					CHECK(block[i][k] == i * 1000 + k + round);
			}
		}
		for (u64 i = 0; i < BLOCKS; i += 2)
			free(block[i]);
		malloc_trim(0); /* DONTNEED inside, brk down at the top */
		pt_press_n(press);
		for (u64 i = 1; i < BLOCKS; i += 2) {
			size_t words = 20 + pt_mix(i + round) % 300;

			for (size_t k = 1; k < words; k++)
				CHECK(block[i][k] == i * 1000 + k + round);
			free(block[i]);
		}
		char *z = calloc(1, 20 * PT_MIB);
		CHECK(z);
		for (size_t i = 0; i < 20 * PT_MIB; i += 8)
			CHECK(*(u64 *)(z + i) == 0);
		free(z);
		malloc_trim(0);
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "sbrk";

	pt_catch_faults();
	setvbuf(stdout, NULL, _IONBF, 0);
	if (!strcmp(how, "malloc")) {
		by_malloc();
	} else if (!strcmp(how, "steps")) {
		steps();
	} else {
		way = !strcmp(how, "sbrk") ? PT_LIBC : !strcmp(how, "asm") ? PT_ASM : PT_SYSCALL;
		by_hand();
	}
	pt_say("vm_brk %s done", how);
	return 0;
}
