/* SPDX-License-Identifier: MIT */
/*
 * vm_misc - the smaller calls on swapped memory: mincore, msync, names (PR_SET_VMA), what
 * /proc/self/maps says, memory of other kinds beside it (shared, file, stack that grows), userland
 * reading its pagemap.
 */
#include "pt.h"

#include <sys/prctl.h>
#include <sys/resource.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA	     0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define N  (16 * PT_MIB)
#define RW (PROT_READ | PROT_WRITE)

static char *fresh(u64 tag)
{
	char *p = pt_map_huge_aligned(N);

	pt_fill(p, N, tag);
	pt_evict(p, N);
	return p;
}

static void answers(void)
{
	static unsigned char vec[N / PT_PAGE];
	char *p = fresh(1);

	CHECK(mincore(p, N, vec) == 0);
	CHECK(mincore(p + 1, PT_PAGE, vec) == -1 && errno == EINVAL);
	pt_verify(p, N / 8, 1);
	CHECK(mincore(p, PT_PAGE, vec) == 0);
	CHECK(msync(p, N, MS_SYNC) == 0);
	CHECK(msync(p, N, MS_ASYNC) == 0);
	CHECK(msync(p, N, MS_INVALIDATE) == 0);
	CHECK(msync(p, N, MS_SYNC | MS_ASYNC) == -1 && errno == EINVAL);
	pt_evict(p, N);
	CHECK(msync(p, N, MS_SYNC) == 0);
	pt_verify(p, N, 1);
	CHECK(munmap(p + PT_MIB, PT_PAGE) == 0);
	CHECK(mincore(p, N, vec) == -1 && errno == ENOMEM);
	CHECK(msync(p, N, MS_SYNC) == -1 && errno == ENOMEM);
	CHECK(munmap(p, N) == 0);
}

/* What maps says of [p, p + n): bytes covered with these permissions (and name, if any). */
static size_t covered(char *p, size_t n, const char *perms, const char *name)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[1000], pe[8];
	size_t sum = 0;
	unsigned long a, b, x;

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		CHECK(sscanf(line, "%lx-%lx %7s %lx", &a, &b, pe, &x) == 4);
		if (a < (unsigned long)p)
			a = (unsigned long)p;
		if (b > (unsigned long)p + n)
			b = (unsigned long)p + n;
		if (a >= b)
			continue;
		if (!strcmp(pe, perms) && (!name || strstr(line, name)))
			sum += b - a;
		if (!name && strchr(line, '/'))
			DIE("anonymous memory looks like a file: %s", line);
	}
	fclose(f);
	return sum;
}

static void maps(void)
{
	char *p = fresh(1);
	int named;

	CHECK(covered(p, N, "rw-p", NULL) == N);
	CHECK(mprotect(p + PT_MIB, PT_MIB, PROT_READ) == 0);
	CHECK(covered(p, N, "rw-p", NULL) == N - PT_MIB);
	CHECK(covered(p, N, "r--p", NULL) == PT_MIB);
	CHECK(mprotect(p + PT_MIB, PT_MIB, RW) == 0);
	named = prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p + 2 * PT_MIB, 4 * PT_MIB, "swapped name");
	if (!named) {
		CHECK(covered(p, N, "rw-p", "[anon:swapped name]") == 4 * PT_MIB);
		pt_evict(p, N);
		CHECK(covered(p, N, "rw-p", "[anon:swapped name]") == 4 * PT_MIB);
	}
	pt_say("  name: %d", named);
	pt_evict(p, N);
	pt_verify(p, N, 1);
	/* raw, and names taken away */
	if (!named) {
		CHECK(pt_sys6(SYS_prctl, PR_SET_VMA, PR_SET_VMA_ANON_NAME, (long)p, N,
			      (long)"other", 0) == 0);
		CHECK(covered(p, N, "rw-p", "[anon:other]") == N);
		CHECK(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, N, NULL) == 0);
		pt_evict(p, N);
		CHECK(covered(p, N, "rw-p", NULL) == N);
	}
	pt_verify(p, N, 1);
	CHECK(munmap(p, N) == 0);
	CHECK(covered(p, N, "rw-p", NULL) == 0);
}

/* Memory that is not private anonymous stays right beside memory that is swapped. */
static void others(void)
{
	size_t n = 6 * PT_MIB;
	char *sh = mmap(NULL, n, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("x", 0);
	char *fp, *fs, *big, *ro, *low, *stack;

	CHECK(fd >= 0 && ftruncate(fd, n) == 0 && sh != MAP_FAILED);
	fs = mmap(NULL, n, RW, MAP_SHARED, fd, 0);
	fp = mmap(NULL, n, RW, MAP_PRIVATE, fd, 0);
	CHECK(fs != MAP_FAILED && fp != MAP_FAILED);
	pt_fill(fs, n, 1);
	pt_verify(fp, n / 2, 1);
	pt_fill(fp, n / 2, 2); /* own copies */
	pt_fill(sh, n, 3);
	/* read-only anonymous memory: zeros for ever */
	ro = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(ro != MAP_FAILED);
	/* below 4 GiB, populated: flags that change nothing (MAP_STACK does: stacks stay) */
	low = mmap(NULL, n, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT | MAP_POPULATE, -1, 0);
	CHECK(low != MAP_FAILED && (uintptr_t)low < 1UL << 32);
	CHECK(pt_absent(low, n) == 0 || pt_swapping());
	pt_verify_zero(low, n);
	pt_fill(low, n, 4);
	stack = mmap(NULL, n, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
	CHECK(stack != MAP_FAILED);
	pt_fill(stack, n, 9);
	big = mmap(NULL, 1UL << 38, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(big != MAP_FAILED); /* sparse: a page here and there */
	for (u64 i = 0; i < 2000; i++)
		pt_fill_page(big + (pt_mix(i) % (1UL << 26)) * PT_PAGE, 5, i);
	for (int i = 0; i < 2; i++) {
		pt_press();
		pt_evict(low, n);
		pt_verify(fs, n, 1);
		pt_verify(fp, n / 2, 2);
		pt_verify_at(fp + n / 2, n / 2, 1, n / 2 / PT_PAGE);
		pt_verify(sh, n, 3);
		pt_verify_zero(ro, n);
		pt_verify(low, n, 4);
		pt_verify(stack, n, 9);
	}
	for (u64 i = 0; i < 2000; i++)
		pt_verify_at(big + (pt_mix(i) % (1UL << 26)) * PT_PAGE, PT_PAGE, 5, i);
	CHECK(munmap(big, 1UL << 38) == 0);
	CHECK(munmap(stack, n) == 0 && munmap(low, n) == 0 && munmap(ro, n) == 0 &&
	      munmap(fp, n) == 0 && munmap(fs, n) == 0 && munmap(sh, n) == 0);
	close(fd);
}

static char bss[12 * PT_MIB] __attribute__((aligned(4096)));
static char data[4096 * 4] = "not zero";
static void program_data(void)
{
	pt_verify_zero(bss, sizeof(bss));
	pt_fill(bss, sizeof(bss), 6);
	pt_press();
	pt_press();
	pt_verify(bss, sizeof(bss), 6);
	CHECK(!strcmp(data, "not zero"));
}

/* The main thread's stack grows by many MiB and comes back. */
__attribute__((noinline)) static u64 deep(int level)
{
	volatile u64 frame[4000];
	u64 sum = 0;

	for (int i = 0; i < 4000; i++)
		frame[i] = level * 10000 + i;
	if (level)
		sum = deep(level - 1);
	else
		pt_press();
	for (int i = 0; i < 4000; i++)
		CHECKF(frame[i] == (u64)level * 10000 + i, "level %d word %d", level, i);
	return sum + frame[17];
}

static void grow_down(void)
{
	char *room = mmap(NULL, 64 * PT_MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *top,
	     *p;

	CHECK(room != MAP_FAILED && munmap(room, 64 * PT_MIB) == 0);
	top = room + 64 * PT_MIB;
	p = mmap(top - 4 * PT_PAGE, 4 * PT_PAGE, RW,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(p == top - 4 * PT_PAGE);
	for (size_t i = 1; i < 7 * PT_MIB / PT_PAGE; i++) /* downwards, page by page */
		pt_fill_page(top - i * PT_PAGE, 7, i);
	pt_press();
	for (size_t i = 1; i < 7 * PT_MIB / PT_PAGE; i++)
		pt_verify_at(top - i * PT_PAGE, PT_PAGE, 7, i);
	CHECK(munmap(top - 7 * PT_MIB, 7 * PT_MIB) == 0);
}

int main(void)
{
#define RUN(f)                    \
	do {                      \
		f();              \
		pt_say("%s", #f); \
	} while (0)
	RUN(answers);
	RUN(maps);
	RUN(others);
	RUN(program_data);
	pt_say("deep %llu", (unsigned long long)deep(200));
	RUN(grow_down);
	return 0;
}
