/* SPDX-License-Identifier: MIT */
/*
 * kaccess - the kernel reads and writes swapped memory on the program's behalf: it must wait for
 * the page as the program would, never give EFAULT, a short count, or stale bytes.
 *
 *     kaccess rw|small|sock|futex|sigstack|storm|outside
 *
 * rw: read, write, readv, preadv, splice; small: structures, strings and arrays of system calls;
 * sock: sendmsg, recvmsg, descriptors passed; futex: private, shared, PI, requeue, WAKE_OP;
 * sigstack: frames on a swapped sigaltstack; storm: signals all the time while memory comes and
 * goes; outside: another process uses process_vm_readv, process_vm_writev and /proc/PID/mem (where
 * absent memory may give EIO, FACTS trap 7, but never wrong bytes).
 */
#include "pt.h"

#include <dirent.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>

static char *mem;
static const size_t size = 40 * PT_MIB;

/* Something that reads everything written to fd and compares: the other end of a pipe or socket. */
struct sink {
	pthread_t th;
	int fd;
	u64 tag;
	size_t len;
};

static void *sink_main(void *arg)
{
	struct sink *s = arg;
	static __thread char buf[PT_PAGE];

	for (size_t i = 0; i < s->len / PT_PAGE; i++) {
		size_t got = 0;

		while (got < PT_PAGE) {
			ssize_t n = read(s->fd, buf + got, PT_PAGE - got);

			CHECKF(n > 0, "%zd", n);
			got += n;
		}
		pt_verify_at(buf, PT_PAGE, s->tag, i);
	}
	return NULL;
}

static void sink_start(struct sink *s, int fd, u64 tag, size_t len)
{
	*s = (struct sink){ .fd = fd, .tag = tag, .len = len };
	PCHECK(pthread_create(&s->th, NULL, sink_main, s));
}

static void *source_main(void *arg)
{
	struct sink *s = arg;
	char buf[PT_PAGE] __attribute__((aligned(8)));

	for (size_t i = 0; i < s->len / PT_PAGE; i++) {
		size_t put = 0;

		pt_fill_page(buf, s->tag, i);
		while (put < PT_PAGE) {
			ssize_t n = write(s->fd, buf + put, PT_PAGE - put);

			CHECKF(n > 0, "%zd", n);
			put += n;
		}
	}
	return NULL;
}

static void source_start(struct sink *s, int fd, u64 tag, size_t len)
{
	*s = (struct sink){ .fd = fd, .tag = tag, .len = len };
	PCHECK(pthread_create(&s->th, NULL, source_main, s));
}

static void rw(void)
{
	struct sink s;
	int p[2], fd;

	CHECK(pipe(p) == 0);
	/* write: one big call, so that the kernel itself walks through missing pages */
	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	sink_start(&s, p[0], 1, size);
	for (size_t o = 0; o < size;) {
		ssize_t n = write(p[1], mem + o, size - o);

		CHECKF(n == (ssize_t)(size - o), "%zd of %zu", n, size - o);
		o += n;
	}
	PCHECK(pthread_join(s.th, NULL));
	/* read into swapped memory */
	pt_fill(mem, size, 2);
	pt_evict(mem, size);
	source_start(&s, p[1], 3, size);
	for (size_t o = 0; o < size;) {
		ssize_t n = read(p[0], mem + o, size - o);

		CHECKF(n > 0, "%zd", n);
		o += n;
	}
	PCHECK(pthread_join(s.th, NULL));
	pt_verify(mem, size, 3);
	/* files: vectors that themselves lie in swapped memory */
	fd = memfd_create("kaccess", 0);
	CHECK(fd >= 0);
	struct iovec *iov = (struct iovec *)(mem + size - 64 * 1024);
	size_t n = (size - 64 * 1024) / 1024 / PT_PAGE * PT_PAGE, all = n * 1024;
	pt_fill(mem, all, 4);
	for (int i = 0; i < 1024; i++) /* backwards, so that the order matters */
		iov[i] = (struct iovec){ mem + (1023 - i) * n, n };
	pt_evict(mem, size);
	CHECK(writev(fd, iov, 1024) == (ssize_t)all);
	pt_fill(mem, all, 5);
	pt_evict(mem, size);
	CHECK(preadv(fd, iov, 1024, 0) == (ssize_t)all);
	pt_verify(mem, all, 4);
	CHECK(pread(fd, mem, all, 0) == (ssize_t)all);
	for (int i = 0; i < 1024; i++)
		pt_verify_at(mem + i * n, n, 4, (1023 - i) * n / PT_PAGE);
	pt_fill(mem, size, 6);
	pt_evict(mem, size);
	CHECK(pwrite(fd, mem, size, 0) == (ssize_t)size); /* 40 MiB in one call */
	pt_fill(mem, size, 7);
	pt_evict(mem, size);
	CHECK(pread(fd, mem, size, 0) == (ssize_t)size);
	pt_verify(mem, size, 6);
	/* through stdio, and a file mapping as the other side */
	char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED);
	pt_evict(mem, size);
	CHECK(memcmp(map, mem, size) == 0);
	CHECK(munmap(map, size) == 0);
	CHECK(getrandom(mem, size, 0) > 0);
	close(fd);
}

/* A place of its own page for each small object; the page's other bytes must stay. */
static size_t spot_next;
static void *spot(size_t len)
{
	char *p = mem + spot_next + 64;

	spot_next = (spot_next + (len + 64 + PT_PAGE - 1) / PT_PAGE * PT_PAGE + 16 * PT_PAGE) %
		    (size - PT_MIB);
	memset(p, 0, len);
	return p;
}

static void small(void)
{
	for (int round = 0; round < 3; round++) {
		struct stat *st;
		struct utsname *un;
		struct timespec *ts, *ts2;
		struct timeval *tv;
		struct pollfd *pfd;
		struct epoll_event *ev, *ev2;
		struct sigaction *sa, *sa2;
		sigset_t *set, *set2;
		char *path, *cwd, *name;
		fd_set *fds;
		int *val, *pipes, ep, fd;

		spot_next = 0;
		pt_fill(mem, size, 1);
		path = spot(100);
		strcpy(path, "/proc/self/status");
		st = spot(sizeof(*st));
		un = spot(sizeof(*un));
		ts = spot(sizeof(*ts));
		ts->tv_nsec = 1000;
		ts2 = spot(sizeof(*ts2));
		tv = spot(sizeof(*tv));
		tv->tv_usec = 100;
		pfd = spot(sizeof(*pfd) * 3);
		ev = spot(sizeof(*ev));
		ev2 = spot(sizeof(*ev2) * 4);
		sa = spot(sizeof(*sa));
		sa->sa_handler = SIG_IGN;
		sa2 = spot(sizeof(*sa2));
		set = spot(sizeof(*set));
		sigaddset(set, SIGUSR2);
		set2 = spot(sizeof(*set2));
		cwd = spot(PATH_MAX);
		name = spot(16);
		fds = spot(sizeof(*fds));
		val = spot(sizeof(*val));
		pipes = spot(2 * sizeof(*pipes));
		if (round)
			pt_evict(mem, size);
#define OUT()                                             \
	do {                                              \
		if (round == 2)                           \
			pt_press_n(pt_press_bytes() / 4); \
	} while (0)
		CHECK(syscall(SYS_pipe2, pipes, 0) == 0);
		fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
		CHECK(fd >= 0);
		CHECK(syscall(SYS_fstat, fd, st) == 0 && S_ISREG(st->st_mode));
		close(fd);
		CHECK(uname(un) == 0 && !strcmp(un->sysname, "Linux"));
		CHECK(syscall(SYS_nanosleep, ts, NULL) == 0);
		CHECK(syscall(SYS_clock_gettime, CLOCK_BOOTTIME, ts2) == 0 && ts2->tv_sec > 0);
		OUT();
		pfd[0] = (struct pollfd){ .fd = pipes[0], .events = POLLIN };
		pfd[1] = (struct pollfd){ .fd = pipes[1], .events = POLLOUT };
		OUT();
		CHECK(poll(pfd, 2, 1000) == 1 && pfd[1].revents == POLLOUT && !pfd[0].revents);
		FD_SET(pipes[1], fds);
		OUT();
		CHECK(select(pipes[1] + 1, NULL, fds, NULL, tv) == 1 && FD_ISSET(pipes[1], fds));
		ep = epoll_create1(0);
		CHECK(ep >= 0);
		ev->events = EPOLLOUT;
		ev->data.u64 = 0x1234567890ULL;
		OUT();
		CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, pipes[1], ev) == 0);
		CHECK(epoll_wait(ep, ev2, 4, 1000) == 1 && ev2->data.u64 == 0x1234567890ULL);
		CHECK(write(pipes[1], path, 17) == 17);
		CHECK(ioctl(pipes[0], FIONREAD, val) == 0 && *val == 17);
		OUT();
		CHECK(sigaction(SIGUSR1, sa, NULL) == 0);
		CHECK(sigaction(SIGUSR1, NULL, sa2) == 0 && sa2->sa_handler == SIG_IGN);
		CHECK(sigprocmask(SIG_BLOCK, set, NULL) == 0);
		CHECK(sigprocmask(SIG_BLOCK, NULL, set2) == 0 && sigismember(set2, SIGUSR2) == 1);
		OUT();
		CHECK(kill(getpid(), SIGUSR2) == 0);
		CHECK(syscall(SYS_rt_sigtimedwait, set, NULL, ts, 8) == SIGUSR2);
		CHECK(sigprocmask(SIG_UNBLOCK, set, NULL) == 0);
		CHECK(syscall(SYS_getcwd, cwd, PATH_MAX) > 0 && cwd[0] == '/');
		strcpy(name, "swapped name");
		OUT();
		CHECK(prctl(PR_SET_NAME, name) == 0);
		memset(name, 0, 16);
		CHECK(prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "swapped name"));
		close(ep);
		close(pipes[0]);
		close(pipes[1]);
		/* nothing else on those pages was touched: the first 64 bytes, and pages between */
		struct pt_gen g = pt_gen(1, 0);
		for (unsigned i = 0; i < 8; i++)
			CHECK(((u64 *)mem)[i] == pt_word(&g, i));
		pt_verify_at(mem + 2 * PT_PAGE, 14 * PT_PAGE, 1, 2);
		pt_verify_at(mem + 20 * PT_MIB, size - 20 * PT_MIB, 1, 20 * PT_MIB / PT_PAGE);
		/* directory entries straight into swapped memory */
		fd = open("/proc/self", O_RDONLY | O_DIRECTORY);
		CHECK(fd >= 0);
		pt_evict(mem, size);
		long n = syscall(SYS_getdents64, fd, mem + 30 * PT_MIB + 8, 32768);
		CHECK(n > 500);
		close(fd);
	}
}

static void sock(void)
{
	int sv[2], dg[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, dg) == 0);
	for (int round = 0; round < 2; round++) {
		struct msghdr *mh = (struct msghdr *)(mem + size - PT_MIB);
		struct iovec *iov = (struct iovec *)(mem + size - PT_MIB / 2);
		char *control = mem + size - 32 * PT_PAGE;
		size_t len = size - PT_MIB, n = len / 64;
		struct cmsghdr *c;
		struct sink s;
		int fd = open("/dev/null", O_WRONLY), *pfd;

		pt_fill(mem, size, 10 + round);
		memset(mh, 0, sizeof(*mh));
		memset(control, 0, 100);
		for (int i = 0; i < 64; i++)
			iov[i] = (struct iovec){ mem + i * n, n };
		mh->msg_iov = iov;
		mh->msg_iovlen = 64;
		mh->msg_control = control;
		mh->msg_controllen = CMSG_SPACE(sizeof(int));
		c = CMSG_FIRSTHDR(mh);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		*(int *)CMSG_DATA(c) = fd;
		pt_evict(mem, size);
		sink_start(&s, sv[1], 10 + round, len);
		CHECK(sendmsg(sv[0], mh, 0) == (ssize_t)len);
		PCHECK(pthread_join(s.th, NULL));
		/* datagrams: all or nothing */
		pt_fill(mem, len, 20);
		pt_evict(mem, size);
		for (int i = 0; i < 20; i++) {
			struct iovec one = { mem + i * PT_MIB, 65536 },
				     two = { mem + 30 * PT_MIB, 65536 };
			struct msghdr m = { .msg_iov = &one, .msg_iovlen = 1 };
			struct msghdr *r = (struct msghdr *)(mem + size - 2 * PT_PAGE - 128);
			char *ctl = mem + size - 8 * PT_PAGE;

			if (i == 7) {
				m.msg_control = control;
				m.msg_controllen = CMSG_SPACE(sizeof(int));
			}
			CHECK(sendmsg(dg[0], &m, 0) == 65536);
			memset(r, 0, sizeof(*r));
			r->msg_iov = &two;
			r->msg_iovlen = 1;
			r->msg_control = ctl;
			r->msg_controllen = 200;
			if (i % 6 == 1)
				pt_evict_share(mem + 20 * PT_MIB, size - 20 * PT_MIB, 30);
			CHECK(recvmsg(dg[1], r, 0) == 65536);
			pt_verify_at(mem + 30 * PT_MIB, 65536, 20, i * PT_MIB / PT_PAGE);
			if (i == 7) {
				c = CMSG_FIRSTHDR(r);
				CHECK(c && c->cmsg_type == SCM_RIGHTS);
				pfd = (int *)CMSG_DATA(c);
				CHECK(fcntl(*pfd, F_GETFD) >= 0);
				close(*pfd);
			}
		}
		close(fd);
	}
}

static long futex(void *w, int op, u32 val, void *ts, void *w2, u32 val3)
{
	return syscall(SYS_futex, w, op, val, ts, w2, val3);
}

#define WAITERS 8
static u32 *word, *word2;
static _Atomic int woken;
static int fflags;
static void *futex_waiter(void *arg)
{
	struct timespec ts = { 15, 0 };
	int r;

	(void)arg;
	while (*(volatile u32 *)word == 0) {
		r = futex(word, FUTEX_WAIT | fflags, 0, &ts, NULL, 0);
		CHECKF(r == 0 || errno == EAGAIN || errno == EINTR, "futex wait");
		if (r == 0)
			break;
	}
	woken++;
	return NULL;
}

static void *pi_thread(void *arg)
{
	(void)arg;
	for (int i = 0; i < 50; i++) {
		CHECK(futex(word, FUTEX_LOCK_PI | fflags, 0, NULL, NULL, 0) == 0);
		word2[1]++;
		if (i % 10 == 0)
			usleep(1000);
		CHECK(futex(word, FUTEX_UNLOCK_PI | fflags, 0, NULL, NULL, 0) == 0);
	}
	return NULL;
}

static void futexes(void)
{
	struct pt_churn ch;

	for (int round = 0; round < 4; round++) {
		pthread_t th[WAITERS];

		fflags = round & 1 ? 0 : FUTEX_PRIVATE_FLAG;
		pt_fill(mem, size, 5);
		word = (u32 *)(mem + 3 * PT_MIB + 100);
		word2 = (u32 *)(mem + 5 * PT_MIB + 200);
		*word = 0;
		*word2 = 0;
		word2[1] = 0;
		woken = 0;
		pt_evict(mem, size);
		for (int i = 0; i < WAITERS; i++)
			PCHECK(pthread_create(&th[i], NULL, futex_waiter, NULL));
		usleep(50000);
		pt_evict(mem + 3 * PT_MIB, 20 * PT_MIB); /* the words go out under the sleepers */
		/* some are moved to the other word, one is woken with WAKE_OP */
		long r = futex(word, FUTEX_CMP_REQUEUE | fflags, 1, (void *)3L, word2, 0);
		CHECKF(r == 4, "requeue %ld", r);
		pt_press();
		/* the kernel does not wait for userfaultfd here (fixup_user_fault): touch, again */
		for (int i = 0; i < 3; i++) {
			r = futex(word, FUTEX_WAKE_OP | fflags, 1, (void *)1L, word2,
				  FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0));
			if (r >= 0 || errno != EFAULT || !pt_swapping())
				break;
			(void)*(volatile u32 *)word;
			(void)*(volatile u32 *)word2;
		}
		CHECKF(r == 2 && *word2 == 5, "wake_op %ld, word2 %u", r, *word2);
		pt_press();
		*(volatile u32 *)word = 1;
		futex(word, FUTEX_WAKE | fflags, INT_MAX, NULL, NULL, 0);
		futex(word2, FUTEX_WAKE | fflags, INT_MAX, NULL, NULL, 0);
		for (int i = 0; i < WAITERS; i++)
			PCHECK(pthread_join(th[i], NULL));
		CHECK(woken == WAITERS);
		*word = 0;
		word2[1] = 0;
		pt_churn_start(&ch, 40 * PT_MIB);
		for (int i = 0; i < WAITERS; i++)
			PCHECK(pthread_create(&th[i], NULL, pi_thread, NULL));
		for (int i = 0; i < WAITERS; i++)
			PCHECK(pthread_join(th[i], NULL));
		pt_churn_stop(&ch);
		CHECKF(word2[1] == WAITERS * 50, "%u", word2[1]);
	}
}

static _Atomic u64 handled;
static volatile size_t want_stack_lo, want_stack_hi;
static void on_signal(int sig, siginfo_t *si, void *uc)
{
	char frame[3000];
	size_t sp = (size_t)frame;

	(void)sig;
	(void)uc;
	memset(frame, 0x5a, sizeof(frame));
	CHECK(si->si_signo == sig);
	if (want_stack_lo)
		CHECK(sp > want_stack_lo && sp < want_stack_hi);
	handled++;
	for (size_t i = 0; i < sizeof(frame); i++)
		CHECK(frame[i] == 0x5a);
}

static void alt_stack(void)
{
	struct sigaction sa = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	size_t n = 128 * 1024;
	stack_t ss = { 0 };

	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
	for (int i = 0; i < 8; i++) {
		ss.ss_sp = mem + (size_t)i * 5 * PT_MIB;
		ss.ss_size = n;
		ss.ss_flags = 0;
		pt_fill(mem, size, i);
		pt_evict(mem, size);
		CHECK(sigaltstack(&ss, NULL) == 0);
		want_stack_lo = (size_t)ss.ss_sp;
		want_stack_hi = want_stack_lo + n;
		handled = 0;
		if (i & 1)
			CHECK(raise(SIGUSR1) == 0);
		else
			CHECK(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1) == 0);
		CHECK(handled == 1);
		pt_evict(mem, size);
		CHECK(raise(SIGUSR1) == 0);
		CHECK(handled == 2);
		/* the rest of the memory is as it was */
		pt_verify_at((char *)ss.ss_sp + n, size - n - i * 5 * PT_MIB, i,
			     (n + i * 5 * PT_MIB) / PT_PAGE);
	}
	ss.ss_flags = SS_DISABLE;
	CHECK(sigaltstack(&ss, NULL) == 0);
	want_stack_lo = 0;
}

static void on_alarm(int sig)
{
	size_t i = pt_mix(handled++) % (size / PT_PAGE);

	(void)sig;
	pt_verify_at(mem + i * PT_PAGE, PT_PAGE, 9, i); /* a fault inside the handler */
}

static void *storm_thread(void *arg)
{
	size_t n = 16 * PT_MIB;
	char *p = pt_map(n);

	for (u64 v = 0; v < 6; v++) {
		pt_fill(p, n, (uintptr_t)arg + v);
		pt_verify(p, n, (uintptr_t)arg + v);
	}
	return NULL;
}

static void storm(void)
{
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval it = { { 0, 1000 }, { 0, 1000 } };
	pthread_t th[3];
	struct sink s;
	int p[2];

	pt_fill(mem, size, 9);
	pt_evict(mem, size);
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
	for (uintptr_t i = 0; i < 3; i++)
		PCHECK(pthread_create(&th[i], NULL, storm_thread, (void *)(1000 * i)));
	for (int i = 0; i < 2000; i++) {
		pthread_kill(th[i % 3], SIGUSR1);
		if (i % 16 == 0)
			usleep(200);
	}
	CHECK(pipe(p) == 0);
	sink_start(&s, p[0], 9, size);
	for (size_t o = 0; o < size;) { /* interrupted system calls go on rightly */
		ssize_t n = write(p[1], mem + o, size - o);

		CHECKF(n > 0, "%zd", n);
		o += n;
	}
	PCHECK(pthread_join(s.th, NULL));
	for (int i = 0; i < 3; i++)
		PCHECK(pthread_join(th[i], NULL));
	memset(&it, 0, sizeof(it));
	CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
	pt_verify(mem, size, 9);
	CHECK(handled > 100);
}

/* The other process: made before there is memory, it only uses addresses it is told. */
struct order {
	char what; /* r, w: process_vm_*; m, M: /proc/PID/mem read, write */
	u64 addr, len, tag, first;
};

static void helper(int in, int out)
{
	static char buf[PT_MIB];
	pid_t target = getppid();
	struct order o;
	char path[64], ok = 1;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)target);
	fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	while (read(in, &o, sizeof(o)) == sizeof(o)) {
		for (u64 done = 0; done < o.len; done += sizeof(buf)) {
			struct iovec l = { buf, sizeof(buf) },
				     r = { (void *)(o.addr + done), sizeof(buf) };
			ssize_t n;

			switch (o.what) {
			case 'r':
				n = process_vm_readv(target, &l, 1, &r, 1, 0);
				CHECKF(n == (ssize_t)sizeof(buf), "readv %zd", n);
				pt_verify_at(buf, sizeof(buf), o.tag, o.first + done / PT_PAGE);
				break;
			case 'w':
				pt_fill_at(buf, sizeof(buf), o.tag, o.first + done / PT_PAGE);
				n = process_vm_writev(target, &l, 1, &r, 1, 0);
				CHECKF(n == (ssize_t)sizeof(buf), "writev %zd", n);
				break;
			case 'm':
				for (u64 k = 0; k < sizeof(buf); k += PT_PAGE) {
					n = pread(fd, buf, PT_PAGE, o.addr + done + k);
					if (n == -1 && errno == EIO && pt_swapping())
						continue;
					CHECKF(n == PT_PAGE, "/proc/PID/mem read %zd", n);
					pt_verify_at(buf, PT_PAGE, o.tag,
						     o.first + (done + k) / PT_PAGE);
				}
				break;
			case 'M':
				for (u64 k = 0; k < sizeof(buf); k += PT_PAGE) {
					pt_fill_page(buf, o.tag, o.first + (done + k) / PT_PAGE);
					n = pwrite(fd, buf, PT_PAGE, o.addr + done + k);
					if (n == -1 && errno == EIO && pt_swapping())
						continue;
					CHECKF(n == PT_PAGE, "/proc/PID/mem write %zd", n);
				}
				break;
			}
		}
		CHECK(write(out, &ok, 1) == 1);
	}
	_exit(0);
}

static int to_helper, from_helper;
static void ask(char what, u64 tag)
{
	struct order o = { what, (u64)mem, size, tag, 0 };
	char c;

	CHECK(write(to_helper, &o, sizeof(o)) == sizeof(o));
	CHECKF(read(from_helper, &c, 1) == 1, "the helper gave up");
}

static void outside(pid_t pid)
{
	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	ask('r', 1);
	pt_verify(mem, size, 1);
	pt_evict(mem, size);
	ask('w', 2);
	pt_evict(mem, size);
	pt_verify(mem, size, 2);
	pt_evict(mem, size);
	ask('m', 2);
	pt_verify(mem, size, 2);
	ask('m', 2);
	pt_evict(mem, size);
	ask('M', 3);
	for (size_t i = 0; i < size / PT_PAGE; i++) /* each page old (EIO) or new, as a whole */
		if (!pt_swapping() || pt_page_wrong(mem + i * PT_PAGE, 2, i))
			pt_verify_at(mem + i * PT_PAGE, PT_PAGE, 3, i);
	close(to_helper);
	pt_reap(pid);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "rw";
	pid_t pid = 0;

	if (!strcmp(how, "outside")) {
		int p[2], q[2];

		CHECK(pipe(p) == 0 && pipe(q) == 0);
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			close(p[1]);
			helper(p[0], q[1]);
		}
		close(q[1]);
		to_helper = p[1];
		from_helper = q[0];
	}
	mem = pt_map(size);
	if (!strcmp(how, "rw"))
		rw();
	else if (!strcmp(how, "small"))
		small();
	else if (!strcmp(how, "sock"))
		sock();
	else if (!strcmp(how, "futex"))
		futexes();
	else if (!strcmp(how, "sigstack"))
		alt_stack();
	else if (!strcmp(how, "storm"))
		storm();
	else if (!strcmp(how, "outside"))
		outside(pid);
	else
		return 2;
	pt_say("kaccess %s done", how);
	return 0;
}
