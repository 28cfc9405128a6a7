/* SPDX-License-Identifier: MIT */
/*
 * proc.c - the engine process: it shares the program's memory (CLONE_VM) and nothing else.  Its own
 * descriptor table keeps the userfaultfd when the program closes everything, its own thread group
 * keeps seccomp filters, setuid and exits of the program away from it (docs/decisions/002).
 *
 * Called from hooks, so compiled without vector registers and without libc.
 */
#include <linux/sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "arena.h"
#include "state.h"

#if !defined(__x86_64__)
#error "run mode is for x86-64; elsewhere build the library only"
#endif

#define CONTROL_STACK KiB(256)
#define THREAD_STACK KiB(256)
#define TLS_BYTES KiB(16)
#define ARCH_SET_FS 0x1002

/* In .bss of this library, which is never taken over. */
static _Alignas(64) char control_stack[CONTROL_STACK];
static _Alignas(64) char control_tls[TLS_BYTES];

__asm__(".text\n"
	".globl raw_clone\n"
	".hidden raw_clone\n"
	".type raw_clone, @function\n"
	"raw_clone:\n"
	"	sub $16, %rsi\n"
	"	mov %rdx, (%rsi)\n"
	"	mov %rcx, 8(%rsi)\n"
	"	xor %edx, %edx\n"
	"	xor %r10d, %r10d\n"
	"	mov $56, %eax\n"
	"	syscall\n"
	"	test %rax, %rax\n"
	"	jnz 1f\n"
	"	xor %ebp, %ebp\n"
	"	pop %rax\n"
	"	pop %rdi\n"
	"	call *%rax\n"
	"	xor %edi, %edi\n"
	"	mov $60, %eax\n"
	"	syscall\n"
	"	hlt\n"
	"1:	ret\n"
	".size raw_clone, . - raw_clone\n");

/* A control block good enough for code that looks at %fs: the stack protector's canary, the self
 * pointers, and room below for errno. */
static void *tls_init(char *block)
{
	char *tcb = block + TLS_BYTES / 2;

	((void **)tcb)[0] = tcb;
	((void **)tcb)[2] = tcb;
	return tcb;
}

/* Limits that the program set for itself are not for us; ours is another process, so they can be lifted
 * as far as it may. */
static void lift_limits(void)
{
	static const int which[] = { RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_CPU };

	for (unsigned i = 0; i < ARRAY_SIZE(which); i++) {
		u64 lim[2], want[2] = { ~0UL, ~0UL };

		if (which[i] == RLIMIT_NOFILE)
			want[0] = want[1] = 65536;
		if (sys_call4(SYS_prlimit64, 0, which[i], NULL, lim) || lim[0] >= want[0])
			continue;
		if (sys_call4(SYS_prlimit64, 0, which[i], want, NULL) == 0)
			continue;
		lim[0] = lim[1];
		sys_call4(SYS_prlimit64, 0, which[i], lim, NULL);
	}
}

/* Nothing of the program's descriptors is ours to keep open, but for those that were lent to us. */
static void close_programs_fds(void)
{
	for (unsigned from = 0;;) {
		unsigned next = ~0U;

		for (int k = 0; k < G.nr_lent_fds; k++)
			if (G.lent_fds[k] >= 0 && (unsigned)G.lent_fds[k] >= from)
				next = MIN(next, (unsigned)G.lent_fds[k]);
		if (next > from)
			sys_call3(SYS_close_range, from, next == ~0U ? next : next - 1, 0);
		if (next == ~0U)
			return;
		from = next + 1;
	}
}

static void engine_entry(void *arg)
{
	bool restart = arg != NULL;

	sys_call2(SYS_arch_prctl, ARCH_SET_FS, tls_init(control_tls));
	close_programs_fds();
	lift_limits();
	sys_call0(SYS_setsid);
	sys_call1(SYS_chdir, "/");
	sys_call2(SYS_prctl, 15 /* PR_SET_NAME */, "pswap-engine");
	control_main(restart);
	sys_call1(SYS_exit_group, 0);
}

/* Makes the engine process and ends, so that the engine is no child of the program: wait(__WALL) of the
 * program does not find it. */
static void between_entry(void *arg)
{
	long pid;

	/* The engine has its name from the start: nobody takes it for a process of the program's. */
	sys_call2(SYS_prctl, 15 /* PR_SET_NAME */, "pswap-engine");
	pid = raw_clone(CLONE_VM | CLONE_UNTRACED, control_stack + CONTROL_STACK, engine_entry,
			arg, NULL);
	G.engine_pid = (pid_t)pid;
}

void proc_note_reaper(void)
{
	G.has_reaper = true;
	if (G.shm)
		relaxed_store(&G.shm->has_reaper, 1);
}

/*
 * Whose child the engine becomes (docs/decisions/002).  Orphaned, it goes to process 1, and nobody
 * notices.  But where a process of the tree adopts orphans it would be the child of that one, with
 * SIGCHLD: wait() would find it.  There it stays a child of the program, without a signal: only
 * wait with __WALL or __WCLONE finds it.
 */
static long make_engine(bool restart, bool *child)
{
	static _Alignas(64) char between_stack[4096];
	void *arg = restart ? &G : NULL;
	long pid;

	*child = G.has_reaper || (G.shm && relaxed_load(&G.shm->has_reaper));
	if (*child)
		return raw_clone(CLONE_VM | CLONE_UNTRACED, control_stack + CONTROL_STACK,
				 engine_entry, arg, NULL);
	pid = raw_clone(CLONE_VM | CLONE_UNTRACED, between_stack + sizeof(between_stack),
			between_entry, arg, NULL);
	if (pid > 0 && sys_call4(SYS_wait4, pid, NULL, __WALL, NULL) == pid)
		pid = G.engine_pid;
	return pid;
}

int proc_start(bool restart)
{
	bool child;
	long pid;

	G.step = "process";
	atomic_store(&G.ready, 0);
	atomic_store(&G.quit, 0);
	atomic_store(&G.exec_seen, 0);
	G.pid = (pid_t)sys_getpid();
	if (G.pid == 1)
		proc_note_reaper();
	if (G.old_engine)
		sys_call4(SYS_wait4, G.old_engine, NULL, WNOHANG | __WCLONE, NULL);
	G.old_engine = 0;
	pid = make_engine(restart, &child);
	if (pid <= 0) {
		G.error = pid ? (int)-pid : ECHILD;
		return -G.error;
	}
	while (atomic_load(&G.ready) == 0) {
		struct timespec ts = { 0, 20000000 };

		sys_call4(SYS_futex, &G.ready, FUTEX_WAIT_PRIVATE, 0, &ts);
		/* Killed before it could say anything? */
		if (atomic_load(&G.ready) == 0 &&
		    (child ? sys_call4(SYS_wait4, pid, NULL, WNOHANG | __WALL, NULL) == pid :
			     sys_call2(SYS_kill, pid, 0) == -ESRCH)) {
			G.error = ESRCH;
			return -ESRCH;
		}
	}
	if (atomic_load(&G.ready) == 1)
		return 0;
	if (child)
		sys_call4(SYS_wait4, pid, NULL, __WALL, NULL);
	return -G.error;
}

static void thread_entry(void *arg)
{
	struct ps_ctx *ctx = arg;

	ctx->main(ctx);
}

int proc_spawn(struct pswap *ps, void (*fn)(struct ps_ctx *), struct ps_ctx *ctx)
{
	char *stack = ctx->stack;
	long tid;

	if (!stack)
		stack = arena_map(THREAD_STACK);
	if (!stack)
		return -ENOMEM;
	ctx->stack = stack; /* kept: a fork's child uses it again for the same thread */
	ctx->main = fn;
	(void)ps;
	tid = raw_clone(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
				CLONE_SYSVSEM | CLONE_SETTLS | CLONE_UNTRACED,
			stack + THREAD_STACK, thread_entry, ctx, tls_init(stack));
	return tid < 0 ? (int)tid : 0;
}
