/* SPDX-License-Identifier: MIT */
/*
 * seccomp - a filter synchronized to all threads of the process (SECCOMP_FILTER_FLAG_TSYNC) kills
 * on everything but a short list; threads of pswap's inside the process would be bound by it (FACTS
 * trap 23).
 *
 *     seccomp tsync|prctl|asm|errno|strict
 *
 * tsync, asm: kill the process, installed through syscall() or inline assembly; prctl: this thread
 * only; errno: EPERM instead; strict: SECCOMP_MODE_STRICT, in which only memory mapped before is
 * used.
 */
#include "pt.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

static char *mem, *late;
static const size_t size = 24 * PT_MIB;
static pthread_barrier_t barrier;

#define ALLOW(nr)                                        \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void install(const char *how)
{
	u32 verdict = strcmp(how, "errno") ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(SYS_read),
		ALLOW(SYS_write),
		ALLOW(SYS_mmap),
		ALLOW(SYS_munmap),
		ALLOW(SYS_madvise),
		ALLOW(SYS_mprotect),
		ALLOW(SYS_brk),
		ALLOW(SYS_mincore),
		ALLOW(SYS_futex),
		ALLOW(SYS_exit),
		ALLOW(SYS_exit_group),
		ALLOW(SYS_rt_sigprocmask),
		ALLOW(SYS_mremap),
		ALLOW(SYS_sched_yield),
		ALLOW(SYS_rt_sigreturn),
		ALLOW(SYS_newfstatat),
		ALLOW(SYS_getrandom),
		BPF_STMT(BPF_RET | BPF_K, verdict),
	};
	struct sock_fprog prog = { sizeof(f) / sizeof(*f), f };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (!strcmp(how, "prctl"))
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
	else
		CHECK(pt_raw(strcmp(how, "asm") ? PT_SYSCALL : PT_ASM, SYS_seccomp,
			     SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, (long)&prog, 0, 0,
			     0) == 0);
}

static void *other(void *arg)
{
	size_t n = 12 * PT_MIB;
	char *p = pt_map(n);

	(void)arg;
	pt_fill(p, n, 5);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier); /* the filter binds this thread, too */
	pt_verify(p, n, 5);
	for (int v = 6; v < 9; v++) {
		pt_fill(p, n, v);
		pt_verify(p, n, v);
	}
	CHECK(munmap(p, n) == 0);
	return NULL;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "tsync";
	bool threads = strcmp(how, "strict") && strcmp(how, "prctl");
	pthread_t th;
	char *p, *heap;

	mem = pt_map(size);
	late = pt_map(2 * size); /* touched only under the filter */
	pt_fill(mem, size, 1);
	if (threads) {
		PCHECK(pthread_barrier_init(&barrier, NULL, 2));
		PCHECK(pthread_create(&th, NULL, other, NULL));
		pthread_barrier_wait(&barrier);
	}
	pt_evict(mem, size);
	setvbuf(stdout, NULL, _IONBF, 0);
	if (!strcmp(how, "strict")) {
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
		pt_verify(mem, size, 1);
		pt_fill(late, 2 * size, 2);
		pt_fill(mem, size, 3);
		pt_verify(late, 2 * size, 2);
		pt_verify(mem, size, 3);
		CHECK(write(1, "strict done\n", 12) == 12);
		syscall(SYS_exit, 0);
	}
	install(how);
	if (threads)
		pthread_barrier_wait(&barrier);
	pt_verify(mem, size, 1);
	pt_fill(late, 2 * size, 2);
	pt_fill(mem, size, 3);
	pt_evict(late, 2 * size);
	pt_verify(late, 2 * size, 2);
	pt_verify(mem, size, 3);
	p = mremap(mem, size, 2 * size, MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED);
	pt_verify(p, size, 3);
	pt_verify_zero(p + size, size);
	heap = malloc(3 * PT_MIB);
	CHECK(heap);
	memset(heap, 3, 3 * PT_MIB);
	free(heap);
	CHECK(munmap(p, 2 * size) == 0);
	if (threads)
		PCHECK(pthread_join(th, NULL));
	CHECK(write(1, "done\n", 5) == 5);
	_exit(0);
}
