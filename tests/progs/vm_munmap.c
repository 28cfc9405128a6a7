/* SPDX-License-Identifier: MIT */
/*
 * vm_munmap - munmap of any part of swapped memory, mmap MAP_FIXED over it, new mappings in the
 * holes: what was dropped must never come back, what was not must stay.
 *
 *     vm_munmap libc|syscall|asm
 */
#include "pt.h"

#define N    (24 * PT_MIB)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW   (PROT_READ | PROT_WRITE)
static enum pt_way way;

static bool mapped(void *p)
{
	unsigned char v;

	return pt_sys6(SYS_mincore, (long)p, PT_PAGE, (long)&v, 0, 0, 0) == 0;
}

static char *fresh(u64 tag)
{
	char *p = pt_map_huge_aligned(N);

	pt_fill(p, N, tag);
	pt_evict(p, N);
	return p;
}

static void ends(void)
{
	char *p = fresh(1);
	size_t a = 5 * PT_PAGE, b = 3 * PT_MIB + PT_PAGE;

	CHECK(pt_munmap(way, p, a) == 0);
	CHECK(pt_munmap(way, p + N - b, b) == 0);
	CHECK(!mapped(p) && mapped(p + a) && !mapped(p + N - b) && mapped(p + N - b - PT_PAGE));
	pt_verify_at(p + a, N - a - b, 1, a / PT_PAGE);
	/* map the ends anew: zeros */
	CHECK(pt_mmap_way(way, p, a, RW, ANON | MAP_FIXED) == p);
	CHECK(pt_mmap_way(way, p + N - b, b, RW, ANON | MAP_FIXED) == p + N - b);
	pt_verify_zero(p, a);
	pt_verify_zero(p + N - b, b);
	pt_fill(p, N, 2);
	pt_evict(p, N);
	pt_verify(p, N, 2);
	CHECK(pt_munmap(way, p, N) == 0);
}

/* Every third page away, then every fifth of the rest, then back as zeros. */
static void sieve(void)
{
	char *p = fresh(1);
	size_t n = 3000;

	for (size_t i = 0; i < n; i += 3)
		CHECK(pt_munmap(way, p + i * PT_PAGE, PT_PAGE) == 0);
	for (size_t i = 0; i < n; i++)
		if (i % 3)
			pt_verify_at(p + i * PT_PAGE, PT_PAGE, 1, i);
	pt_evict(p + n * PT_PAGE, N - n * PT_PAGE);
	for (size_t i = 0; i < n; i += 3)
		CHECK(pt_mmap_way(way, p + i * PT_PAGE, PT_PAGE, RW, ANON | MAP_FIXED_NOREPLACE) ==
		      p + i * PT_PAGE);
	pt_press();
	for (size_t i = 0; i < n; i++) {
		if (i % 3)
			pt_verify_at(p + i * PT_PAGE, PT_PAGE, 1, i);
		else
			pt_verify_zero(p + i * PT_PAGE, PT_PAGE);
	}
	pt_verify_at(p + n * PT_PAGE, N - n * PT_PAGE, 1, n);
	CHECK(pt_munmap(way, p, N) == 0);
}

static void over(void)
{
	char *p = fresh(1), *q;
	int fd = memfd_create("x", 0);
	size_t m = 4 * PT_MIB;

	/* private anonymous over swapped: zeros, no munmap before */
	CHECK(pt_mmap_way(way, p + m, m, RW, ANON | MAP_FIXED) == p + m);
	pt_verify_zero(p + m, m);
	/* shared anonymous, a file, PROT_NONE */
	CHECK(mmap(p + 2 * m, m, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p + 2 * m);
	pt_verify_zero(p + 2 * m, m);
	CHECK(fd >= 0 && ftruncate(fd, m) == 0);
	CHECK(pwrite(fd, "file", 4, 0) == 4);
	CHECK(mmap(p + 3 * m, m, RW, MAP_PRIVATE | MAP_FIXED, fd, 0) == p + 3 * m);
	CHECK(!memcmp(p + 3 * m, "file", 4));
	pt_fill_at(p + 3 * m, m, 6, 0); /* private copies of file pages */
	CHECK(pt_mmap_way(way, p + 4 * m, m, PROT_NONE, ANON | MAP_FIXED) == p + 4 * m);
	CHECK(pt_touch(p + 4 * m, false) == SIGSEGV);
	CHECK(pt_mmap_way(way, p + 5 * m, PT_PAGE, RW, ANON | MAP_FIXED_NOREPLACE) == MAP_FAILED &&
	      errno == EEXIST);
	pt_fill_at(p + m, m, 7, 0);
	pt_fill_at(p + 2 * m, m, 8, 0);
	pt_evict(p, m);
	pt_evict(p + m, m);
	pt_press();
	pt_verify(p, m, 1);
	pt_verify_at(p + m, m, 7, 0);
	pt_verify_at(p + 2 * m, m, 8, 0);
	pt_verify_at(p + 3 * m, m, 6, 0);
	CHECK(pt_touch(p + 4 * m, true) == SIGSEGV && pt_fault_addr == p + 4 * m);
	pt_verify_at(p + 5 * m, m, 1, 5 * m / PT_PAGE);
	/* one munmap over all of these and two holes */
	CHECK(pt_munmap(way, p + m / 2, PT_PAGE) == 0);
	CHECK(pt_munmap(way, p + 5 * m, m / 2) == 0);
	CHECK(pt_munmap(way, p, N) == 0);
	CHECK(!mapped(p) && !mapped(p + 2 * m) && !mapped(p + N - PT_PAGE));
	q = pt_mmap_way(way, p, N, RW, ANON | MAP_FIXED_NOREPLACE);
	CHECK(q == p);
	pt_verify_zero(p, N);
	CHECK(pt_munmap(way, p, N) == 0);
	close(fd);
}

/* The same address again and again, with new contents: nothing of an old life may show. */
static void reuse(void)
{
	char *p = pt_map_huge_aligned(N);

	for (u64 v = 1; v < 8; v++) {
		pt_fill(p, N, v);
		if (v & 1)
			pt_evict(p, N);
		CHECK(pt_munmap(way, p, N) == 0);
		CHECK(pt_mmap_way(way, p, N, RW, ANON | MAP_FIXED_NOREPLACE) == p);
		for (size_t i = 0; i < N; i += 13 * PT_PAGE) /* reads first, then writes */
			pt_verify_zero(p + i, PT_PAGE);
		pt_fill_at(p, N / 2, 100 + v, 0);
		pt_verify_zero(p + N / 2, N / 2);
		pt_verify_at(p, N / 2, 100 + v, 0);
	}
	CHECK(pt_munmap(way, p, N) == 0);
}

static void errors(void)
{
	char *p = fresh(1);

	CHECK(pt_munmap(way, p + 1, PT_PAGE) == -1 && errno == EINVAL);
	CHECK(pt_munmap(way, p, 0) == -1 && errno == EINVAL);
	CHECK(pt_munmap(way, p, 1UL << 60) == -1 && errno == EINVAL);
	CHECK(pt_mmap_way(way, p + 1, PT_PAGE, RW, ANON | MAP_FIXED) == MAP_FAILED &&
	      errno == EINVAL);
	pt_verify(p, N, 1);
	CHECK(pt_munmap(way, p, N - 100) == 0); /* rounded up to pages */
	CHECK(!mapped(p + N - PT_PAGE));
	CHECK(pt_munmap(way, p, N) == 0); /* nothing there: fine */
}

/* Threads that map, fill, check, unmap parts; all at once. */
static void *worker(void *arg)
{
	u64 me = (uintptr_t)arg;

	for (u64 v = 0; v < 60; v++) {
		size_t n = (1 + pt_mix(me * 100 + v) % 768) * PT_PAGE, cut;
		char *p = pt_mmap_way(way, NULL, n, RW, ANON);

		CHECK(p != MAP_FAILED);
		pt_verify_zero(p, n);
		pt_fill(p, n, me * 1000 + v);
		cut = n / 3 / PT_PAGE * PT_PAGE;
		if (cut)
			CHECK(pt_munmap(way, p, cut) == 0);
		pt_verify_at(p + cut, n - cut, me * 1000 + v, cut / PT_PAGE);
		CHECK(pt_munmap(way, p + cut, n - cut) == 0);
	}
	return NULL;
}

static void concurrent(void)
{
	pthread_t th[4];
	struct pt_churn c;

	pt_churn_start(&c, N);
	for (uintptr_t i = 0; i < 4; i++)
		PCHECK(pthread_create(&th[i], NULL, worker, (void *)i));
	for (int i = 0; i < 4; i++)
		PCHECK(pthread_join(th[i], NULL));
	pt_churn_stop(&c);
}

int main(int argc, char **argv)
{
	way = argc < 2 || !strcmp(argv[1], "libc") ? PT_LIBC
	      : !strcmp(argv[1], "syscall")	   ? PT_SYSCALL
						   : PT_ASM;
	pt_catch_faults();
#define RUN(f)                    \
	do {                      \
		f();              \
		pt_say("%s", #f); \
	} while (0)
	RUN(ends);
	RUN(sieve);
	RUN(over);
	RUN(reuse);
	RUN(errors);
	RUN(concurrent);
	return 0;
}
