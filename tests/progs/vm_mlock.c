/* SPDX-License-Identifier: MIT */
/*
 * vm_mlock - locked memory is in memory: after mlock of swapped pages mincore shows them, under any
 * pressure; after munlock they may go again.
 *
 *     vm_mlock libc|syscall|asm
 *     vm_mlock all              mlockall(MCL_CURRENT), MCL_FUTURE, MCL_ONFAULT, munlockall
 */
#include "pt.h"

#include <sys/resource.h>

#define N  (16 * PT_MIB)
#define RW (PROT_READ | PROT_WRITE)
static enum pt_way way;

static int lock(void *p, size_t n)
{
	return way == PT_LIBC ? mlock(p, n) : (int)pt_raw(way, SYS_mlock, (long)p, n, 0, 0, 0, 0);
}

static int unlock(void *p, size_t n)
{
	return way == PT_LIBC ? munlock(p, n)
			      : (int)pt_raw(way, SYS_munlock, (long)p, n, 0, 0, 0, 0);
}

static int lock_on_fault(void *p, size_t n)
{
	return way == PT_LIBC ? mlock2(p, n, MLOCK_ONFAULT)
			      : (int)pt_raw(way, SYS_mlock2, (long)p, n, MLOCK_ONFAULT, 0, 0, 0);
}

/* Not one page absent, now and after pressure. */
static void stays(char *p, size_t n)
{
	for (int i = 0; i < 2; i++) {
		CHECKF(pt_absent(p, n) == 0, "%zu pages absent, round %d", pt_absent(p, n), i);
		pt_press();
	}
	CHECKF(pt_absent(p, n) == 0, "%zu pages absent", pt_absent(p, n));
}

static void locked_parts(void)
{
	char *p = pt_map_huge_aligned(N);
	size_t a = 7 * PT_PAGE, n = 2 * PT_MIB + 5 * PT_PAGE;

	pt_fill(p, N, 1);
	pt_evict(p, N);
	CHECK(lock(p + a + 100, n - 200) == 0); /* rounds outward */
	stays(p + a, n);
	pt_verify(p, N, 1);
	pt_fill(p, N, 2);
	stays(p + a, n);
	pt_verify_at(p + a, n, 2, a / PT_PAGE);
	/* DONTNEED is refused on locked memory, contents stay */
	CHECK(madvise(p + a, PT_PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
	madvise(p + a, n, MADV_PAGEOUT);
	stays(p + a, n);
	pt_verify_at(p + a, n, 2, a / PT_PAGE);
	/* moved: still locked */
	char *q = mremap(p + a, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, pt_map(n));
	CHECK(q != MAP_FAILED);
	stays(q, n);
	pt_verify_at(q, n, 2, a / PT_PAGE);
	CHECK(unlock(q, n) == 0);
	pt_evict(q, n);
	pt_verify_at(q, n, 2, a / PT_PAGE);
	CHECK(munmap(q, n) == 0 && munmap(p, N) == 0);
}

static void on_fault(void)
{
	char *p = pt_map_huge_aligned(N);

	pt_fill(p, N / 4, 1);
	pt_evict(p, N / 4);
	CHECK(lock_on_fault(p, N / 2) == 0);
	pt_verify(p, N / 4, 1); /* present from here on */
	for (size_t i = 0; i < N / 4; i += 2 * PT_PAGE)
		pt_fill_at(p + N / 4 + i, PT_PAGE, 1, (N / 4 + i) / PT_PAGE);
	pt_press();
	CHECK(pt_absent(p, N / 4) == 0);
	for (size_t i = 0; i < N / 4; i += 2 * PT_PAGE)
		CHECK(pt_absent(p + N / 4 + i, PT_PAGE) == 0);
	pt_verify(p, N / 4, 1);
	CHECK(unlock(p, N / 2) == 0);
	CHECK(munmap(p, N) == 0);
	p = mmap(NULL, N / 4, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
	CHECK(p != MAP_FAILED);
	CHECK(pt_absent(p, N / 4) == 0);
	pt_verify_zero(p, N / 4);
	pt_fill(p, N / 4, 3);
	stays(p, N / 4);
	/* grows locked */
	p = mremap(p, N / 4, N / 4 + PT_MIB, MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED);
	stays(p, N / 4 + PT_MIB);
	pt_verify(p, N / 4, 3);
	pt_verify_zero(p + N / 4, PT_MIB);
	CHECK(munmap(p, N / 4 + PT_MIB) == 0);
}

static void errors(void)
{
	char *p = pt_map(N);

	CHECK(munmap(p + N / 2, PT_PAGE) == 0);
	CHECK(lock(p + N / 2 - PT_PAGE, 3 * PT_PAGE) == -1 && errno == ENOMEM);
	CHECK(unlock(p, N) == -1 && errno == ENOMEM);
	CHECK(lock(p, 0) == 0);
	CHECK(munmap(p, N) == 0);
}

static void all(void)
{
	size_t n = 10 * PT_MIB;
	char *p = pt_map_huge_aligned(n), *q, *heap;

	heap = malloc(2 * PT_MIB);
	CHECK(heap);
	memset(heap, 1, 2 * PT_MIB);
	pt_fill(p, n, 1);
	pt_evict(p, n);
	CHECK(mlockall(MCL_CURRENT) == 0);
	CHECK(pt_absent(p, n) == 0);
	pt_press_n(16 * PT_MIB);
	CHECK(pt_absent(p, n) == 0);
	pt_verify(p, n, 1);
	q = pt_map(2 * PT_MIB); /* not locked: MCL_FUTURE was not given */
	CHECK(munmap(q, 2 * PT_MIB) == 0);
	CHECK(munlockall() == 0);
	pt_evict(p, n);
	pt_verify(p, n, 1);
	CHECK(mlockall(MCL_FUTURE) == 0);
	q = pt_map(4 * PT_MIB);
	CHECK(pt_absent(q, 4 * PT_MIB) == 0);
	pt_verify_zero(q, 4 * PT_MIB);
	pt_fill(q, 4 * PT_MIB, 2);
	CHECK(munlockall() == 0);
	pt_press();
	CHECK(mlock(q, 4 * PT_MIB) == 0);
	stays(q, 4 * PT_MIB);
	CHECK(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
	char *r = pt_map(4 * PT_MIB);
	pt_fill(r, PT_MIB, 5);
	CHECK(munlockall() == 0);
	CHECK(mlock(r, PT_MIB) == 0);
	stays(r, PT_MIB);
	pt_verify(r, PT_MIB, 5);
	CHECK(munlockall() == 0);
	pt_evict(p, n);
	pt_verify(p, n, 1);
	pt_verify(q, 4 * PT_MIB, 2);
	pt_verify_zero(r + PT_MIB, 3 * PT_MIB);
}

int main(int argc, char **argv)
{
	way = argc < 2 || !strcmp(argv[1], "libc") ? PT_LIBC
	      : !strcmp(argv[1], "syscall")	   ? PT_SYSCALL
						   : PT_ASM;
	if (argc > 1 && !strcmp(argv[1], "all")) {
		all();
	} else {
		locked_parts();
		on_fault();
		errors();
	}
	pt_say("vm_mlock done");
	return 0;
}
