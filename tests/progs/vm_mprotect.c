/* SPDX-License-Identifier: MIT */
/*
 * vm_mprotect - protection on swapped memory: a touch gives SIGSEGV exactly when it should, with
 * the right address; the kernel gives EFAULT exactly when it should; contents survive; swapped code
 * runs.
 *
 *     vm_mprotect libc|syscall|asm
 */
#include "pt.h"

#define N    (16 * PT_MIB)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)
#define RW   (PROT_READ | PROT_WRITE)
static enum pt_way way;

static char *fresh(u64 tag)
{
	char *p = pt_map_huge_aligned(N);

	pt_fill(p, N, tag);
	pt_evict(p, N);
	return p;
}

static void expect(char *p, bool r, bool w)
{
	int sig = pt_touch(p, false);

	CHECKF(sig == (r ? 0 : SIGSEGV), "read gave %d", sig);
	if (sig)
		CHECK(pt_fault_addr == p && pt_fault_code == SEGV_ACCERR);
	sig = pt_touch(p, true);
	CHECKF(sig == (w ? 0 : SIGSEGV), "write gave %d", sig);
	if (sig)
		CHECK(pt_fault_addr == p && pt_fault_code == SEGV_ACCERR);
}

static void none_and_back(void)
{
	char *p = fresh(1);
	int nul = open("/dev/null", O_WRONLY), zero = open("/dev/zero", O_RDONLY), pi[2];
	char buf[PT_PAGE];

	CHECK(nul >= 0 && zero >= 0 && pipe(pi) == 0);
	CHECK(pt_mprotect(way, p, N, PROT_NONE) == 0);
	for (size_t o = 0; o < N; o += 97 * PT_PAGE)
		expect(p + o + 123, false, false);
	CHECK(write(pi[1], p, PT_PAGE) == -1 && errno == EFAULT);
	CHECK(read(zero, p, PT_PAGE) == -1 && errno == EFAULT);
	pt_press();
	expect(p + N - 1, false, false);
	CHECK(pt_mprotect(way, p, N, PROT_READ) == 0);
	for (size_t o = 0; o < N; o += 97 * PT_PAGE)
		expect(p + o + 77, true, false);
	CHECK(write(pi[1], p, PT_PAGE) == PT_PAGE && read(pi[0], buf, PT_PAGE) == PT_PAGE);
	pt_verify(buf, PT_PAGE, 1);
	CHECK(read(zero, p + 500 * PT_PAGE, PT_PAGE) == -1 && errno == EFAULT);
	pt_verify(p, N, 1);
	pt_press();
	pt_verify(p, N, 1);
	pt_press();
	expect(p + N / 2 + 3, true, false);
	CHECK(pt_mprotect(way, p, N, RW) == 0);
	for (size_t o = 0; o < N; o += 97 * PT_PAGE)
		expect(p + o + 55, true, true);
	pt_verify(p, N, 1);
	pt_fill(p, N, 2);
	pt_evict(p, N);
	pt_verify(p, N, 2);
	CHECK(munmap(p, N) == 0);
	close(nul);
	close(zero);
	close(pi[0]);
	close(pi[1]);
}

/* Each page with its own protection; a write across two of them stops where it should. */
static void checkered(void)
{
	static const int prots[3] = { PROT_NONE, PROT_READ, RW };
	char *p = fresh(3);
	size_t n = 1500;
	int pi[2];

	for (size_t i = 0; i < n; i++)
		CHECK(pt_mprotect(way, p + i * PT_PAGE, PT_PAGE, prots[i % 3]) == 0);
	pt_evict(p + n * PT_PAGE, N - n * PT_PAGE);
	for (size_t i = 0; i < n; i++)
		expect(p + i * PT_PAGE + i % PT_PAGE, i % 3 > 0, i % 3 == 2);
	for (size_t i = 0; i < n; i++)
		if (i % 3)
			pt_verify_at(p + i * PT_PAGE, PT_PAGE, 3, i);
	CHECK(pipe(pi) == 0);
	CHECK(write(pi[1], p + 4 * PT_PAGE, 4 * PT_PAGE) == 2 * PT_PAGE);
	pt_press();
	for (size_t i = 2; i < n; i += 3)
		pt_fill_page(p + i * PT_PAGE, 4, i);
	CHECK(pt_mprotect(way, p, N, RW) == 0);
	for (size_t i = 0; i < n; i++)
		pt_verify_at(p + i * PT_PAGE, PT_PAGE, i % 3 == 2 ? 4 : 3, i);
	pt_verify_at(p + n * PT_PAGE, N - n * PT_PAGE, 3, n);
	CHECK(munmap(p, N) == 0);
	close(pi[0]);
	close(pi[1]);
}

/* Reserved as PROT_NONE, committed piece by piece, as allocators and runtimes do. */
static void reserve(void)
{
	size_t all = 256 * PT_MIB, used = 188 * 132 * 1024;
	char *p = pt_mmap_way(way, NULL, all, PROT_NONE, ANON | MAP_NORESERVE);

	CHECK(p != MAP_FAILED);
	for (size_t o = 0; o < used; o += 132 * 1024) {
		CHECK(pt_mprotect(way, p + o, 132 * 1024, RW) == 0);
		pt_verify_zero(p + o, 132 * 1024);
		pt_fill_at(p + o, 132 * 1024, 5, o / PT_PAGE);
	}
	CHECK(pt_touch(p + used, false) == SIGSEGV);
	pt_evict(p, used);
	pt_verify(p, used, 5);
	/* decommitted the same way: DONTNEED and NONE, then again */
	CHECK(madvise(p, used / 2, MADV_DONTNEED) == 0);
	CHECK(pt_mprotect(way, p, used / 2, PROT_NONE) == 0);
	expect(p + 5, false, false);
	pt_press();
	CHECK(pt_mprotect(way, p, used / 2, RW) == 0);
	pt_verify_zero(p, used / 2);
	pt_verify_at(p + used / 2, used / 2, 5, used / 2 / PT_PAGE);
	CHECK(munmap(p, all) == 0);
}

/* DONTNEED and munmap on memory that is PROT_NONE or PROT_READ at the time. */
static void drop_protected(void)
{
	char *p = fresh(6);

	CHECK(pt_mprotect(way, p, N, PROT_NONE) == 0);
	CHECK(pt_madvise(way, p, N / 4, MADV_DONTNEED) == 0);
	CHECK(pt_mprotect(way, p + N / 2, N / 2, PROT_READ) == 0);
	CHECK(pt_madvise(way, p + N / 2, N / 4, MADV_DONTNEED) == 0);
	pt_press();
	CHECK(pt_mprotect(way, p, N, RW) == 0);
	pt_verify_zero(p, N / 4);
	pt_verify_at(p + N / 4, N / 4, 6, N / 4 / PT_PAGE);
	pt_verify_zero(p + N / 2, N / 4);
	pt_verify_at(p + 3 * N / 4, N / 4, 6, 3 * N / 4 / PT_PAGE);
	/* moved while it is PROT_NONE */
	CHECK(pt_mprotect(way, p, N, PROT_NONE) == 0);
	char *q = pt_map(N);
	CHECK(mremap(p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	expect(q, false, false);
	CHECK(pt_mprotect(way, q, N, RW) == 0);
	pt_verify_zero(q, N / 4);
	pt_verify_at(q + N / 4, N / 4, 6, N / 4 / PT_PAGE);
	CHECK(munmap(q, N) == 0);
}

#if defined(__x86_64__)
/* One function a page: returns its own number. */
static void code(void)
{
	for (int rwx = 0; rwx < 2; rwx++) {
		char *p = pt_mmap_way(way, NULL, N, rwx ? RW | PROT_EXEC : RW, ANON);

		CHECK(p != MAP_FAILED);
		for (u32 round = 0; round < 2; round++) {
			pt_fill(p, N, 7);
			for (u32 i = 0; i < N / PT_PAGE; i++) {
				u8 *f = (u8 *)p + i * PT_PAGE + 16 * (i % 100);
				u32 v = i * 7 + round;

				f[0] = 0xb8; /* mov $v, %eax; ret */
				memcpy(f + 1, &v, 4);
				f[5] = 0xc3;
			}
			if (!rwx)
				CHECK(pt_mprotect(way, p, N, PROT_READ | PROT_EXEC) == 0);
			pt_press(); /* executable memory stays (docs/design.md) */
			for (u32 i = 0; i < N / PT_PAGE; i++) {
				u32 (*f)(void) = (u32(*)(void))(p + i * PT_PAGE + 16 * (i % 100));

				CHECK(f() == i * 7 + round);
			}
			if (!rwx) {
				CHECK(pt_touch(p + 9, true) == SIGSEGV);
				CHECK(pt_mprotect(way, p, N, RW) == 0);
			}
		}
		CHECK(munmap(p, N) == 0);
	}
}
#else
static void code(void)
{
}
#endif

static void errors(void)
{
	char *p = fresh(8);

	CHECK(pt_mprotect(way, p + 1, PT_PAGE, PROT_READ) == -1 && errno == EINVAL);
	CHECK(munmap(p + N / 2, PT_PAGE) == 0);
	CHECK(pt_mprotect(way, p, N, PROT_READ) == -1 && errno == ENOMEM);
	expect(p, true, false); /* up to the hole it was done */
	expect(p + N - 1, true, true);
	CHECK(pt_mprotect(way, p, N / 2, RW) == 0);
	CHECK(pt_mprotect(way, p, PT_PAGE, 0x10000) == -1 && errno == EINVAL);
	pt_verify(p, N / 2, 8);
	CHECK(munmap(p, N) == 0);
}

/* A writer catches faults and opens page after page, as write barriers of garbage collectors do. */
static char *barrier_base;
static _Atomic int opened;
static void on_barrier(int sig, siginfo_t *si, void *uc)
{
	char *page = (char *)((uintptr_t)si->si_addr & ~(PT_PAGE - 1));

	(void)sig;
	(void)uc;
	if (page < barrier_base || page >= barrier_base + N)
		DIE("SIGSEGV at %p", si->si_addr);
	CHECK(pt_mprotect(way, page, PT_PAGE, RW) == 0);
	opened++;
}

static void write_barrier(void)
{
	struct sigaction sa = { .sa_sigaction = on_barrier, .sa_flags = SA_SIGINFO }, old;
	char *p = fresh(9);

	barrier_base = p;
	CHECK(pt_mprotect(way, p, N, PROT_READ) == 0);
	CHECK(sigaction(SIGSEGV, &sa, &old) == 0);
	for (size_t i = 0; i < N / PT_PAGE; i += 2) {
		pt_fill_page(p + i * PT_PAGE, 10, i);
		if (i % 2048 == 0)
			pt_press_n(4 * PT_MIB);
	}
	CHECKF(opened == (int)(N / PT_PAGE / 2), "%d pages opened", opened);
	CHECK(sigaction(SIGSEGV, &old, NULL) == 0);
	for (size_t i = 0; i < N / PT_PAGE; i++)
		pt_verify_at(p + i * PT_PAGE, PT_PAGE, i % 2 ? 9 : 10, i);
	expect(p + PT_PAGE, true, false);
	CHECK(munmap(p, N) == 0);
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
	RUN(none_and_back);
	RUN(checkered);
	RUN(reserve);
	RUN(drop_protected);
	RUN(code);
	RUN(errors);
	RUN(write_barrier);
	return 0;
}
