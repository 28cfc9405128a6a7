/* SPDX-License-Identifier: MIT */
/*
 * forkquiet - forks during which the parent's call does not return, or its thread needs memory that
 * is out: nothing else may have to wait for them.
 *
 *     forkquiet vfork HOW      a child of clone(CLONE_VFORK) without CLONE_VM, in a threaded program:
 *                              it ends when another thread, which needs swapped memory and forks
 *                              itself, says so. HOW: syscall, clone3, asm
 *     forkquiet early          the same, before there is an engine
 *     forkquiet ownstack       threads on stacks of the program's own memory fork while it is paged out
 *     forkquiet newuser        without CAP_SYS_PTRACE, a child in a user namespace of its own
 *     forkquiet tid            CLONE_CHILD_SETTID, CLONE_PARENT_SETTID and clone3's arguments in
 *                              swapped memory
 */
#include "pt.h"

#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>

static char *mem;
static const size_t size = 24 * PT_MIB;
static int to_child[2], to_parent[2];


static pid_t vfork_by(const char *how)
{
	struct clone_args a = { .flags = CLONE_VFORK, .exit_signal = SIGCHLD };

	if (!strcmp(how, "syscall"))
		return pt_raw(PT_SYSCALL, SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0, 0);
	if (!strcmp(how, "asm"))
		return pt_raw(PT_ASM, SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0, 0);
	if (!strcmp(how, "clone3"))
		return pt_raw(PT_SYSCALL, SYS_clone3, (long)&a, sizeof(a), 0, 0, 0, 0);
	DIE("what is %s?", how);
}

/* While the other thread is inside clone. */
static void *helper(void *arg)
{
	bool swapped = arg;
	char c;

	for (int round = 0; round < 3; round++) {
		pid_t pid;

		CHECK(read(to_parent[0], &c, 1) == 1);
		if (swapped) {
			pt_verify(mem, size, round);
			pt_fill(mem, size, 100 + round);
		} else {
			mem = pt_map(size); /* may be what starts the engine */
			pt_fill(mem, size, 7);
		}
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			pt_verify_at(mem, PT_MIB, swapped ? 100 + round : 7, 0);
			_exit(0);
		}
		pt_reap(pid);
		CHECK(write(to_child[1], "x", 1) == 1);
	}
	return NULL;
}

static void vforks(const char *how, bool swapped)
{
	_Atomic int *ended = mmap(NULL, PT_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				  -1, 0);
	pthread_t th;
	char c;

	CHECK(ended != MAP_FAILED);
	CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
	PCHECK(pthread_create(&th, NULL, helper, (void *)(uintptr_t)swapped));
	for (int round = 0; round < 3; round++) {
		pid_t pid;

		if (swapped) {
			pt_fill(mem, size, round);
			pt_evict(mem, size);
		}
		pid = vfork_by(how);
		CHECKF(pid >= 0, "clone");
		if (!pid) {
			/* Our own copy, whatever the other thread does to his. */
			CHECK(write(to_parent[1], "x", 1) == 1);
			CHECK(read(to_child[0], &c, 1) == 1);
			if (swapped)
				pt_verify(mem, size, round);
			atomic_store(ended, round + 1);
			_exit(0);
		}
		CHECK(atomic_load(ended) == round + 1); /* or it was no vfork */
		pt_reap(pid);
		if (swapped)
			pt_verify(mem, size, 100 + round);
	}
	PCHECK(pthread_join(th, NULL));
}

static void *stack_thread(void *arg)
{
	u64 me = (uintptr_t)arg;

	for (int i = 0; i < 60; i++) {
		volatile char frame[20000];
		pid_t pid;

		for (size_t k = 0; k < sizeof(frame); k++)
			frame[k] = k + me;
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			for (size_t k = 0; k < sizeof(frame); k++)
				CHECK(frame[k] == (char)(k + me));
			_exit(0);
		}
		pt_reap(pid);
		for (size_t k = 0; k < sizeof(frame); k++)
			CHECK(frame[k] == (char)(k + me));
		usleep(5000); /* long enough to go out */
	}
	return NULL;
}

static void ownstack(void)
{
	struct pt_churn churn;
	pthread_attr_t attr;
	pthread_t th[2];
	char *st[2];

	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	pt_churn_start(&churn, 32 * PT_MIB);
	for (u64 i = 0; i < 2; i++) {
		st[i] = pt_map(4 * PT_MIB);
		PCHECK(pthread_attr_init(&attr));
		PCHECK(pthread_attr_setstack(&attr, st[i], 2 * PT_MIB));
		PCHECK(pthread_create(&th[i], &attr, stack_thread, (void *)(i + 1)));
	}
	for (int i = 0; i < 2; i++)
		PCHECK(pthread_join(th[i], NULL));
	pt_churn_stop(&churn);
	pt_verify(mem, size, 1);
}

static void tid(void)
{
	for (int i = 0; i < 6; i++) {
		struct clone_args *a;
		pid_t *ids = (pid_t *)(mem + 4 * PT_MIB + 64), pid;

		pt_fill(mem, size, i);
		a = (struct clone_args *)(mem + 8 * PT_MIB + 128);
		*a = (struct clone_args){ .exit_signal = SIGCHLD };
		a->flags = CLONE_CHILD_SETTID | CLONE_PARENT_SETTID;
		a->child_tid = (uintptr_t)ids;
		a->parent_tid = (uintptr_t)(mem + 12 * PT_MIB);
		pt_evict(mem, size);
		if (i % 2)
			pid = syscall(SYS_clone3, a, sizeof(*a));
		else
			pid = syscall(SYS_clone, CLONE_CHILD_SETTID | CLONE_PARENT_SETTID | SIGCHLD, 0,
				      mem + 12 * PT_MIB, ids, 0);
		CHECK(pid >= 0);
		if (!pid) {
			u64 word, want;
			struct pt_gen g = pt_gen(i, 4 * PT_MIB / PT_PAGE);

			CHECK(*ids == (pid_t)syscall(SYS_getpid));
			/* The rest of the page is as it was. */
			for (unsigned k = 0; k < PT_WORDS; k++) {
				want = pt_word(&g, k);
				word = ((u64 *)(mem + 4 * PT_MIB))[k];
				CHECKF(k == 8 || word == want, "word %u: %llx", k,
				       (unsigned long long)word);
			}
			pt_verify_at(mem, 4 * PT_MIB, i, 0);
			pt_verify_at(mem + 16 * PT_MIB, 8 * PT_MIB, i, 16 * PT_MIB / PT_PAGE);
			_exit(0);
		}
		CHECK(*(pid_t *)(mem + 12 * PT_MIB) == pid);
		pt_reap(pid);
		pt_verify_at(mem, 8 * PT_MIB, i, 0); /* the child's id is written in the child only */
	}
}

/* The child's engine may not take descriptors from the parent's: there is one, of a file with nothing in
 * it. */
static void newuser(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];
	size_t n = 40 * PT_MIB;
	char *p;

	CHECK(syscall(SYS_capget, &h, d) == 0);
	for (int i = 0; i < 2; i++) {
		d[i].inheritable = 0;
		if (i == CAP_SYS_PTRACE / 32) {
			d[i].effective &= ~(1U << CAP_SYS_PTRACE % 32);
			d[i].permitted &= ~(1U << CAP_SYS_PTRACE % 32);
		}
	}
	CHECK(syscall(SYS_capset, &h, d) == 0);
	p = pt_map(n);
	for (size_t i = 0; i < n / 8; i++)
		((u64 *)p)[i] = pt_mix(i); /* does not shrink: to the file */
	pt_press();
	CHECK(munmap(p, n) == 0);
	for (int round = 0; round < 3; round++) {
		pid_t pid;

		pt_fill(mem, size, round);
		pt_evict(mem, size);
		pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
		CHECKF(pid >= 0, "clone");
		if (!pid) {
			pt_verify(mem, size, round);
			pt_fill(mem, size, 50);
			pt_verify(mem, size, 50);
			_exit(0);
		}
		pt_reap(pid);
		pt_verify(mem, size, round);
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";

	alarm(100); /* a hang is a failure */
	if (!strcmp(how, "early")) {
		vforks("syscall", false);
	} else {
		mem = pt_map(size);
		if (!strcmp(how, "vfork") && argc > 2)
			vforks(argv[2], true);
		else if (!strcmp(how, "ownstack"))
			ownstack();
		else if (!strcmp(how, "newuser"))
			newuser();
		else if (!strcmp(how, "tid"))
			tid();
		else
			return 2;
	}
	pt_say("forkquiet %s done", how);
	return 0;
}
