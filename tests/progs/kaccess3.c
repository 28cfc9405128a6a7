/* SPDX-License-Identifier: MIT */
/*
 * kaccess3 - the kernel and swapped memory where processes are concerned.
 *
 *     kaccess3 settid|exec|ptrace|local|rseq|uctx|devs
 *
 * settid: words that a fork by clone writes; exec: arguments; ptrace: PEEK and POKE, buffers of the
 * tracer; local: process_vm_* with swapped memory on both sides; rseq: an area and descriptors of the
 * program's own; uctx: frames of signals on a swapped stack that is no sigaltstack; devs: terminals,
 * /dev/zero, /proc and one's own /proc/self/mem.
 */
#include "kaccess.h"

#include <linux/rseq.h>
#include <pty.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <ucontext.h>

/* fork by clone: the kernel writes the child's id in the parent and, before any code of its runs,
 * in the child. */
static void settid(void)
{
	for (int round = 0; round < 6; round++) {
		enum pt_way way = round & 1 ? PT_ASM : PT_SYSCALL;
		u32 *ptid = (u32 *)(mem + 11 * PT_MIB + 512), *ctid = (u32 *)(mem + 29 * PT_MIB + 1024);
		long flags = CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD;
		pid_t pid;

		pt_fill(mem, size, round);
		out();
		pid = pt_raw(way, SYS_clone, flags, 0, (long)ptid, (long)ctid, 0, 0);
		CHECK(pid >= 0);
		if (!pid) {
			u32 me = syscall(SYS_gettid);

			CHECKF(*ctid == me, "ctid %u, tid %u", *ctid, me);
			/* the rest of these pages, and all else (the other word is for the parent) */
			for (int k = 0; k < 2; k++) {
				u32 *w = k ? ptid : ctid;
				size_t i = ((char *)w - mem) / PT_PAGE;
				char page[PT_PAGE] __attribute__((aligned(8)));

				pt_fill_page(page, round, i);
				memcpy(page + ((uintptr_t)w & 4095), w, 4);
				CHECK(!memcmp(page, mem + i * PT_PAGE, PT_PAGE));
			}
			pt_verify(mem, 11 * PT_MIB, round);
			pt_verify_at(mem + 30 * PT_MIB, 10 * PT_MIB, round, 30 * PT_MIB / PT_PAGE);
			_exit(0);
		}
		CHECKF(*ptid == (u32)pid, "ptid %u, pid %d", *ptid, pid);
		pt_reap(pid);
		pt_verify(mem, 11 * PT_MIB, round);
		pt_verify_at(mem + 12 * PT_MIB, 28 * PT_MIB, round, 12 * PT_MIB / PT_PAGE);
	}
}

#define ARGS 500
static void exec_(char **self)
{
	for (volatile int round = 0; round < 3; round++) {
		char **argv, **envp, *path;
		pid_t pid;

		pt_fill(mem, size, 1);
		argv = (char **)(mem + 2 * PT_MIB);
		envp = (char **)(mem + 4 * PT_MIB);
		path = mem + 6 * PT_MIB + 100;
		strcpy(path, "/proc/self/exe");
		memset(argv, 0, (ARGS + 1) * sizeof(*argv));
		for (int i = 0; i < ARGS; i++) {
			argv[i] = mem + 8 * PT_MIB + i * 4 * PT_PAGE + (PT_PAGE - 60); /* over a border */
			snprintf(argv[i], 120, "%s%d%0*d", i ? "arg" : "checkargs", i, 80, i);
		}
		strcpy(argv[0], self[0]);
		strcpy(argv[1], "checkargs");
		envp[0] = mem + 30 * PT_MIB + 50;
		strcpy(envp[0], "SWAPPED=yes it was");
		envp[1] = NULL;
		out();
		pid = round == 1 ? vfork() : fork();
		CHECK(pid >= 0);
		if (!pid) {
			if (round == 2)
				syscall(SYS_execveat, AT_FDCWD, path, argv, envp, 0);
			else
				execve(path, argv, envp);
			_exit(99);
		}
		pt_reap(pid);
		pt_verify(mem, 2 * PT_MIB, 1);
	}
}

static int check_args(int argc, char **argv)
{
	char want[130];

	CHECKF(argc == ARGS, "%d arguments", argc);
	for (int i = 2; i < ARGS; i++) {
		snprintf(want, 120, "arg%d%0*d", i, 80, i);
		CHECKF(!strcmp(argv[i], want), "argument %d: %s", i, argv[i]);
	}
	CHECK(getenv("SWAPPED") && !strcmp(getenv("SWAPPED"), "yes it was"));
	return 0;
}

/* A word at offset 8 of each page of a stopped child. A page that is out may give EIO. */
static void ptrace_(void)
{
	size_t eio = 0, n = size / PT_PAGE;
	struct iovec *iov;
	struct user_regs_struct *regs;
	siginfo_t *si;
	int st;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
		for (int round = 0; round < 2; round++) {
			pt_fill(mem, size, 3);
			pt_evict(mem, size);
			raise(SIGSTOP);
			for (size_t i = 0; i < n; i++) {
				u64 *w = (u64 *)(mem + i * PT_PAGE);
				struct pt_gen g = pt_gen(3, i);
				u64 old0 = pt_word(&g, 0), old1 = pt_word(&g, 1);

				CHECK(w[0] == old0);
				CHECKF(w[1] == old1 || w[1] == ~(u64)i, "page %zu", i);
				w[1] = old1;
			}
			pt_verify(mem, size, 3);
		}
		_exit(0);
	}
	spots();
	iov = spot(sizeof(*iov));
	regs = spot(sizeof(*regs));
	si = spot(sizeof(*si));
	for (int round = 0; round < 2; round++) {
		CHECK(waitpid(pid, &st, 0) == pid);
		CHECKF(WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP, "status %x", st);
		*iov = (struct iovec){ regs, sizeof(*regs) };
		out();
		CHECK(ptrace(PTRACE_GETREGSET, pid, 1, iov) == 0 && iov->iov_len == sizeof(*regs));
		CHECK(regs->rip && regs->rsp);
		out();
		CHECK(ptrace(PTRACE_GETSIGINFO, pid, 0, si) == 0 && si->si_signo == SIGSTOP);
		for (size_t i = 0; i < n; i++) {
			u64 *w = (u64 *)(mem + i * PT_PAGE);
			struct pt_gen g = pt_gen(3, i);
			u64 want, word;

			pt_word(&g, 0);
			want = pt_word(&g, 1);
			errno = 0;
			word = ptrace(PTRACE_PEEKDATA, pid, w + 1, 0);
			if (errno) {
				CHECKF(errno == EIO && pt_swapping(), "peek");
				eio++;
			} else {
				CHECKF(word == want, "page %zu: %llx", i, (unsigned long long)word);
			}
			if (i % 3 == 0 && ptrace(PTRACE_POKEDATA, pid, w + 1, ~(u64)i))
				CHECKF(errno == EIO && pt_swapping(), "poke");
		}
		CHECK(ptrace(PTRACE_CONT, pid, 0, 0) == 0);
	}
	pt_reap(pid);
	if (pt_swapping())
		fprintf(stderr, "%zu of %zu words could not be had\n", eio, 2 * n);
}

/* process_vm_*: swapped memory on both sides, vectors in it too. */
static void local(void)
{
	int go[2], done[2];
	struct iovec *l, *r;
	size_t n = 8 * PT_MIB;
	char c = 0;
	pid_t pid;

	CHECK(pipe(go) == 0 && pipe(done) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		for (int round = 0; round < 2; round++) {
			pt_fill(mem, size, 10 + round);
			pt_evict(mem, size);
			CHECK(write(done[1], &c, 1) == 1 && read(go[0], &c, 1) == 1);
			pt_verify_at(mem + 30 * PT_MIB, n, 1, 20 * PT_MIB / PT_PAGE);
			pt_verify(mem, 30 * PT_MIB, 10 + round);
		}
		_exit(0);
	}
	for (int round = 0; round < 2; round++) {
		spots();
		l = spot(4 * sizeof(*l));
		r = spot(4 * sizeof(*r));
		for (int i = 0; i < 4; i++) {
			l[i] = (struct iovec){ mem + 10 * PT_MIB + i * n / 4, n / 4 };
			r[i] = (struct iovec){ mem + 4 * PT_MIB + i * n / 4, n / 4 };
		}
		CHECK(read(done[0], &c, 1) == 1);
		out();
		CHECK(process_vm_readv(pid, l, 4, r, 4, 0) == (ssize_t)n);
		pt_verify_at(mem + 10 * PT_MIB, n, 10 + round, 4 * PT_MIB / PT_PAGE);
		for (int i = 0; i < 4; i++) {
			l[i] = (struct iovec){ mem + 20 * PT_MIB + i * n / 4, n / 4 };
			r[i] = (struct iovec){ mem + 30 * PT_MIB + i * n / 4, n / 4 };
		}
		out();
		CHECK(process_vm_writev(pid, l, 4, r, 4, 0) == (ssize_t)n);
		CHECK(write(go[1], &c, 1) == 1);
		spots_verify();
	}
	pt_reap(pid);
}

/* The script switches libc's own registration off (GLIBC_TUNABLES). */
static void rseq(void)
{
	struct rseq_ {
		u32 cpu_id_start, cpu_id;
		u64 rseq_cs;
		u32 flags, node_id, mm_cid, pad;
	} *area = (void *)(mem + 9 * PT_MIB + 64);
	struct rseq_cs *cs = (void *)(mem + 21 * PT_MIB + 128);
	cpu_set_t set;
	u32 *sig;
	u64 t;

	pt_fill(mem, size, 1);
	memset(area, 0, sizeof(*area));
	area->cpu_id = (u32)-1;
	memset(cs, 0, sizeof(*cs));
	cs->start_ip = 1; /* nobody is ever in there */
	cs->post_commit_offset = 1;
	sig = (u32 *)(mem + 25 * PT_MIB + 252);
	*sig = 0x53053053;
	cs->abort_ip = (u64)(sig + 1);
	pt_evict(mem, size);
	if (syscall(SYS_rseq, area, 32, 0, 0x53053053)) {
		fprintf(stderr, "rseq: %s\n", strerror(errno));
		exit(77);
	}
	for (int i = 0; i < 20; i++) {
		CPU_ZERO(&set);
		CPU_SET(i & 1, &set);
		pt_evict(mem, size);
		if (sched_setaffinity(0, sizeof(set), &set))
			continue; /* one CPU */
		CHECKF(area->cpu_id == (u32)(i & 1) && area->cpu_id_start == area->cpu_id,
		       "cpu_id %u", area->cpu_id);
	}
	CPU_SET(0, &set);
	CPU_SET(1, &set);
	sched_setaffinity(0, sizeof(set), &set);
	/* the descriptor is read at the next preemption, and dropped as we are outside */
	for (int i = 0; i < 4; i++) {
		*(volatile u64 *)&area->rseq_cs = (u64)cs;
		pt_evict(mem, size);
		t = pt_now_ns();
		while (*(volatile u64 *)&area->rseq_cs && pt_now_ns() - t < 5000000000ULL)
			sched_yield();
		CHECK(*(volatile u64 *)&area->rseq_cs == 0);
	}
	CHECK(syscall(SYS_rseq, area, 32, 1, 0x53053053) == 0);
	pt_verify(mem, 9 * PT_MIB, 1);
	pt_verify_at(mem + 26 * PT_MIB, size - 26 * PT_MIB, 1, 26 * PT_MIB / PT_PAGE);
}

static volatile int handled;
static void on_usr1(int sig, siginfo_t *si, void *uc)
{
	char frame[2000];

	(void)uc;
	memset(frame, 0x55, sizeof(frame));
	CHECK(si->si_signo == sig && frame[1000] == 0x55);
	handled++;
}

static ucontext_t home, there;
static void on_stack(void)
{
	for (int i = 0; i < 6; i++) {
		/* everything but the pages in use goes out: what lies below is where the frame goes */
		pt_evict_share(mem, size, 80);
		CHECK(raise(SIGUSR1) == 0);
		CHECK(handled == i + 1);
		/* a timer's, while we wait in the kernel */
		if (i == 3)
			swapcontext(&there, &home);
	}
}

static void uctx(void)
{
	struct sigaction sa = { .sa_sigaction = on_usr1, .sa_flags = SA_SIGINFO };

	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	CHECK(getcontext(&there) == 0);
	there.uc_stack.ss_sp = mem + 16 * PT_MIB;
	there.uc_stack.ss_size = PT_MIB;
	there.uc_link = &home;
	makecontext(&there, on_stack, 0);
	CHECK(swapcontext(&home, &there) == 0);
	pt_evict(mem, size);
	CHECK(swapcontext(&home, &there) == 0);
	CHECK(handled == 6);
	pt_verify(mem, 16 * PT_MIB, 1);
	pt_verify_at(mem + 17 * PT_MIB, size - 17 * PT_MIB, 1, 17 * PT_MIB / PT_PAGE);
}

static void devs(void)
{
	int m, s, fd;
	struct termios *tio;
	char *line, *buf;
	struct winsize *ws;
	size_t eio = 0;

	CHECK(openpty(&m, &s, NULL, NULL, NULL) == 0);
	spots();
	tio = spot(sizeof(*tio));
	ws = spot(sizeof(*ws));
	ws->ws_row = 33;
	line = spot(100);
	strcpy(line, "swapped line\n");
	buf = spot(200);
	out();
	CHECK(ioctl(s, TCGETS, tio) == 0 && (tio->c_lflag & ICANON));
	CHECK(ioctl(m, TIOCSWINSZ, ws) == 0);
	ws->ws_row = 0;
	out();
	CHECK(ioctl(s, TIOCGWINSZ, ws) == 0 && ws->ws_row == 33);
	CHECK(write(m, line, 13) == 13);
	out();
	CHECK(read(s, buf, 200) == 13 && !memcmp(buf, "swapped line\n", 13));
	close(m);
	close(s);
	spots_verify();
	pt_fill(mem, size, 2);
	out();
	fd = open("/dev/zero", O_RDONLY);
	CHECK(read(fd, mem + 4 * PT_MIB, 8 * PT_MIB) == 8 * (ssize_t)PT_MIB);
	close(fd);
	pt_verify_zero(mem + 4 * PT_MIB, 8 * PT_MIB);
	out();
	fd = open("/proc/self/maps", O_RDONLY);
	CHECK(read(fd, mem + 14 * PT_MIB, 4000) > 100);
	close(fd);
	CHECK(strchr(mem + 14 * PT_MIB, '-'));
	fd = open("/dev/urandom", O_RDONLY);
	CHECK(read(fd, mem + 15 * PT_MIB, PT_MIB) == (ssize_t)PT_MIB);
	close(fd);
	CHECK(!pt_page_zero(mem + 15 * PT_MIB) && !pt_page_zero(mem + 16 * PT_MIB - PT_PAGE));
	/* one's own memory as a file: EIO for what is out, or the contents */
	fd = open("/proc/self/mem", O_RDWR);
	CHECK(fd >= 0);
	pt_fill(mem, size, 4);
	out();
	for (size_t i = 0; i < size / PT_PAGE; i += 7) {
		static char page[PT_PAGE] __attribute__((aligned(4096)));
		ssize_t n = pread(fd, page, PT_PAGE, (off_t)(uintptr_t)(mem + i * PT_PAGE));

		if (n < 0) {
			CHECKF(errno == EIO && pt_swapping(), "/proc/self/mem");
			eio++;
			continue;
		}
		CHECK(n == PT_PAGE);
		pt_verify_at(page, PT_PAGE, 4, i);
	}
	close(fd);
	if (eio)
		fprintf(stderr, "/proc/self/mem: %zu EIO\n", eio);
	pt_verify(mem, size, 4);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";

	if (!strcmp(how, "checkargs"))
		return check_args(argc, argv);
	mem = pt_map_huge_aligned(size);
	PT_RUN(how, settid);
	PT_RUN_NAMED(how, "exec", exec_(argv));
	PT_RUN_NAMED(how, "ptrace", ptrace_());
	PT_RUN(how, local);
	PT_RUN(how, rseq);
	PT_RUN(how, uctx);
	PT_RUN(how, devs);
	return 2;
}
