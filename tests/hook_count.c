/* SPDX-License-Identifier: MIT */
/*
 * hook_count.c - the simplest user of preload/patch.c: a library for LD_PRELOAD that counts what
 * the hooks see and spoils every register that the hooks may spoil.  Linked with patch.c and
 * stub.S, with -z initfirst and -z now, and compiled like hook.c, with -mgeneral-regs-only.
 *
 * PSWAP_COUNT_FILE=path  where the counts go (MAP_SHARED), made by the test beforehand
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include "hook_count.h"
#include "sys.h"

__attribute__((visibility("default"))) struct hook_count *pswap_hook_count;

__attribute__((visibility("default"))) const struct hook_ops pswap_hook_ops = {
	patch_scan, patch_build, patch_apply, patch_undo
};

static _Alignas(64) u8 fork_stack[65536];
void *hook_fork_stack_top = fork_stack + sizeof(fork_stack);

static _Atomic u32 fork_lock;
static u64 fork_mask; /* under fork_lock: the forker's signal mask */

_Noreturn void ps_bug(const char *file, int line, const char *what)
{
	sys_write(2, what, strlen(what));
	sys_write(2, "\n", 1);
	sys_call2(SYS_kill, sys_getpid(), SIGABRT);
	__builtin_trap();
}

/* How we were called: with an aligned stack and the direction flag clear. */
static inline void check_call(const void *frame)
{
	u64 flags = __builtin_ia32_readeflags_u64();

	if (((u64)frame & 15) || (flags & 0x400))
		relaxed_add(&pswap_hook_count->bad_calls, 1);
}

static void count(long nr, int site)
{
	if ((unsigned long)nr < ARRAY_SIZE(pswap_hook_count->nr))
		relaxed_add(&pswap_hook_count->nr[nr], 1);
	relaxed_add(&pswap_hook_count->by_site[site & 1], 1);
}

static inline void spoil_general(void)
{
	__asm__ volatile("mov $-1, %%rax; mov %%rax, %%rcx; mov %%rax, %%rdx; mov %%rax, %%rsi\n\t"
			 "mov %%rax, %%rdi; mov %%rax, %%r8; mov %%rax, %%r9; mov %%rax, %%r10\n\t"
			 "mov %%rax, %%r11; add %%rax, %%rax"
			 :
			 :
			 : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc");
}

long hook_vm(long nr, const long a[6], int site)
{
	long ret = sys_call6(nr, a[0], a[1], a[2], a[3], a[4], a[5]);

	check_call(__builtin_frame_address(0));
	count(nr, site);
	spoil_general();
	return ret;
}

static bool makes_process(long nr, const long a[6])
{
	if (nr == SYS_clone)
		return !(a[0] & CLONE_VM);
	if (nr == 435 && (size_t)a[1] >= sizeof(u64)) /* clone3: flags come first */
		return !(*(const u64 *)a[0] & CLONE_VM);
	return nr == SYS_fork;
}

int hook_pre(long nr, const long a[6], int site)
{
	u64 all = ~0UL, old;

	check_call(__builtin_frame_address(0));
	count(nr, site);
	spoil_general();
	if (!makes_process(nr, a))
		return HOOK_PASS;
	sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
	while (atomic_exchange(&fork_lock, 1))
		sys_call0(SYS_sched_yield);
	fork_mask = old;
	return HOOK_FORK;
}

void hook_post_fork(long ret, const long *arg)
{
	void *head = NULL;
	u64 mask = fork_mask;
	size_t len;

	check_call(__builtin_frame_address(0));
	if (ret == 0) {
		relaxed_add(&pswap_hook_count->fork_child, 1);
		/* The kernel clears it, and _Fork sets it first of all. */
		sys_call3(SYS_get_robust_list, 0, &head, &len);
		if (head)
			relaxed_add(&pswap_hook_count->child_late, 1);
	} else if (ret > 0) {
		relaxed_add(&pswap_hook_count->fork_parent, 1);
	} else {
		relaxed_add(&pswap_hook_count->fork_failed, 1);
	}
	spoil_general();
	if (ret == 0)
		__asm__ volatile("pcmpeqb %xmm0, %xmm0; movdqa %xmm0, %xmm7; movdqa %xmm0, %xmm15");
	if (ret == 0 && __builtin_cpu_supports("avx"))
		__asm__ volatile("vxorps %ymm1, %ymm1, %ymm1; vmovaps %ymm1, %ymm0\n\t"
				 "vmovaps %ymm1, %ymm7; vmovaps %ymm1, %ymm15; vzeroupper");
	atomic_store(&fork_lock, 0);
	sys_call4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
}

static u64 now_ns(void)
{
	struct timespec ts;

	sys_call2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

__attribute__((constructor)) static void start(int argc, char **argv, char **envp)
{
	static const char name[] = "PSWAP_COUNT_FILE=";
	struct hook_report r;
	int fd = -1;
	u64 t;

	for (; *envp; envp++)
		if (memcmp(*envp, name, sizeof(name) - 1) == 0)
			fd = (int)sys_open(*envp + sizeof(name) - 1, O_RDWR | O_CLOEXEC, 0);
	pswap_hook_count = sys_mmap(NULL, sizeof(*pswap_hook_count), PROT_READ | PROT_WRITE,
				    fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (fd >= 0)
		sys_close(fd);
	__builtin_cpu_init();
	t = now_ns();
	if (hooks_install(&r) < 0) {
		relaxed_add(&pswap_hook_count->refusals, 1);
		for (size_t i = 0; i < sizeof(pswap_hook_count->why) - 1; i++)
			if (!(pswap_hook_count->why[i] = r.why[i]))
				break;
		return;
	}
	sys_call2(SYS_getpriority, HOOK_MARK_WHICH, 0);
	pswap_hook_count->install_ns = now_ns() - t;
	pswap_hook_count->libc_sites = r.libc_sites;
	pswap_hook_count->ldso_sites = r.ldso_sites;
	relaxed_add(&pswap_hook_count->installs, 1);
}
