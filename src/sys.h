/* SPDX-License-Identifier: MIT */
/*
 * sys.h - system calls without libc: no errno, no cancellation points, no thread-local storage,
 * and past any call site that pswap itself has patched.  Every call returns the result or -errno.
 */
#ifndef PS_SYS_H
#define PS_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "util.h"

#if defined(__x86_64__)
static inline long sys_call6(long n, long a, long b, long c, long d, long e, long f)
{
	long ret;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#else
#include <unistd.h>
static inline long sys_call6(long n, long a, long b, long c, long d, long e, long f)
{
	long ret = syscall(n, a, b, c, d, e, f);

	return ret == -1 ? -errno : ret;
}
#endif

#define SYS_ARG(x) ((long)(x))
#define sys_call0(n) sys_call6(n, 0, 0, 0, 0, 0, 0)
#define sys_call1(n, a) sys_call6(n, SYS_ARG(a), 0, 0, 0, 0, 0)
#define sys_call2(n, a, b) sys_call6(n, SYS_ARG(a), SYS_ARG(b), 0, 0, 0, 0)
#define sys_call3(n, a, b, c) sys_call6(n, SYS_ARG(a), SYS_ARG(b), SYS_ARG(c), 0, 0, 0)
#define sys_call4(n, a, b, c, d) \
	sys_call6(n, SYS_ARG(a), SYS_ARG(b), SYS_ARG(c), SYS_ARG(d), 0, 0)
#define sys_call5(n, a, b, c, d, e) \
	sys_call6(n, SYS_ARG(a), SYS_ARG(b), SYS_ARG(c), SYS_ARG(d), SYS_ARG(e), 0)

/* An error return of a raw system call lies in [-4095, -1]. */
static inline bool sys_is_err(long ret)
{
	return (unsigned long)ret >= (unsigned long)-4095L;
}

static inline void *sys_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return (void *)sys_call6(SYS_mmap, SYS_ARG(addr), SYS_ARG(len), prot, flags, fd, off);
}
static inline long sys_munmap(void *addr, size_t len)
{
	return sys_call2(SYS_munmap, addr, len);
}
static inline long sys_mprotect(void *addr, size_t len, int prot)
{
	return sys_call3(SYS_mprotect, addr, len, prot);
}
static inline long sys_madvise(void *addr, size_t len, int advice)
{
	return sys_call3(SYS_madvise, addr, len, advice);
}
static inline long sys_read(int fd, void *buf, size_t len)
{
	return sys_call3(SYS_read, fd, buf, len);
}
static inline long sys_write(int fd, const void *buf, size_t len)
{
	return sys_call3(SYS_write, fd, buf, len);
}
static inline long sys_pread(int fd, void *buf, size_t len, off_t off)
{
	return sys_call4(SYS_pread64, fd, buf, len, off);
}
static inline long sys_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	return sys_call4(SYS_pwrite64, fd, buf, len, off);
}
static inline long sys_open(const char *path, int flags, int mode)
{
	return sys_call4(SYS_openat, AT_FDCWD, path, flags, mode);
}
static inline long sys_openat(int dir, const char *path, int flags)
{
	return sys_call4(SYS_openat, dir, path, flags, 0);
}
static inline long sys_close(int fd)
{
	return sys_call1(SYS_close, fd);
}
static inline long sys_ioctl(int fd, unsigned long req, void *arg)
{
	return sys_call3(SYS_ioctl, fd, req, arg);
}
static inline long sys_getpid(void)
{
	return sys_call0(SYS_getpid);
}
static inline long sys_gettid(void)
{
	return sys_call0(SYS_gettid);
}

/* Waits while *word == val; timeout_ns < 0: for ever.  0, -EAGAIN, -EINTR or -ETIMEDOUT. */
static inline long sys_futex_wait(_Atomic u32 *word, u32 val, s64 timeout_ns)
{
	struct timespec ts = { timeout_ns / 1000000000, timeout_ns % 1000000000 };

	return sys_call4(SYS_futex, word, FUTEX_WAIT_PRIVATE, val, timeout_ns < 0 ? NULL : &ts);
}
static inline long sys_futex_wake(_Atomic u32 *word, int nr)
{
	return sys_call3(SYS_futex, word, FUTEX_WAKE_PRIVATE, nr);
}

/* The CPU that this thread runs on, or did a moment ago: a hint of what to use, not more.  The limit
 * of this segment is where Linux keeps the number for the vDSO's getcpu. */
static inline unsigned sys_cpu(void)
{
	unsigned cpu = 0;

#if defined(__x86_64__)
	unsigned nr = 0;
	bool ok;

	__asm__ volatile("lsl %2, %0" : "+r"(nr), "=@ccz"(ok) : "r"(0x7b));
	if (likely(ok))
		return nr & 0xfff;
#endif
	sys_call3(SYS_getcpu, &cpu, NULL, NULL);
	return cpu;
}

/* CLOCK_MONOTONIC in nanoseconds (through the vDSO: no libc state). */
u64 ps_now_ns(void);
static inline void sys_sleep_ns(u64 ns)
{
	struct timespec ts = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	sys_call2(SYS_nanosleep, &ts, NULL);
}

#endif
