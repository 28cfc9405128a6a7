/* SPDX-License-Identifier: MIT */
/*
 * hook.h - seeing the system calls that libc and ld.so make inside themselves.
 *
 * patch.c finds the `syscall` instructions of interest and replaces the five bytes before each by
 * a jump to a stub (docs/decisions/001).  The stubs call the functions below on the thread that
 * makes the call, possibly in a signal handler, with malloc's locks held, or in a vfork child: they
 * must use raw system calls only, no TLS, no SSE registers (compiled with -mgeneral-regs-only), and
 * little stack.  patch.c implements hooks_install(); hook.c implements the rest.
 */
#ifndef PS_HOOK_H
#define PS_HOOK_H

#include "util.h"

struct hook_report {
	unsigned sites_wanted, sites_patched;
	unsigned libc_sites, ldso_sites;
	const char *why; /* NULL, or why nothing was patched (static text) */
};

/* Patches this process. Call from a constructor while it has one thread. All or nothing: 0, or
 * -1 with r->why and nothing changed. */
int hooks_install(struct hook_report *r);

/* Where a site lives. */
#define HOOK_SITE_LIBC 0
#define HOOK_SITE_LDSO 1

/*
 * The memory calls (mmap, munmap, mremap, brk, mprotect, pkey_mprotect, madvise, process_madvise,
 * mlock, mlock2, munlock, mlockall, munlockall, msync is left alone): makes the call itself (raw)
 * and returns what the kernel returned.
 */
long hook_vm(long nr, const long arg[6], int site);

/*
 * Before clone, clone3, vfork, fork, execve, execveat, exit, and prctl or seccomp made through
 * syscall().  The call itself is made afterwards by the stub.  Returns HOOK_FORK for a call that
 * makes a new address space (clone without CLONE_VM, fork): then hook_post_fork() runs on both
 * sides of it.
 */
#define HOOK_PASS 0
#define HOOK_FORK 1
int hook_pre(long nr, const long arg[6], int site);

/*
 * After a HOOK_FORK call, in the parent (ret > 0: the child's pid, or ret < 0: -errno) and in the
 * child (ret == 0), before any instruction of libc's runs there.  In the parent: on its stack, under
 * the rules above; `arg` is the address that hook_pre had for this call.  Other forks may have been made
 * meanwhile, if the call had CLONE_VFORK.  In the child: arg is NULL, and it runs on a stack of pswap's
 * (hook_fork_stack_top), not the program's, with the extended registers saved, so it may use SSE.
 */
void hook_post_fork(long ret, const long *arg);
/* Closes what lend_fds() left in this process's table. */
void hook_drop_lent(void);
/* In a signal handler: all of the program's memory in (swapoff.h). Nothing when it is not swapped. */
void hook_swapoff(void);

extern void *hook_fork_stack_top; /* set before hooks_install; 16-byte aligned, at least 64 KiB */

#endif
