/* SPDX-License-Identifier: MIT */
/*
 * vm_madvise - advice on swapped memory means what it means in the kernel (FACTS traps 9, 19, 20).
 *
 *     vm_madvise libc|syscall|asm [kept]
 *
 * Where the kernel may choose (FREE), each page as a whole must be one of the allowed. The guard
 * advices are not made by inline assembly: neither an event nor a hook can see that (documented).
 */
#include "pt.h"

#include <sys/prctl.h>
#include <sys/uio.h>

#define N (16 * PT_MIB)
static enum pt_way way;

static char *fresh(u64 tag)
{
	char *p = pt_map_huge_aligned(N);

	pt_fill(p, N, tag);
	pt_evict(p, N);
	return p;
}

static void dontneed(void)
{
	char *p = fresh(1);
	size_t a = 3 * PT_PAGE, n = 3 * PT_MIB;

	CHECK(pt_madvise(way, p + a, n, MADV_DONTNEED) == 0);
	pt_verify(p, a, 1);
	pt_verify_zero(p + a, n);
	pt_verify_at(p + a + n, N - a - n, 1, (a + n) / PT_PAGE);
	pt_fill(p, N, 2);
	for (size_t i = 0; i < N / PT_PAGE; i += 3) /* single pages, resident ones */
		CHECK(pt_madvise(way, p + i * PT_PAGE, PT_PAGE, MADV_DONTNEED) == 0);
	pt_press();
	for (size_t i = 0; i < N / PT_PAGE; i++) {
		if (i % 3)
			pt_verify_at(p + i * PT_PAGE, PT_PAGE, 2, i);
		else
			pt_verify_zero(p + i * PT_PAGE, PT_PAGE);
	}
	/* whole, swapped; twice; then new data */
	pt_fill(p, N, 3);
	pt_evict(p, N);
	CHECK(pt_madvise(way, p, N, MADV_DONTNEED) == 0);
	CHECK(pt_madvise(way, p, N, MADV_DONTNEED) == 0);
	pt_verify_zero(p, N / 2);
	pt_fill(p, N, 4);
	pt_evict(p, N);
	pt_verify(p, N, 4);
	CHECK(pt_madvise(way, p, N, 24 /* DONTNEED_LOCKED, Linux 5.18 */) == 0 || errno == EINVAL);
	if (errno != EINVAL)
		pt_verify_zero(p, N);
	CHECK(munmap(p, N) == 0);
}

static void free_(void)
{
	char *p = fresh(1);

	for (int round = 0; round < 2; round++) {
		if (round)
			pt_fill(p, N, 1);
		CHECK(pt_madvise(way, p, N, MADV_FREE) == 0);
		/* written after it: kept; the others: old or zero, and from then on the same */
		for (size_t i = 0; i < N / PT_PAGE; i += 2)
			pt_fill_page(p + i * PT_PAGE, 5, i);
		pt_press();
		for (size_t i = 0; i < N / PT_PAGE; i++) {
			bool zero;

			if (i % 2 == 0) {
				pt_verify_at(p + i * PT_PAGE, PT_PAGE, 5, i);
				continue;
			}
			zero = pt_page_zero(p + i * PT_PAGE);
			if (!zero)
				pt_verify_at(p + i * PT_PAGE, PT_PAGE, 1, i);
		}
		pt_fill(p, N, 6);
		pt_evict(p, N);
		pt_verify(p, N, 6);
	}
	/* FREE on swapped memory, then a write to one byte: the rest is old or zero */
	pt_evict(p, N);
	CHECK(pt_madvise(way, p, N, MADV_FREE) == 0);
	for (size_t i = 0; i < N / PT_PAGE; i++)
		p[i * PT_PAGE + 100] = 0x77;
	pt_press();
	for (size_t i = 0; i < N / PT_PAGE; i++) {
		u64 *w = (u64 *)(p + i * PT_PAGE);
		struct pt_gen g = pt_gen(6, i);
		bool zero = !w[0];

		CHECK(p[i * PT_PAGE + 100] == 0x77);
		for (unsigned k = 0; k < PT_WORDS; k++) {
			u64 want = pt_word(&g, k);

			if (k != 12)
				CHECK(w[k] == (zero ? 0 : want));
		}
	}
	CHECK(munmap(p, N) == 0);
}

/* What FREE left in memory, because nobody wanted it, and was written to again without a fault is swapped again:
 * with room enough that nobody looks for it in need. */
static void kept(void)
{
	char *p = fresh(1);

	pt_verify(p, N, 1);
	CHECK(pt_madvise(way, p, N, MADV_FREE) == 0);
	pt_fill(p, N, 2);
	pt_evict(p, N);
	pt_verify(p, N, 2);
	CHECK(munmap(p, N) == 0);
}

/* Advice that must not change contents, in any state of the pages. */
static void harmless(void)
{
	static const int advice[] = { MADV_PAGEOUT,	  MADV_COLD,	       MADV_WILLNEED,
				      MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_HUGEPAGE,
				      MADV_NOHUGEPAGE,	  MADV_NORMAL,	       MADV_SEQUENTIAL,
				      MADV_RANDOM,	  MADV_DONTDUMP,       MADV_DODUMP,
				      MADV_MERGEABLE,	  MADV_UNMERGEABLE,    MADV_COLLAPSE };
	char *p = fresh(1), *q;

	for (size_t k = 0; k < sizeof(advice) / sizeof(*advice); k++) {
		int r = pt_madvise(way, p + PT_PAGE, N - 2 * PT_PAGE, advice[k]);

		/* COLLAPSE may fail for lack of huge pages; its answer is not compared */
		if (advice[k] != MADV_COLLAPSE)
			pt_say("  advice %d: %d", advice[k], r);
		if (k & 1)
			pt_verify(p, N, 1);
		pt_evict(p, N);
		pt_verify(p, N / 2, 1); /* half resident now */
		r = pt_madvise(way, p, N, advice[k]);
		if (advice[k] != MADV_COLLAPSE)
			pt_say("  advice %d: %d", advice[k], r);
		pt_verify(p, N, 1);
	}
	pt_fill(p, N, 2);
	CHECK(pt_madvise(way, p, N, MADV_PAGEOUT) == 0);
	pt_verify(p, N, 2);
	CHECK(pt_madvise(way, p, N, MADV_HUGEPAGE) == 0);
	pt_fill(p, N, 3);
	pt_evict(p, N);
	pt_verify(p, N, 3);
	CHECK(pt_madvise(way, p, N, MADV_PAGEOUT) == 0);
	CHECK(pt_madvise(way, p, N, MADV_WILLNEED) == 0);
	usleep(20000);
	pt_verify(p, N, 3);
	/* populate: present afterwards */
	pt_evict(p, N);
	CHECK(pt_madvise(way, p, 4 * PT_MIB, MADV_POPULATE_READ) == 0 || errno == EINVAL);
	CHECK(pt_madvise(way, p + 4 * PT_MIB, 4 * PT_MIB, MADV_POPULATE_WRITE) == 0 ||
	      errno == EINVAL);
	pt_verify(p, N, 3);
	/* populate new memory: zeros */
	q = pt_map(N);
	CHECK(pt_madvise(way, q, N / 2, MADV_POPULATE_WRITE) == 0 || errno == EINVAL);
	CHECK(pt_madvise(way, q + N / 2, N / 2, MADV_POPULATE_READ) == 0 || errno == EINVAL);
	pt_verify_zero(q, N);
	CHECK(munmap(p, N) == 0 && munmap(q, N) == 0);
	/* glibc's posix_madvise ignores DONTNEED, by design */
	p = fresh(4);
	CHECK(posix_madvise(p, N, POSIX_MADV_DONTNEED) == 0);
	CHECK(posix_madvise(p, N, POSIX_MADV_WILLNEED) == 0);
	pt_verify(p, N, 4);
	CHECK(munmap(p, N) == 0);
}

static void collapse(void)
{
	char *p = fresh(1);

	for (int i = 0; i < 3; i++) {
		pt_madvise(way, p, N, MADV_COLLAPSE);
		pt_evict_share(p, N, 30);
		pt_verify(p, N, 1);
		pt_madvise(way, p, N, MADV_COLLAPSE);
		pt_verify(p, N, 1);
	}
	CHECK(munmap(p, N) == 0);
}

static void guard(void)
{
	char *p = fresh(1);
	size_t a = 5 * PT_PAGE, n = 2 * PT_MIB + 3 * PT_PAGE;

	if (way == PT_ASM ||
	    (pt_madvise(way, p, PT_PAGE, PT_MADV_GUARD_INSTALL) < 0 && errno == EINVAL)) {
		CHECK(munmap(p, N) == 0);
		return;
	}
	CHECK(pt_madvise(way, p, PT_PAGE, PT_MADV_GUARD_REMOVE) == 0);
	pt_verify_zero(p, PT_PAGE);
	pt_fill_page(p, 1, 0);
	for (int round = 0; round < 2; round++) {
		if (round) /* on resident pages this time */
			pt_fill(p, N, 1);
		CHECK(pt_madvise(way, p + a, n, PT_MADV_GUARD_INSTALL) == 0);
		for (size_t o = 0; o < n; o += 37 * PT_PAGE) {
			CHECK(pt_touch(p + a + o, false) == SIGSEGV);
			CHECK(pt_touch(p + a + o, true) == SIGSEGV);
		}
		CHECK(pt_touch(p + a - 1, false) == 0 && pt_touch(p + a + n, false) == 0);
		pt_evict_share(p + a + n, N - a - n, 30);
		pt_verify(p, a, 1);
		pt_verify_at(p + a + n, N - a - n, 1, (a + n) / PT_PAGE);
		for (size_t o = 0; o < n; o += PT_PAGE) /* the guard is still there */
			CHECK(pt_touch(p + a + o, o & PT_PAGE) == SIGSEGV);
		/* DONTNEED leaves a guard */
		CHECK(pt_madvise(way, p + a, n, MADV_DONTNEED) == 0);
		CHECK(pt_touch(p + a + n / 2, false) == SIGSEGV);
		/* a guard moves along */
		if (!round) {
			char *q = pt_map_huge_aligned(N);

			CHECK(mremap(p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
			p = q;
			CHECK(pt_touch(p + a + PT_PAGE, true) == SIGSEGV);
			pt_verify(p, a, 1);
		}
		CHECK(pt_madvise(way, p + a, n, PT_MADV_GUARD_REMOVE) == 0);
		pt_verify_zero(p + a, n);
		pt_verify(p, a, 1);
		pt_fill_at(p + a, n, 1, a / PT_PAGE);
		pt_evict(p, N);
		pt_verify(p, N, 1);
	}
	CHECK(munmap(p, N) == 0);
}

static void answers(void)
{
	static const int advice[] = { MADV_DONTNEED, MADV_FREE,	  MADV_PAGEOUT, MADV_COLD,
				      MADV_WILLNEED, MADV_REMOVE, MADV_NORMAL,	999 };
	char *p = fresh(1);
	char *hole = p + N / 2;

	CHECK(munmap(hole, PT_PAGE) == 0);
	for (size_t k = 0; k < sizeof(advice) / sizeof(*advice); k++) {
		int r1, e1, r2, e2, r3, e3;

		errno = 0;
		r1 = pt_madvise(way, p + 1, PT_PAGE, advice[k]);
		e1 = errno;
		errno = 0;
		r2 = pt_madvise(way, hole - PT_PAGE, 3 * PT_PAGE, advice[k]);
		e2 = errno;
		errno = 0;
		r3 = pt_madvise(way, p, 0, advice[k]);
		e3 = errno;
		pt_say("  advice %d: %d/%d %d/%d %d/%d", advice[k], r1, e1, r2, e2, r3, e3);
	}
	pt_verify(p, N / 2 - PT_PAGE, 1);
	pt_verify_at(hole + 2 * PT_PAGE, N / 2 - 2 * PT_PAGE, 1, N / 2 / PT_PAGE + 2);
	CHECK(munmap(p, N) == 0);
}

/* process_madvise on oneself. */
static void by_pidfd(void)
{
	char *p = fresh(1);
	int fd = syscall(SYS_pidfd_open, getpid(), 0);
	struct iovec iov[2] = { { p, N / 4 }, { p + N / 2, N / 4 } };
	long r;

	CHECK(fd >= 0);
	r = syscall(SYS_process_madvise, fd, iov, 2, MADV_PAGEOUT, 0);
	pt_say("  process_madvise PAGEOUT: %ld", r < 0 ? -errno : r);
	r = syscall(SYS_process_madvise, fd, iov, 2, MADV_COLD, 0);
	pt_say("  process_madvise COLD: %ld", r < 0 ? -errno : r);
	pt_verify(p, N, 1);
	pt_evict(p, N);
	/* on oneself newer kernels allow all advice (6.13) */
	r = syscall(SYS_process_madvise, fd, iov, 2, MADV_DONTNEED, 0);
	pt_say("  process_madvise DONTNEED: %ld", r < 0 ? -errno : r);
	if (r == (long)N / 2) {
		pt_verify_zero(p, N / 4);
		pt_verify_zero(p + N / 2, N / 4);
	} else {
		pt_verify(p, N / 4, 1);
	}
	pt_verify_at(p + N / 4, N / 4, 1, N / 4 / PT_PAGE);
	pt_verify_at(p + 3 * N / 4, N / 4, 1, 3 * N / 4 / PT_PAGE);
	close(fd);
	CHECK(munmap(p, N) == 0);
}

/* One thread zaps and rewrites pages, others read them: old, new or zero, nothing else, and what a
 * thread has seen the writer publish stays. */
static char *race;
static _Atomic u64 version[64];
static _Atomic bool stop;
static void *reader(void *arg)
{
	unsigned x = (uintptr_t)arg;

	while (!atomic_load(&stop)) {
		unsigned i = (x = x * 1664525 + 1013904223) >> 26;
		u64 before = atomic_load(&version[i]), after, got;

		got = *(volatile u64 *)(race + i * 16 * PT_PAGE);
		after = atomic_load(&version[i]);
		/* an odd version: the old value may still stand */
		if (!(got == 0 || (got >= (before & ~1ULL) && got <= after + 1)))
			DIE("page %u: %llu between versions %llu and %llu", i,
			    (unsigned long long)got, (unsigned long long)before,
			    (unsigned long long)after);
		if (got == 0 && before == after && before % 2 == 0 && before)
			DIE("page %u: zero, published version %llu", i, (unsigned long long)before);
	}
	return NULL;
}

static void raced(void)
{
	pthread_t th[3];
	struct pt_churn c;

	race = pt_map(4 * PT_MIB);
	pt_churn_start(&c, N);
	for (uintptr_t i = 0; i < 3; i++)
		PCHECK(pthread_create(&th[i], NULL, reader, (void *)(i * 7919 + 1)));
	for (u64 v = 2; v < 400; v += 2) {
		for (unsigned i = 0; i < 64; i++) {
			char *page = race + i * 16 * PT_PAGE;

			atomic_store(&version[i], v - 1); /* odd: zero or a new one is fine */
			CHECK(pt_madvise(way, page, 16 * PT_PAGE, MADV_DONTNEED) == 0);
			*(volatile u64 *)page = v;
			atomic_store(&version[i], v);
		}
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++)
		PCHECK(pthread_join(th[i], NULL));
	pt_churn_stop(&c);
	CHECK(munmap(race, 4 * PT_MIB) == 0);
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
	if (argc > 2) {
		RUN(kept);
		return 0;
	}
	RUN(dontneed);
	RUN(free_);
	RUN(harmless);
	RUN(collapse);
	RUN(guard);
	RUN(answers);
	RUN(by_pidfd);
	RUN(raced);
	return 0;
}
