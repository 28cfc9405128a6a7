/* SPDX-License-Identifier: MIT */
/*
 * pt.h - what the test programs of run mode share: checks, page contents, pressure, raw calls.
 *
 * Convention for the build: every tests/progs/NAME.c becomes build/tests/progs/NAME, compiled with
 * -pthread -O1 -g; a second line `// LIBS: -lfoo` names further libraries (-lpswap: the library
 * of this tree).
 *
 * The programs know nothing of pswap.  Each must succeed natively; tests/run runs it so first.
 * Standard output must not depend on addresses, pids or time: the native and the swapped run's are
 * compared.  The environment, set by tests/run/lib.sh:
 *   PT_SWAP=1   the limit is real: pt_evict() must really get memory out of sight, or the test
 *               is vacuous and fails
 *   PT_PRESS=N  MiB of fresh memory written to push other memory out (default 40)
 */
#ifndef PT_H
#define PT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;

#define PT_PAGE	  4096UL
#define PT_MIB	  (1UL << 20)
#define PT_HUGE	  (2 * PT_MIB)
#define PT_UNUSED __attribute__((unused))

/* Newer than Debian 12's headers. */
#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define PT_MADV_GUARD_INSTALL 102
#define PT_MADV_GUARD_REMOVE  103
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* One line on standard error, without stdio or malloc, and the end of the process. */
__attribute__((noreturn, format(printf, 3, 4))) PT_UNUSED static void
pt_die(const char *file, int line, const char *fmt, ...)
{
	char buf[600];
	va_list ap;
	int n, err = errno;

	n = snprintf(buf, sizeof(buf), "%s:%d: pid %d: ", file, line, (int)getpid());
	va_start(ap, fmt);
	n += vsnprintf(buf + n, sizeof(buf) - n - 40, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(buf) - 41)
		n = sizeof(buf) - 41;
	n += snprintf(buf + n, sizeof(buf) - n, " (errno %d)\n", err);
	if (write(2, buf, n) < 0) {
	}
	_exit(1);
}

#define DIE(...) pt_die(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(c)                                     \
	do {                                         \
		if (!(c))                            \
			DIE("check failed: %s", #c); \
	} while (0)
#define CHECKF(c, fmt, ...)                                               \
	do {                                                              \
		if (!(c))                                                 \
			DIE("check failed: %s: " fmt, #c, ##__VA_ARGS__); \
	} while (0)
/* A pthread call: returns the error. */
#define PCHECK(call)                                             \
	do {                                                     \
		int pcheck_ = (call);                            \
		if (pcheck_)                                     \
			DIE("%s: %s", #call, strerror(pcheck_)); \
	} while (0)

/* ---- system calls past libc: not at any site that pswap can have patched ---- */

PT_UNUSED static inline __attribute__((always_inline)) long pt_sys6(long n, long a, long b, long c,
								    long d, long e, long f)
{
#if defined(__x86_64__)
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
#else
	long ret = syscall(n, a, b, c, d, e, f);

	return ret == -1 ? -errno : ret;
#endif
}

/* The three ways a program makes a call. */
enum pt_way {
	PT_LIBC,
	PT_SYSCALL,
	PT_ASM,
	PT_WAYS
};
PT_UNUSED static const char *const pt_way_name[] = { "libc", "syscall()", "asm" };

/* A call by the given way that is not PT_LIBC; -1 and errno. */
PT_UNUSED static long pt_raw(enum pt_way way, long n, long a, long b, long c, long d, long e,
			     long f)
{
	long ret;

	if (way == PT_SYSCALL)
		return syscall(n, a, b, c, d, e, f);
	ret = pt_sys6(n, a, b, c, d, e, f);
	if (ret < 0 && ret > -4096) {
		errno = -ret;
		return -1;
	}
	return ret;
}

PT_UNUSED static int pt_madvise(enum pt_way way, void *p, size_t len, int advice)
{
	if (way == PT_LIBC)
		return madvise(p, len, advice);
	return pt_raw(way, SYS_madvise, (long)p, len, advice, 0, 0, 0);
}

PT_UNUSED static int pt_munmap(enum pt_way way, void *p, size_t len)
{
	if (way == PT_LIBC)
		return munmap(p, len);
	return pt_raw(way, SYS_munmap, (long)p, len, 0, 0, 0, 0);
}

PT_UNUSED static void *pt_mremap(enum pt_way way, void *p, size_t old, size_t new, int flags,
				 void *to)
{
	if (way == PT_LIBC)
		return mremap(p, old, new, flags, to);
	return (void *)pt_raw(way, SYS_mremap, (long)p, old, new, flags, (long)to, 0);
}

PT_UNUSED static void *pt_mmap_way(enum pt_way way, void *p, size_t len, int prot, int flags)
{
	if (way == PT_LIBC)
		return mmap(p, len, prot, flags, -1, 0);
	return (void *)pt_raw(way, SYS_mmap, (long)p, len, prot, flags, -1, 0);
}

PT_UNUSED static int pt_mprotect(enum pt_way way, void *p, size_t len, int prot)
{
	if (way == PT_LIBC)
		return mprotect(p, len, prot);
	return pt_raw(way, SYS_mprotect, (long)p, len, prot, 0, 0, 0);
}

PT_UNUSED static u64 pt_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

/* ---- contents ---- */

PT_UNUSED static inline u64 pt_mix(u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

#define PT_WORDS	(PT_PAGE / 8)
#define PT_RANDOM_WORDS (PT_WORDS / 4)

/* The page's words: a quarter random, the rest runs of 16 equal words; all depend on key. */
struct pt_gen {
	u64 x, base;
};

PT_UNUSED static inline struct pt_gen pt_gen(u64 tag, u64 index)
{
	struct pt_gen g;

	g.base = pt_mix(tag * 0x2545f4914f6cdd1dULL + index);
	g.x = g.base | 1;
	return g;
}

PT_UNUSED static inline u64 pt_word(struct pt_gen *g, unsigned i)
{
	if (i < PT_RANDOM_WORDS) {
		g->x ^= g->x << 13;
		g->x ^= g->x >> 7;
		g->x ^= g->x << 17;
		return g->x;
	}
	return g->base + (i >> 4);
}

PT_UNUSED static void pt_fill_page(void *page, u64 tag, u64 index)
{
	struct pt_gen g = pt_gen(tag, index);
	u64 *p = page;

	for (unsigned i = 0; i < PT_WORDS; i++)
		p[i] = pt_word(&g, i);
}

/* Number of wrong words. */
PT_UNUSED static unsigned pt_page_wrong(const void *page, u64 tag, u64 index)
{
	struct pt_gen g = pt_gen(tag, index);
	const u64 *p = page;
	unsigned wrong = 0;

	for (unsigned i = 0; i < PT_WORDS; i++)
		wrong += p[i] != pt_word(&g, i);
	return wrong;
}

PT_UNUSED static bool pt_page_zero(const void *page)
{
	const u64 *p = page;

	for (unsigned i = 0; i < PT_WORDS; i++)
		if (p[i])
			return false;
	return true;
}

/* len in bytes, a multiple of 4096; first: index of the first page. */
PT_UNUSED static void pt_fill_at(void *base, size_t len, u64 tag, u64 first)
{
	for (size_t i = 0; i < len / PT_PAGE; i++)
		pt_fill_page((char *)base + i * PT_PAGE, tag, first + i);
}

PT_UNUSED static void pt_fill(void *base, size_t len, u64 tag)
{
	pt_fill_at(base, len, tag, 0);
}

PT_UNUSED static void pt_report(const char *file, int line, const void *page, u64 tag, u64 index,
				unsigned wrong)
{
	struct pt_gen g = pt_gen(tag, index);
	const u64 *p = page;
	unsigned again, i;
	u64 want = 0, got = 0;

	for (i = 0; i < PT_WORDS; i++) {
		got = p[i];
		want = pt_word(&g, i);
		if (got != want)
			break;
	}
	again = pt_page_wrong(page, tag, index);
	pt_die(file, line,
	       "wrong data at %p, page %llu of tag %llu: %u wrong words, first at +%u: expected "
	       "%016llx, got %016llx%s%s",
	       (const char *)page + 8 * (i % PT_WORDS), (unsigned long long)index,
	       (unsigned long long)tag, wrong, 8 * i, (unsigned long long)want,
	       (unsigned long long)got, pt_page_zero(page) ? ", page is all zero" : "",
	       again == wrong ? "" : ", and it CHANGED when read again");
}

#define pt_verify_at(base, len, tag, first)                                                  \
	do {                                                                                 \
		const char *pv_b = (const char *)(base);                                     \
		size_t pv_n = (len) / PT_PAGE;                                               \
		for (size_t pv_i = 0; pv_i < pv_n; pv_i++) {                                 \
			unsigned pv_w =                                                      \
				pt_page_wrong(pv_b + pv_i * PT_PAGE, (tag), (first) + pv_i); \
			if (pv_w)                                                            \
				pt_report(__FILE__, __LINE__, pv_b + pv_i * PT_PAGE, (tag),  \
					  (first) + pv_i, pv_w);                             \
		}                                                                            \
	} while (0)
#define pt_verify(base, len, tag) pt_verify_at(base, len, tag, 0)

#define pt_verify_zero(base, len)                                                         \
	do {                                                                              \
		const char *pz_b = (const char *)(base);                                  \
		for (size_t pz_i = 0; pz_i < (size_t)(len); pz_i += PT_PAGE)              \
			if (!pt_page_zero(pz_b + pz_i))                                   \
				DIE("not zero: page %zu of %zu at %p, starts %016llx",    \
				    pz_i / PT_PAGE, (size_t)(len) / PT_PAGE, pz_b + pz_i, \
				    *(const unsigned long long *)(pz_b + pz_i));          \
	} while (0)

/* ---- memory and pressure ---- */

PT_UNUSED static void *pt_map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECKF(p != MAP_FAILED, "mmap %zu", len);
	return p;
}

/* 2 MiB aligned. */
PT_UNUSED static void *pt_map_huge_aligned(size_t len)
{
	char *p = pt_map(len + PT_HUGE), *q;

	q = (char *)(((uintptr_t)p + PT_HUGE - 1) & ~(PT_HUGE - 1));
	if (q != p)
		munmap(p, q - p);
	munmap(q + len, p + PT_HUGE - q);
	return q;
}

PT_UNUSED static bool pt_swapping(void)
{
	const char *s = getenv("PT_SWAP");

	return s && *s == '1';
}

PT_UNUSED static size_t pt_press_bytes(void)
{
	const char *s = getenv("PT_PRESS");

	return (s ? strtoul(s, NULL, 10) : 40) * PT_MIB;
}

/* Pages of the range that the kernel has nothing mapped for (a raw mincore: no libc site). */
PT_UNUSED static size_t pt_absent(const void *addr, size_t len)
{
	unsigned char vec[1024];
	size_t absent = 0;

	for (size_t done = 0; done < len;) {
		size_t n = len - done, i;

		if (n > sizeof(vec) * PT_PAGE)
			n = sizeof(vec) * PT_PAGE;
		if (pt_sys6(SYS_mincore, (long)addr + done, n, (long)vec, 0, 0, 0))
			return 0;
		for (i = 0; i < n / PT_PAGE; i++)
			absent += !(vec[i] & 1);
		done += n;
	}
	return absent;
}

/* Fresh memory, written, checked, given back: pushes out what is older. */
PT_UNUSED static void pt_press_n(size_t bytes)
{
	static _Atomic u64 tag = 1000000;
	u64 t = atomic_fetch_add(&tag, 1);
	void *p = pt_map(bytes);

	pt_fill(p, bytes, t);
	pt_verify(p, bytes, t);
	CHECK(munmap(p, bytes) == 0);
}

PT_UNUSED static void pt_press(void)
{
	pt_press_n(pt_press_bytes());
}

#define PT_EVICT_ROUNDS 8
#define PT_EVICT_SECONDS 4 /* what an unseen call dropped is left alone for one */

/* Pressure until at least half of the range is out of sight. Natively: one round. */
#define pt_evict(addr, len) pt_evict_share(addr, len, 50)
#define pt_evict_share(addr, len, percent)                                                   \
	do {                                                                                 \
		size_t pe_n = (len) / PT_PAGE, pe_a = 0;                                     \
		time_t pe_end = time(NULL) + PT_EVICT_SECONDS;                               \
		for (int pe_i = 1;; pe_i++) {                                                \
			pt_press();                                                          \
			if (!pt_swapping())                                                  \
				break;                                                       \
			pe_a = pt_absent((addr), (len));                                     \
			if (pe_a * 100 >= pe_n * (percent))                                  \
				break;                                                       \
			if (pe_i >= PT_EVICT_ROUNDS && time(NULL) > pe_end)                  \
				DIE("vacuous: after %d rounds of pressure only %zu of %zu "  \
				    "pages are out of memory",                               \
				    pe_i, pe_a, pe_n);                                       \
		}                                                                            \
	} while (0)

/* A thread that rewrites and checks memory of its own until told to stop. */
struct pt_churn {
	pthread_t thread;
	_Atomic bool stop;
	size_t bytes;
	u64 tag;
	_Atomic u64 rounds;
};

PT_UNUSED static void *pt_churn_main(void *arg)
{
	struct pt_churn *c = arg;
	char *p = pt_map(c->bytes);

	for (u64 v = 0; !atomic_load(&c->stop); v++) {
		pt_fill(p, c->bytes, c->tag + v);
		pt_verify(p, c->bytes, c->tag + v);
		atomic_fetch_add(&c->rounds, 1);
	}
	munmap(p, c->bytes);
	return NULL;
}

PT_UNUSED static void pt_churn_start(struct pt_churn *c, size_t bytes)
{
	static _Atomic u64 tag = 500000000;

	memset(c, 0, sizeof(*c));
	c->bytes = bytes;
	c->tag = atomic_fetch_add(&tag, 1000000);
	PCHECK(pthread_create(&c->thread, NULL, pt_churn_main, c));
}

PT_UNUSED static void pt_churn_stop(struct pt_churn *c)
{
	atomic_store(&c->stop, true);
	PCHECK(pthread_join(c->thread, NULL));
}

/* ---- faults that must happen ---- */

#include <setjmp.h>
static __thread sigjmp_buf pt_jmp;
static __thread volatile sig_atomic_t pt_armed;
static __thread void *volatile pt_fault_addr;
static __thread volatile int pt_fault_code;

PT_UNUSED static void pt_on_fault(int sig, siginfo_t *si, void *uc)
{
	(void)uc;
	if (!pt_armed)
		DIE("unexpected signal %d at %p code %d", sig, si->si_addr, si->si_code);
	pt_armed = 0;
	pt_fault_addr = si->si_addr;
	pt_fault_code = si->si_code;
	siglongjmp(pt_jmp, sig);
}

PT_UNUSED static void pt_catch_faults(void)
{
	struct sigaction sa = { 0 };

	sa.sa_sigaction = pt_on_fault;
	sa.sa_flags = SA_SIGINFO | SA_NODEFER;
	CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
	CHECK(sigaction(SIGBUS, &sa, NULL) == 0);
}

/* The signal a one-byte read (or write) raises, or 0. */
PT_UNUSED static int pt_touch(volatile void *addr, bool write)
{
	volatile char *p = addr;
	int sig;

	sig = sigsetjmp(pt_jmp, 0);
	if (sig)
		return sig;
	pt_armed = 1;
	if (write)
		*p = *p;
	else
		(void)*p;
	pt_armed = 0;
	return 0;
}

/* Waits for a child, which must exit with 0. */
#define pt_reap(pid)                                                               \
	do {                                                                       \
		int pr_st = 0;                                                     \
		pid_t pr_p;                                                        \
		while ((pr_p = waitpid((pid), &pr_st, 0)) < 0 && errno == EINTR)   \
			;                                                          \
		CHECKF(pr_p == (pid), "waitpid gave %d", (int)pr_p);               \
		if (!WIFEXITED(pr_st) || WEXITSTATUS(pr_st))                       \
			DIE("child %d ended with status 0x%x", (int)(pid), pr_st); \
	} while (0)

PT_UNUSED static void pt_say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

/* In main: the function that `how` names, and an end. */
#define PT_RUN_NAMED(how, name, call)             \
	do {                                      \
		if (!strcmp((how), (name))) {     \
			call;                     \
			pt_say("%s done", (how)); \
			return 0;                 \
		}                                 \
	} while (0)
#define PT_RUN(how, f) PT_RUN_NAMED(how, #f, f())

#endif
