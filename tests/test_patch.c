/* SPDX-License-Identifier: MIT */
/*
 * test_patch.c - a process whose libc is patched: it behaves as before and every call is seen.
 * Runs itself again with tests/hook_count.c preloaded.  Registers and patterns: test_patch_text.c.
 *
 * sanitize: no
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <cmocka.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "hook_preload.h"
#include "sys.h"

#define CALLS(nr_) relaxed_load(&hc->nr[nr_])
/* Runs stmt; how many calls of that number were seen meanwhile. */
#define SEEN(nr_, stmt)                   \
	({                                \
		u64 before_ = CALLS(nr_); \
		stmt;                     \
		CALLS(nr_) - before_;     \
	})

static void need_hooks(void)
{
	if (!hc)
		skip();
}

static int wait_for(pid_t pid)
{
	int st = -1;

	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st);
}

static void test_installed(void **state)
{
	unsigned writable = 0;
	char line[512];
	FILE *f;

	need_hooks();
	assert_in_range(hc->libc_sites, 22, PS_CACHELINE);
	assert_in_range(hc->ldso_sites, 3, 16);
	printf("%u sites in libc, %u in ld.so, %.3f ms\n", hc->libc_sites, hc->ldso_sites,
	       (double)hc->install_ns / 1e6);
	f = fopen("/proc/self/maps", "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		writable += strstr(line, "wx") != NULL;
	fclose(f);
	assert_int_equal(writable, 0);
}

static void test_vm_calls(void **state)
{
	char *p = NULL, *q = NULL;
	void *old;
	int r = 1;

	need_hooks();
	assert_int_equal(SEEN(SYS_mmap, p = mmap(NULL, 4 * PAGE_SIZE, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), 1);
	assert_ptr_not_equal(p, MAP_FAILED);
	memset(p, 'a', 4 * PAGE_SIZE);
	assert_int_equal(SEEN(SYS_mprotect, r = mprotect(p, PAGE_SIZE, PROT_READ)), 1);
	assert_int_equal(r, 0);
	assert_int_equal(SEEN(SYS_pkey_mprotect, r = pkey_mprotect(p, PAGE_SIZE,
						PROT_READ | PROT_WRITE, -1)), r ? 1 : 0);
	assert_int_equal(mprotect(p, PAGE_SIZE, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(SEEN(SYS_madvise, r = madvise(p, PAGE_SIZE, MADV_DONTNEED)), 1);
	assert_int_equal(r, 0);
	assert_int_equal(p[0], 0);
	assert_int_equal(p[PAGE_SIZE], 'a');
	assert_int_equal(SEEN(SYS_madvise, r = posix_madvise(p, PAGE_SIZE, POSIX_MADV_NORMAL)), 1);
	assert_int_equal(r, 0);
	assert_int_equal(SEEN(SYS_mlock, r = mlock(p, PAGE_SIZE)), 1);
	assert_int_equal(SEEN(SYS_mlock2, r = mlock2(p, PAGE_SIZE, MLOCK_ONFAULT)), 1);
	assert_int_equal(SEEN(SYS_mlock, r = mlock2(p, PAGE_SIZE, 0)), 1);
	assert_int_equal(SEEN(SYS_munlock, r = munlock(p, PAGE_SIZE)), 1);
	assert_int_equal(SEEN(SYS_munlockall, r = munlockall()), 1);
	assert_int_equal(SEEN(SYS_mlockall, r = mlockall(0)), 1);
	assert_int_equal(r, -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(SEEN(440, r = (int)process_madvise(-1, NULL, 0, 0, 0)), 1);
	assert_int_equal(r, -1);
	assert_int_equal(SEEN(SYS_mremap, q = mremap(p, 4 * PAGE_SIZE, 8 * PAGE_SIZE,
						     MREMAP_MAYMOVE)), 1);
	assert_ptr_not_equal(q, MAP_FAILED);
	assert_int_equal(q[PAGE_SIZE], 'a');
	assert_int_equal(SEEN(SYS_munmap, r = munmap(q, 8 * PAGE_SIZE)), 1);
	assert_int_equal(r, 0);
	/* Errors come through as errno. */
	errno = 0;
	assert_int_equal(SEEN(SYS_munmap, r = munmap(q + 1, 8 * PAGE_SIZE)), 1);
	assert_int_equal(r, -1);
	assert_int_equal(errno, EINVAL);
	old = sbrk(0);
	assert_int_equal(SEEN(SYS_brk, q = sbrk(2 * PAGE_SIZE)), 1);
	assert_ptr_equal(q, old);
	memset(q, 1, 2 * PAGE_SIZE);
	assert_int_equal(SEEN(SYS_brk, q = sbrk(-2 * (long)PAGE_SIZE)), 1);
}

static void test_ldso_calls(void **state)
{
	u64 before = 0;
	void *h;

	need_hooks();
	before = relaxed_load(&hc->by_site[HOOK_SITE_LDSO]);
	h = dlopen("libcrypt.so.1", RTLD_NOW);
	if (!h)
		h = dlopen("libutil.so.1", RTLD_NOW);
	if (!h)
		skip();
	assert_true(relaxed_load(&hc->by_site[HOOK_SITE_LDSO]) >= before + 3);
	dlclose(h);
}

/* The numbers that syscall() hands on, and those of no interest. */
static void test_syscall_function(void **state)
{
	struct { /* struct clone_args, first version */
		u64 flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	} args = { .exit_signal = SIGCHLD };
	u64 libc = 0;
	long r = 0, child;
	int st;

	need_hooks();
	libc = relaxed_load(&hc->by_site[HOOK_SITE_LIBC]);
	assert_int_equal(syscall(SYS_getpid), getpid());
	assert_int_equal(syscall(100000), -1);
	assert_int_equal(errno, ENOSYS);
	assert_int_equal(syscall(-5L), -1);
	assert_int_equal(errno, ENOSYS);
	assert_int_equal(relaxed_load(&hc->by_site[HOOK_SITE_LIBC]), libc);
	/* The sixth argument is on the stack. */
	assert_int_equal(SEEN(SYS_mmap, r = syscall(SYS_mmap, 0, PAGE_SIZE, PROT_READ, MAP_PRIVATE,
						    open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
						    0L)), 1);
	assert_memory_equal((void *)r, "\177ELF", 4);
	assert_int_equal(SEEN(SYS_munmap, r = syscall(SYS_munmap, r, PAGE_SIZE)), 1);
	assert_int_equal(r, 0);
	/* Numbers are 32 bits wide. */
	assert_int_equal(SEEN(SYS_munmap, r = syscall(SYS_munmap | 1L << 32, 1, 1)), 1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(SEEN(SYS_prctl, r = syscall(SYS_prctl, PR_GET_DUMPABLE)), 1);
	assert_int_equal(SEEN(SYS_prctl, r = prctl(PR_GET_DUMPABLE)), 1);

	child = CALLS(SYS_clone);
	for (int i = 0; i < 3; i++) {
		u64 made = relaxed_load(&hc->fork_child);
		pid_t pid = (pid_t)(i == 0 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) :
				    i == 1 ? syscall(SYS_fork) :
					     syscall(435, &args, sizeof(args)));

		if (pid == 0)
			syscall(SYS_exit_group, 41 + i);
		if (pid < 0 && errno == ENOSYS)
			continue;
		assert_true(pid > 0);
		st = wait_for(pid);
		assert_int_equal(st, 41 + i);
		assert_int_equal(relaxed_load(&hc->fork_child), made + 1);
	}
	assert_int_equal(CALLS(SYS_clone), child + 1);
}

static void test_fork(void **state)
{
	u64 parent = 0, child = 0, calls, failed;
	char *heap = malloc(100000);

	need_hooks();
	parent = relaxed_load(&hc->fork_parent);
	child = relaxed_load(&hc->fork_child);
	calls = CALLS(SYS_clone);
	for (int i = 0; i < 50; i++) {
		pid_t pid;

		memset(heap, i, 100000);
		pid = fork();
		if (pid == 0) {
			char *more = malloc(300000);

			memset(more, 1, 300000);
			_exit(heap[99999] == i && getppid() != getpid() ? i : 255);
		}
		assert_int_equal(wait_for(pid), i);
	}
	assert_int_equal(CALLS(SYS_clone), calls + 50);
	assert_int_equal(relaxed_load(&hc->fork_parent), parent + 50);
	assert_int_equal(relaxed_load(&hc->fork_child), child + 50);
	assert_int_equal(relaxed_load(&hc->child_late), 0);
	/* A clone that fails runs the hook in the parent once. */
	failed = relaxed_load(&hc->fork_failed);
	assert_int_equal(syscall(SYS_clone, SIGCHLD | CLONE_SIGHAND, 0, 0, 0, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(relaxed_load(&hc->fork_failed), failed + 1);
	free(heap);
}

static char clone_stack[65536] __attribute__((aligned(16)));
static volatile int clone_value;

static int clone_main(void *arg)
{
	volatile char here[1000];

	here[999] = 1;
	if ((char *)here < clone_stack || (char *)here > clone_stack + sizeof(clone_stack))
		return 1;
	clone_value = *(int *)arg + here[999];
	return munmap((void *)1, 1) == -1 && errno == EINVAL ? *(int *)arg : 2;
}

static void test_clone_with_stack(void **state)
{
	u64 child = 0;
	int arg = 70;

	need_hooks();
	child = relaxed_load(&hc->fork_child);
	/* Without CLONE_VM: the hooks run, the child is on its own stack. */
	clone_value = 0;
	assert_int_equal(wait_for(clone(clone_main, clone_stack + sizeof(clone_stack), SIGCHLD,
					&arg)), 70);
	assert_int_equal(clone_value, 0);
	assert_int_equal(relaxed_load(&hc->fork_child), child + 1);
	assert_int_equal(relaxed_load(&hc->child_late), 0);
	/* With it: they do not. */
	assert_int_equal(wait_for(clone(clone_main, clone_stack + sizeof(clone_stack),
					SIGCHLD | CLONE_VM | CLONE_VFORK, &arg)), 70);
	assert_int_equal(clone_value, 71);
	assert_int_equal(relaxed_load(&hc->fork_child), child + 1);
}

static void test_exec(void **state)
{
	extern char **environ;
	char *argv[] = { "sh", "-c", "exit 9", NULL };
	u64 installs = 0, execs = 0, vforks = 0;
	char buf[32] = "";
	pid_t pid = 0;
	FILE *f;

	need_hooks();
	installs = relaxed_load(&hc->installs);
	execs = CALLS(SYS_execve);
	vforks = CALLS(SYS_vfork);
	for (int i = 0; i < 10; i++) {
		pid = vfork();
		if (pid == 0) {
			execv("/nonexistent", argv);
			execv("/bin/sh", argv);
			_exit(1);
		}
		assert_int_equal(wait_for(pid), 9);
	}
	assert_int_equal(CALLS(SYS_vfork), vforks + 10);
	assert_int_equal(CALLS(SYS_execve), execs + 20);
	assert_int_equal(relaxed_load(&hc->installs), installs + 10);
	assert_int_equal(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ), 0);
	assert_int_equal(wait_for(pid), 9);
	assert_int_equal(posix_spawn(&pid, "/nonexistent", NULL, NULL, argv, environ), ENOENT);
	assert_int_equal(posix_spawnp(&pid, "sh", NULL, NULL, argv, environ), 0);
	assert_int_equal(wait_for(pid), 9);
	assert_int_equal(WEXITSTATUS(system("exit 5")), 5);
	f = popen("echo hello", "r");
	assert_non_null(f);
	assert_non_null(fgets(buf, sizeof(buf), f));
	assert_string_equal(buf, "hello\n");
	assert_int_equal(pclose(f), 0);
	pid = fork();
	if (pid == 0) {
		fexecve(open("/bin/sh", O_RDONLY), argv, environ);
		_exit(1);
	}
	assert_int_equal(wait_for(pid), 9);
	assert_true(relaxed_load(&hc->installs) >= installs + 15);
}

static void *thread_short(void *arg)
{
	char *p = malloc(200000);

	memset(p, 1, 200000);
	free(p);
	return arg;
}

static void test_thread_storm(void **state)
{
	u64 made = 0, exits = 0;
	pthread_t t[8];
	void *ret;

	need_hooks();
	made = CALLS(435) + CALLS(SYS_clone);
	exits = CALLS(SYS_exit);
	for (int round = 0; round < 50; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(t); i++)
			assert_int_equal(pthread_create(&t[i], NULL, thread_short, t + i), 0);
		for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
			assert_int_equal(pthread_join(t[i], &ret), 0);
			assert_ptr_equal(ret, t + i);
		}
	}
	assert_int_equal(CALLS(435) + CALLS(SYS_clone) - made, 400);
	assert_int_equal(CALLS(SYS_exit) - exits, 400);
}

static int cleaned;

static void cleanup(void *arg)
{
	cleaned++;
}

static void *thread_cancelled(void *arg)
{
	pthread_cleanup_push(cleanup, NULL);
	if (arg)
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;) /* always in hooked calls, or in a cancellation point */
		if (arg)
			madvise((void *)1, 1, MADV_NORMAL);
		else
			sleep(10);
	pthread_cleanup_pop(0);
	return NULL;
}

/* Forced unwinding goes through the stubs' and the hooks' frames. */
static void test_cancel(void **state)
{
	void *ret;
	pthread_t t;

	need_hooks();
	cleaned = 0;
	for (int i = 0; i < 40; i++) {
		assert_int_equal(pthread_create(&t, NULL, thread_cancelled, (void *)(long)(i & 1)), 0);
		usleep(1000 + 37 * (unsigned)i);
		pthread_cancel(t);
		assert_int_equal(pthread_join(t, &ret), 0);
		assert_ptr_equal(ret, PTHREAD_CANCELED);
	}
	printf("cleanup handlers run: %d of 40\n", cleaned);
	assert_in_range(cleaned, 36, 40);
}

static _Atomic u32 ticks, bad_ticks;
static _Thread_local char *alt_low, *alt_high;

static void on_tick(int sig)
{
	char here, *p;
	int err = errno;

	if (alt_low && (&here < alt_low || &here >= alt_high))
		relaxed_add(&bad_ticks, 1);
	p = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || *p)
		relaxed_add(&bad_ticks, 1);
	else
		munmap(p, PAGE_SIZE);
	relaxed_add(&ticks, 1);
	errno = err;
}

static _Atomic bool storm_stop;

static void use_altstack(size_t size)
{
	stack_t ss = { .ss_sp = malloc(size), .ss_size = size };

	sigaltstack(&ss, NULL);
	alt_low = ss.ss_sp;
	alt_high = alt_low + size;
}

static void *storm_vm(void *arg)
{
	u64 bad = 0;

	use_altstack(32768);
	while (!relaxed_load(&storm_stop)) {
		char *p = mmap(NULL, 16 * PAGE_SIZE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		p[5 * PAGE_SIZE] = 7;
		bad += madvise(p, PAGE_SIZE, MADV_DONTNEED) != 0;
		bad += p[5 * PAGE_SIZE] != 7;
		bad += munmap(p, 16 * PAGE_SIZE) != 0;
		bad += syscall(SYS_madvise, 1, 1, 0) != -1 || errno != EINVAL;
	}
	alt_low = NULL;
	return (void *)bad;
}

static void *storm_fork(void *arg)
{
	u64 bad = 0;

	use_altstack(32768);
	while (!relaxed_load(&storm_stop)) {
		pid_t pid = fork();

		if (pid == 0) {
			free(malloc(500000));
			_exit(3);
		}
		bad += wait_for(pid) != 3;
	}
	alt_low = NULL;
	return (void *)bad;
}

static void test_signal_storm(void **state)
{
	struct sigaction sa = { .sa_handler = on_tick, .sa_flags = SA_ONSTACK | SA_RESTART }, old;
	struct itimerval every = { { 0, 200 }, { 0, 200 } }, none = { { 0, 0 }, { 0, 0 } };
	pthread_t t[4];
	u64 forks = 0, end;
	void *bad;

	need_hooks();
	forks = relaxed_load(&hc->fork_child);
	sigaction(SIGALRM, &sa, &old);
	setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, i < 2 ? storm_vm : storm_fork, NULL);
	for (end = ps_now_ns() + 1500000000; ps_now_ns() < end;)
		usleep(20000);
	atomic_store(&storm_stop, true);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &bad);
		assert_ptr_equal(bad, NULL);
	}
	setitimer(ITIMER_REAL, &none, NULL);
	sigaction(SIGALRM, &old, NULL);
	printf("%u signals, %lu forks\n", relaxed_load(&ticks),
	       relaxed_load(&hc->fork_child) - forks);
	assert_true(relaxed_load(&ticks) > 20);
	assert_int_equal(relaxed_load(&bad_ticks), 0);
	assert_int_equal(relaxed_load(&hc->child_late), 0);
}

/*
 * Processes where patching meets resistance: a system call filter answers EPERM, and the program
 * runs again under it.
 */
static int run_filtered(u32 nr, u32 arg2, bool any)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, arg2, 0, any ? 0U : 1U),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { ARRAY_SIZE(f), f };
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
			_exit(77);
		execl("/proc/self/exe", "test_patch", "filtered", NULL);
		_exit(1);
	}
	return wait_for(pid);
}

static void test_no_mem_write(void **state)
{
	int st;

	need_hooks();
	st = run_filtered(SYS_pwrite64, 0, true);
	if (st == 77)
		skip();
	/* The fallback, mprotect of the page, did it. */
	assert_int_equal(st, 10);
}

static void test_no_new_code(void **state)
{
	u64 refusals = 0;
	int st;

	need_hooks();
	refusals = relaxed_load(&hc->refusals);
	st = run_filtered(SYS_mprotect, PROT_READ | PROT_EXEC, false);
	if (st == 77)
		skip();
	assert_int_equal(st, 11);
	assert_int_equal(relaxed_load(&hc->refusals), refusals + 1);
	assert_non_null(strstr(hc->why, "forbids making new code"));
}

/* A second thread before the library comes: nothing is patched. */
static void test_refuses_threads(void **state)
{
	pid_t pid;

	need_hooks();
	pid = fork();
	if (pid == 0) {
		unsetenv("LD_PRELOAD");
		execl("/proc/self/exe", "test_patch", "threaded", hook_lib, NULL);
		_exit(1);
	}
	assert_int_equal(wait_for(pid), 12);
	assert_string_equal(hc->why, "another thread runs already");
}

/* main() of the processes above. */
static int child_main(char **argv)
{
	struct hook_count **sym = dlsym(RTLD_DEFAULT, HOOK_COUNT_SYMBOL);
	u64 before, installs;
	pthread_t t;
	void *lib;

	if (strcmp(argv[1], "filtered") == 0) {
		if (!sym)
			return 1;
		before = relaxed_load(&(*sym)->nr[SYS_madvise]);
		madvise((void *)1, 1, 0);
		return relaxed_load(&(*sym)->nr[SYS_madvise]) == before + 1 ? 10 : 11;
	}
	pthread_create(&t, NULL, thread_cancelled, NULL);
	lib = dlopen(argv[2], RTLD_NOW);
	sym = lib ? dlsym(lib, HOOK_COUNT_SYMBOL) : NULL;
	if (!sym)
		return 2;
	installs = relaxed_load(&(*sym)->installs);
	before = relaxed_load(&(*sym)->nr[SYS_madvise]);
	madvise((void *)1, 1, 0);
	return relaxed_load(&(*sym)->nr[SYS_madvise]) == before && installs ? 12 : 3;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_installed),	 cmocka_unit_test(test_vm_calls),
		cmocka_unit_test(test_ldso_calls),	 cmocka_unit_test(test_syscall_function),
		cmocka_unit_test(test_fork),		 cmocka_unit_test(test_clone_with_stack),
		cmocka_unit_test(test_exec),		 cmocka_unit_test(test_thread_storm),
		cmocka_unit_test(test_cancel),		 cmocka_unit_test(test_signal_storm),
		cmocka_unit_test(test_no_mem_write),	 cmocka_unit_test(test_no_new_code),
		cmocka_unit_test(test_refuses_threads),
	};
	int failed;

	if (argc > 1)
		return child_main(argv);
	hook_preload(argv);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	hook_preload_cleanup();
	return failed;
}
