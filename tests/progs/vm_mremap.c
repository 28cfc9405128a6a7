/* SPDX-License-Identifier: MIT */
/*
 * vm_mremap - every form of mremap on swapped memory (FACTS traps 9, 21): contents go along, what
 * is new is zero, what is left behind is unmapped (or zero, DONTUNMAP), errors are those of the
 * kernel.
 *
 *     vm_mremap libc|syscall|asm [huge]      huge: memory with MADV_HUGEPAGE
 */
#include "pt.h"

#define N (16 * PT_MIB)
static enum pt_way way;
static bool huge;

static bool mapped(void *p)
{
	unsigned char v;

	return pt_sys6(SYS_mincore, (long)p, PT_PAGE, (long)&v, 0, 0, 0) == 0;
}

/* len bytes of filled, evicted memory at the start of `room` bytes that are otherwise free. */
static char *fresh(size_t len, size_t room, u64 tag)
{
	char *p = pt_map_huge_aligned(room);

	if (room > len)
		CHECK(munmap(p + len, room - len) == 0);
	if (huge)
		CHECK(madvise(p, len, MADV_HUGEPAGE) == 0);
	pt_fill(p, len, tag);
	pt_evict(p, len);
	return p;
}

static void grow_in_place(void)
{
	char *p = fresh(N, 2 * N, 1), *q;

	q = pt_mremap(way, p, N, 2 * N, 0, NULL);
	CHECK(q == p);
	pt_verify(p, N, 1);
	pt_verify_zero(p + N, N);
	pt_fill(p, 2 * N, 2);
	pt_evict(p, 2 * N);
	pt_verify(p, 2 * N, 2);
	CHECK(munmap(p, 2 * N) == 0);
}

static void grow_blocked(void)
{
	char *p = fresh(N, 2 * N, 1), *q;

	q = mmap(p + N, PT_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(q == p + N);
	CHECK(pt_mremap(way, p, N, 2 * N, 0, NULL) == MAP_FAILED && errno == ENOMEM);
	pt_verify(p, N, 1);
	pt_evict(p, N);
	q = pt_mremap(way, p, N, 2 * N, MREMAP_MAYMOVE, NULL);
	CHECK(q != MAP_FAILED && q != p);
	CHECK(!mapped(p) && !mapped(p + N - PT_PAGE));
	pt_verify(q, N, 1);
	pt_verify_zero(q + N, N);
	pt_fill_at(q + N, N, 1, N / PT_PAGE);
	pt_evict(q, 2 * N);
	pt_verify(q, 2 * N, 1);
	CHECK(munmap(q, 2 * N) == 0);
	CHECK(munmap(p + N, PT_PAGE) == 0);
}

static void shrink(void)
{
	char *p = fresh(N, N, 1);

	CHECK(pt_mremap(way, p, N, N / 2 + PT_PAGE, 0, NULL) == p);
	CHECK(!mapped(p + N / 2 + PT_PAGE));
	pt_verify(p, N / 2 + PT_PAGE, 1);
	/* grown again: zeros, not what was there */
	CHECK(pt_mremap(way, p, N / 2 + PT_PAGE, N, 0, NULL) == p);
	pt_verify(p, N / 2 + PT_PAGE, 1);
	pt_verify_zero(p + N / 2 + PT_PAGE, N / 2 - PT_PAGE);
	CHECK(pt_mremap(way, p, N, N, 0, NULL) == p);
	CHECK(munmap(p, N) == 0);
}

static void fixed_hole(void)
{
	char *p = fresh(N, N, 1), *room = pt_map(N + PT_HUGE), *to;

	CHECK(munmap(room, N + PT_HUGE) == 0);
	for (int shift = 0; shift < 2; shift++) { /* equal and unequal place inside 2 MiB */
		to = (char *)(((uintptr_t)room + PT_HUGE - 1) & ~(PT_HUGE - 1)) +
		     shift * 5 * PT_PAGE;
		CHECK(pt_mremap(way, p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
		CHECK(!mapped(p) || (p >= to && p < to + N));
		pt_verify(to, N, 1);
		pt_evict(to, N);
		pt_verify(to, N, 1);
		p = to;
		room = pt_map(N + PT_HUGE);
		CHECK(munmap(room, N + PT_HUGE) == 0);
		pt_evict(p, N);
	}
	CHECK(munmap(p, N) == 0);
}

static void fixed_over(void)
{
	char *p = fresh(N, N, 1), *d = fresh(2 * N, 2 * N, 2), *to = d + N / 2;

	pt_evict(p, N);
	pt_evict(d, 2 * N);
	CHECK(pt_mremap(way, p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(!mapped(p));
	pt_verify(d, N / 2, 2);
	pt_verify(to, N, 1);
	pt_verify_at(to + N, N / 2, 2, 3 * N / 2 / PT_PAGE);
	pt_evict(d, 2 * N);
	pt_verify(to, N, 1);
	pt_verify(d, N / 2, 2);
	/* grows while it moves, over what is there */
	p = fresh(N / 2, N / 2, 3);
	CHECK(pt_mremap(way, p, N / 2, N, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	pt_verify(to, N / 2, 3);
	pt_verify_zero(to + N / 2, N / 2);
	/* shrinks while it moves */
	p = fresh(N, N, 4);
	CHECK(pt_mremap(way, p, N, N / 4, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(!mapped(p) && !mapped(p + N / 2));
	pt_verify(to, N / 4, 4);
	pt_verify_at(to + N / 4, N / 4, 3, N / 4 / PT_PAGE);
	CHECK(munmap(d, 2 * N) == 0);
}

static void dontunmap(void)
{
	char *p = fresh(N, N, 1), *q, *to;

	q = pt_mremap(way, p, N, N, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	if (q == MAP_FAILED && errno == EINVAL) {
		CHECK(munmap(p, N) == 0);
		return;
	}
	CHECK(q != MAP_FAILED && q != p);
	pt_verify(q, N, 1);
	pt_verify_zero(p, N);
	pt_fill(p, N, 2);
	pt_evict(p, N);
	pt_evict(q, N);
	pt_verify(p, N, 2);
	pt_verify(q, N, 1);
	to = pt_map(N);
	CHECK(pt_mremap(way, q, N, N, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to);
	pt_verify(to, N, 1);
	pt_evict(p, N);
	pt_verify_zero(q, N);
	CHECK(munmap(p, N) == 0 && munmap(q, N) == 0 && munmap(to, N) == 0);
}

static void middle(void)
{
	char *p = fresh(N, N, 1), *to;
	size_t a = N / 4 + 3 * PT_PAGE, n = N / 4 + 7 * PT_PAGE;

	to = pt_mremap(way, p + a, n, 2 * n, MREMAP_MAYMOVE, NULL);
	CHECK(to != MAP_FAILED);
	CHECK(mapped(p) && !mapped(p + a) && mapped(p + a + n));
	pt_verify(p, a, 1);
	pt_verify_at(to, n, 1, a / PT_PAGE);
	pt_verify_zero(to + n, n);
	pt_verify_at(p + a + n, N - a - n, 1, (a + n) / PT_PAGE);
	/* single pages, out and back in another order */
	for (int i = 0; i < 40; i++) {
		char *src = p + i * PT_PAGE, *hole = p + a + i * PT_PAGE;

		CHECK(pt_mremap(way, src, PT_PAGE, PT_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, hole) ==
		      hole);
		CHECK(!mapped(src));
	}
	pt_evict(p + a + n, N - a - n);
	pt_verify(p + a, 40 * PT_PAGE, 1);
	for (int i = 0; i < 40; i++)
		CHECK(pt_mremap(way, p + a + i * PT_PAGE, PT_PAGE, PT_PAGE,
				MREMAP_MAYMOVE | MREMAP_FIXED, p + i * PT_PAGE) == p + i * PT_PAGE);
	pt_verify(p, a, 1);
	CHECK(munmap(p, N) == 0 && munmap(to, 2 * n) == 0);
}

static void errors(void)
{
	char *p = fresh(N, N, 1);

	CHECK(pt_mremap(way, p + 1, N, N, MREMAP_MAYMOVE, NULL) == MAP_FAILED && errno == EINVAL);
	CHECK(pt_mremap(way, p, N, 0, MREMAP_MAYMOVE, NULL) == MAP_FAILED && errno == EINVAL);
	CHECK(pt_mremap(way, p, N, N, MREMAP_FIXED, p + N) == MAP_FAILED && errno == EINVAL);
	CHECK(pt_mremap(way, p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, p + N / 2) == MAP_FAILED &&
	      errno == EINVAL);
	CHECK(pt_mremap(way, p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, p + 17) == MAP_FAILED &&
	      errno == EINVAL);
	CHECK(pt_mremap(way, p, N, N, 128, NULL) == MAP_FAILED && errno == EINVAL);
	CHECK(pt_mremap(way, p, N, 1UL << 50, MREMAP_MAYMOVE, NULL) == MAP_FAILED);
	CHECK(munmap(p + N / 2, PT_PAGE) == 0);
	CHECK(pt_mremap(way, p, N, 2 * N, MREMAP_MAYMOVE, NULL) == MAP_FAILED && errno == EFAULT);
	CHECK(pt_mremap(way, p + N / 2, PT_PAGE, 2 * PT_PAGE, MREMAP_MAYMOVE, NULL) == MAP_FAILED &&
	      errno == EFAULT);
	pt_verify(p, N / 2, 1);
	pt_verify_at(p + N / 2 + PT_PAGE, N / 2 - PT_PAGE, 1, N / 2 / PT_PAGE + 1);
	CHECK(munmap(p, N) == 0);
}

/* Neighbours that natively are one mapping: moved and grown as one (trap 21). */
static void merged(void)
{
	char *p = fresh(N, 2 * N, 1), *q;

	q = mmap(p + N, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(q == p + N);
	if (huge)
		CHECK(madvise(q, N, MADV_HUGEPAGE) == 0);
	/* the second half was never touched */
	q = pt_mremap(way, p, 2 * N, 3 * N, MREMAP_MAYMOVE, NULL);
	CHECK(q != MAP_FAILED);
	pt_verify(q, N, 1);
	pt_verify_zero(q + N, 2 * N);
	CHECK(munmap(q, 3 * N) == 0);
	/* touched, in one piece, and given to FIXED and DONTUNMAP */
	p = fresh(N, 2 * N, 3);
	q = mmap(p + N, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(q == p + N);
	if (huge)
		CHECK(madvise(q, N, MADV_HUGEPAGE) == 0);
	pt_fill_at(q, N, 3, N / PT_PAGE);
	pt_evict(p, 2 * N);
	char *to = pt_map(2 * N);
	CHECK(pt_mremap(way, p, 2 * N, 2 * N, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	pt_verify(to, 2 * N, 3);
	q = pt_mremap(way, to, 2 * N, 2 * N, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	CHECK(q != MAP_FAILED || errno == EINVAL);
	if (q != MAP_FAILED) {
		pt_verify(q, 2 * N, 3);
		pt_verify_zero(to, 2 * N);
		CHECK(munmap(q, 2 * N) == 0);
	}
	CHECK(munmap(to, 2 * N) == 0);
}

/* The first half swapped, the second never touched, moved and grown in one call; often, since what
 * the engine knows of both halves may be of different age. */
static void merged_often(void)
{
	size_t n = 4 * PT_MIB;

	for (int i = 0; i < 20; i++) {
		char *p = pt_map_huge_aligned(2 * n), *q;

		CHECK(munmap(p + n, n) == 0);
		pt_fill(p, n, i);
		pt_evict(p, n);
		CHECK(mmap(p + n, n, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + n);
		q = pt_mremap(way, p, 2 * n, 3 * n, MREMAP_MAYMOVE, NULL);
		CHECK(q != MAP_FAILED);
		pt_verify(q, n, i);
		pt_verify_zero(q + n, 2 * n);
		CHECK(munmap(q, 3 * n) == 0);
	}
}

/* realloc of a large block is mremap inside libc; many steps. */
static void by_realloc(void)
{
	size_t n = 4 * PT_MIB;
	char *p = malloc(n), *a;

	CHECK(p);
	memset(p, 3, 2 * PT_MIB);
	for (; n < 40 * PT_MIB; n += 3 * PT_MIB) {
		p = realloc(p, n + 3 * PT_MIB);
		CHECK(p);
		for (size_t i = 0; i < 2 * PT_MIB; i += 64)
			CHECK(p[i] == 3);
		a = (char *)(((uintptr_t)p + n - PT_MIB) & ~(PT_PAGE - 1));
		pt_fill(a, PT_MIB, n);
		pt_verify(a, PT_MIB, n);
	}
	pt_press();
	a = (char *)(((uintptr_t)p + n - 3 * PT_MIB - PT_MIB) & ~(PT_PAGE - 1));
	pt_verify(a, PT_MIB, n - 3 * PT_MIB);
	p = realloc(p, PT_MIB);
	CHECK(p);
	for (size_t i = 0; i < PT_MIB; i += 8)
		CHECK(p[i] == 3);
	free(p);
}

/* Moves to and fro while other threads read and write the neighbours, and pressure goes on. */
static void concurrent(void)
{
	size_t n = 4 * PT_MIB;
	char *p = pt_map(n), *q = pt_map(n);
	struct pt_churn c;

	pt_churn_start(&c, N);
	for (u64 v = 0; v < 40; v++) {
		char *t = p;

		pt_fill(p, n, v);
		CHECK(pt_mremap(way, p, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
		pt_verify(q, n, v);
		t = p;
		p = q;
		q = t;
		if (v % 4 == 0)
			CHECK(mmap(q, n, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == q);
	}
	pt_churn_stop(&c);
	munmap(p, n);
	munmap(q, n);
}

/* Mappings with different protection, and a hole, in one call: Linux 6.17 and newer. */
static void many(void)
{
	size_t n = 2 * PT_MIB;
	char *p = pt_map_huge_aligned(5 * n), *q = pt_map_huge_aligned(5 * n), *r;

	pt_fill(p, 5 * n, 1);
	CHECK(mprotect(p + n, n, PROT_READ) == 0);
	CHECK(munmap(p + 3 * n, n) == 0);
	pt_press();
	r = pt_mremap(way, p, 5 * n, 5 * n, MREMAP_MAYMOVE | MREMAP_FIXED, q);
	if (r == q) {
		for (size_t i = 0; i < 5; i++)
			if (i != 3)
				pt_verify_at(q + i * n, n, 1, i * n / PT_PAGE);
		pt_fill(q, n, 2);
		pt_press();
		pt_verify(q, n, 2);
		CHECK(mprotect(q + n, n, PROT_READ | PROT_WRITE) == 0);
		pt_fill(q + n, n, 3);
		CHECK(munmap(q, 5 * n) == 0);
	} else {
		CHECK(r == MAP_FAILED && errno == EFAULT);
		pt_verify(p, 3 * n, 1);
		CHECK(munmap(p, 5 * n) == 0 && munmap(q, 5 * n) == 0);
	}
	/* Of an instruction of its own nothing is seen, and the kernel refuses. */
	if (way != PT_ASM)
		printf("many mappings at once: %s\n", r == q ? "moved" : "refused");
}

int main(int argc, char **argv)
{
	way = argc < 2 || !strcmp(argv[1], "libc") ? PT_LIBC
	      : !strcmp(argv[1], "syscall")	   ? PT_SYSCALL
						   : PT_ASM;
	huge = argc > 2 && !strcmp(argv[2], "huge");
#define RUN(f)                    \
	do {                      \
		f();              \
		pt_say("%s", #f); \
	} while (0)
	RUN(grow_in_place);
	RUN(grow_blocked);
	RUN(shrink);
	RUN(fixed_hole);
	RUN(fixed_over);
	RUN(dontunmap);
	RUN(middle);
	RUN(errors);
	RUN(merged);
	RUN(merged_often);
	RUN(many);
	RUN(by_realloc);
	RUN(concurrent);
	return 0;
}
