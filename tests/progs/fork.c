/* SPDX-License-Identifier: MIT */
/*
 * fork - children of a process whose memory is swapped (FACTS trap 8: a child's mappings have no
 * userfaultfd, a missing page would read as zeros; glibc's own code in the child touches arenas and
 * FILEs first).
 *
 *     fork both|chain|bomb|syscalls|advice|libc|syscall|asm|asmfork|clone3|stack
 *     fork orphan|killed|orphans RESULTFILE
 *
 * both: two children and the parent change everything at the same time; libc to clone3: ways to
 * make the call; stack: libc's clone() with the child's stack in swapped memory; orphan, killed,
 * orphans: parents die first, the last child writes "ok" to RESULTFILE.
 */
#include "pt.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/uio.h>

static char *mem;
static const size_t size = 24 * PT_MIB;

typedef pid_t fork_fn(void);

static pid_t by_syscall(void)
{
	return pt_raw(PT_SYSCALL, SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
}

static pid_t by_asm(void)
{
	return pt_raw(PT_ASM, SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
}

static pid_t by_asm_fork(void)
{
	return pt_raw(PT_ASM, SYS_fork, 0, 0, 0, 0, 0, 0);
}

static pid_t by_clone3(void)
{
	struct clone_args a = { .exit_signal = SIGCHLD };

	return pt_raw(PT_SYSCALL, SYS_clone3, (long)&a, sizeof(a), 0, 0, 0, 0);
}

/* A child's work: everything is there, everything can be changed, and again under pressure. */
static void child_work(u64 tag, u64 mine, bool engine)
{
	char *p;

	pt_verify(mem, size, tag);
	pt_fill(mem, size, mine);
	p = malloc(100000);
	CHECK(p);
	memset(p, 1, 100000);
	free(p);
	if (engine) /* a child that no hook saw being made is served, but never taken from */
		pt_evict_share(mem, size, 30);
	pt_verify(mem, size, mine);
}

static void simple(fork_fn *f)
{
	for (int round = 0; round < 2; round++) {
		pid_t pid;

		pt_fill(mem, size, round);
		pt_evict(mem, size);
		pid = f();
		CHECKF(pid >= 0, "fork");
		if (!pid) {
			child_work(round, 50 + round, f != by_asm && f != by_asm_fork);
			_exit(0);
		}
		pt_verify(mem, size, round);
		pt_fill(mem, size, 100 + round);
		pt_verify(mem, size, 100 + round);
		pt_reap(pid);
		pt_verify(mem, size, 100 + round);
		pt_evict(mem, size);
		pt_verify(mem, size, 100 + round);
	}
}

static void both(void)
{
	for (int round = 0; round < 2; round++) {
		pid_t pid[2];

		pt_fill(mem, size, round);
		pt_evict(mem, size);
		for (int i = 0; i < 2; i++) {
			pid[i] = fork();
			CHECK(pid[i] >= 0);
			if (!pid[i]) {
				child_work(round, 10 + i, true);
				exit(0);
			}
		}
		for (size_t o = 0; o < size; o += PT_MIB) { /* page by page, as the children do */
			pt_verify_at(mem + o, PT_MIB, round, o / PT_PAGE);
			pt_fill_at(mem + o, PT_MIB, 20, o / PT_PAGE);
		}
		pt_verify(mem, size, 20);
		pt_reap(pid[0]);
		pt_reap(pid[1]);
		pt_verify(mem, size, 20);
	}
}

static void chain(int depth, u64 tag)
{
	size_t part = size / 8;
	pid_t pid;

	if (depth == 6)
		return;
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		/* what each ancestor changed is seen, the rest is the first generation's */
		for (int g = 0; g < 8; g++)
			pt_verify_at(mem + g * part, part, g < depth ? 1000 + (u64)g : tag,
				     g * part / PT_PAGE);
		pt_fill_at(mem + depth * part, part, 1000 + depth, depth * part / PT_PAGE);
		if (depth & 1)
			pt_press();
		chain(depth + 1, tag);
		for (int g = 0; g < 8; g++)
			pt_verify_at(mem + g * part, part, g <= depth ? 1000 + (u64)g : tag,
				     g * part / PT_PAGE);
		_exit(0);
	}
	pt_reap(pid);
	for (int g = 0; g < 8; g++)
		pt_verify_at(mem + g * part, part, g < depth ? 1000 + (u64)g : tag,
			     g * part / PT_PAGE);
}

static void bomb(void)
{
	pid_t pids[20];

	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	for (int i = 0; i < 100; i++) {
		size_t o = pt_mix(i) % (size / PT_PAGE) * PT_PAGE;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid) {
			pt_verify_at(mem + o, PT_PAGE, 1, o / PT_PAGE);
			_exit(0);
		}
		pt_reap(pid);
	}
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 20; i++) {
			size_t o = pt_mix(i + 1000 * round) % (size / PT_MIB) * PT_MIB;

			pids[i] = fork();
			CHECK(pids[i] >= 0);
			if (!pids[i]) {
				pt_verify_at(mem + o, PT_MIB, 1, o / PT_PAGE);
				pt_fill_at(mem + o, PT_MIB, 2, o / PT_PAGE);
				pt_verify_at(mem + o, PT_MIB, 2, o / PT_PAGE);
				if (i % 7 == 0)
					raise(SIGKILL);
				_exit(0);
			}
		}
		for (int i = 0; i < 20; i++) {
			int st;

			CHECK(waitpid(pids[i], &st, 0) == pids[i]);
			CHECKF(st == (i % 7 ? 0 : SIGKILL), "child %d: status 0x%x", i, st);
		}
	}
	pt_verify(mem, size, 1);
}

/* The kernel reads and writes a child's swapped memory. */
static void syscalls(void)
{
	static char buf[65536];
	int p[2], q[2];
	pid_t pid;

	CHECK(pipe(p) == 0 && pipe(q) == 0);
	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		for (size_t o = 0; o < size; o += sizeof(buf))
			CHECK(write(p[1], mem + o, sizeof(buf)) == sizeof(buf));
		pt_evict_share(mem, size, 1);
		for (size_t o = 0; o < size;) {
			ssize_t n = read(q[0], mem + o, sizeof(buf));

			CHECKF(n > 0, "read %zd", n);
			o += n;
		}
		pt_verify(mem, size, 2);
		_exit(0);
	}
	for (size_t o = 0; o < size;) {
		ssize_t n = 0;

		while (n < (ssize_t)sizeof(buf)) {
			ssize_t k = read(p[0], buf + n, sizeof(buf) - n);

			CHECK(k > 0);
			n += k;
		}
		pt_verify_at(buf, sizeof(buf), 1, o / PT_PAGE);
		o += n;
	}
	pt_fill(mem, size, 2);
	for (size_t o = 0; o < size; o += sizeof(buf))
		CHECK(write(q[1], mem + o, sizeof(buf)) == sizeof(buf));
	pt_reap(pid);
	pt_verify(mem, size, 2);
}

/* DONTFORK: not there; WIPEONFORK: zeros in the child, the data stays in the parent. */
static void advice(void)
{
	char *wipe = mem, *none = mem + 8 * PT_MIB, *keep = mem + 16 * PT_MIB;
	unsigned char vec[1];
	size_t n = 8 * PT_MIB;

	for (int round = 0; round < 4; round++) {
		/* Not by a `syscall` instruction of our own: no one sees that (docs, limits). */
		enum pt_way way = round % 2 ? PT_SYSCALL : PT_LIBC;
		pid_t pid;

		pt_fill(mem, size, round);
		CHECK(pt_madvise(way, wipe, n, MADV_WIPEONFORK) == 0);
		CHECK(pt_madvise(way, none, n, MADV_DONTFORK) == 0);
		pt_evict(mem, size);
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			pt_verify_zero(wipe, n);
			CHECK(mincore(none, PT_PAGE, vec) == -1 && errno == ENOMEM);
			pt_verify_at(keep, size - 2 * n, round, 2 * n / PT_PAGE);
			pt_fill(wipe, n, 5);
			pt_press();
			pt_verify(wipe, n, 5);
			pid = fork(); /* WIPEONFORK is inherited */
			CHECK(pid >= 0);
			if (!pid) {
				pt_verify_zero(wipe, n);
				_exit(0);
			}
			pt_reap(pid);
			pt_verify(wipe, n, 5);
			_exit(0);
		}
		pt_reap(pid);
		pt_verify(mem, size, round);
		CHECK(pt_madvise(way, wipe, n, MADV_KEEPONFORK) == 0);
		CHECK(pt_madvise(way, none, n, MADV_DOFORK) == 0);
		pt_press();
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			pt_verify(mem, size, round);
			_exit(0);
		}
		pt_reap(pid);
	}
}

static int stack_child(void *arg)
{
	volatile char frame[100000];

	for (size_t i = 0; i < sizeof(frame); i++)
		frame[i] = i;
	child_work((uintptr_t)arg, 60, true);
	for (size_t i = 0; i < sizeof(frame); i++)
		CHECK(frame[i] == (char)i);
	return 0;
}

static void stack(void)
{
	size_t n = 8 * PT_MIB;
	char *st = pt_map(n);

	pt_fill(mem, size, 9);
	pt_fill(st, n, 3);
	for (int i = 0; i < 3; i++) {
		pid_t pid;

		pt_evict(mem, size);
		pid = clone(stack_child, st + n, SIGCHLD, (void *)9);
		CHECK(pid > 0);
		pt_reap(pid);
		pt_verify(mem, size, 9);
		pt_verify(st, n - PT_PAGE, 3); /* the child's writes were its own */
	}
}

static void result(const char *path)
{
	char tmp[400];
	FILE *f;

	snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	f = fopen(tmp, "w");
	CHECK(f);
	CHECK(fprintf(f, "ok\n") == 3);
	CHECK(fclose(f) == 0);
	CHECK(rename(tmp, path) == 0);
}

static void orphans(const char *how, const char *path)
{
	int depth = strcmp(how, "orphans") ? 1 : 5;
	pid_t pid, parent;

	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	for (int g = 0; g < depth; g++) {
		size_t o = g * PT_MIB;

		parent = getpid();
		pid = fork();
		CHECK(pid >= 0);
		if (pid) {
			if (!strcmp(how, "killed") || (g & 1))
				raise(SIGKILL);
			_exit(0);
		}
		/* the parent is dead, wholly, before the child looks at anything */
		while (getppid() == parent || kill(parent, 0) == 0)
			usleep(1000);
		usleep(20000);
		if (g) /* changed by the generations before */
			pt_verify_at(mem + o - PT_MIB, PT_MIB, 100 + g - 1, (o - PT_MIB) / PT_PAGE);
		pt_verify_at(mem + o, size - o, 1, o / PT_PAGE);
		pt_fill_at(mem + o, PT_MIB, 100 + g, o / PT_PAGE);
		if (g == 2)
			pt_press();
	}
	for (int g = 0; g < depth; g++)
		pt_verify_at(mem + g * PT_MIB, PT_MIB, 100 + g, g * PT_MIB / PT_PAGE);
	pt_verify_at(mem + depth * PT_MIB, size - depth * PT_MIB, 1, depth * PT_MIB / PT_PAGE);
	pt_fill(mem, size, 500);
	pt_evict(mem, size); /* an orphan swaps for itself */
	pt_verify(mem, size, 500);
	result(path);
	_exit(0);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "both";

	mem = pt_map(size);
	if (!strcmp(how, "both")) {
		both();
	} else if (!strcmp(how, "chain")) {
		pt_fill(mem, size, 7);
		pt_evict(mem, size);
		chain(0, 7);
		pt_verify(mem, size, 7);
	} else if (!strcmp(how, "bomb")) {
		bomb();
	} else if (!strcmp(how, "syscalls")) {
		syscalls();
	} else if (!strcmp(how, "advice")) {
		advice();
	} else if (!strcmp(how, "libc")) {
		simple(fork);
	} else if (!strcmp(how, "syscall")) {
		simple(by_syscall);
	} else if (!strcmp(how, "asm")) {
		simple(by_asm);
	} else if (!strcmp(how, "asmfork")) {
		simple(by_asm_fork);
	} else if (!strcmp(how, "clone3")) {
		simple(by_clone3);
	} else if (!strcmp(how, "stack")) {
		stack();
	} else if (argc > 2) {
		orphans(how, argv[2]);
	} else {
		return 2;
	}
	pt_say("fork %s done", how);
	return 0;
}
