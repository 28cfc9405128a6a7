/* SPDX-License-Identifier: MIT */
/*
 * kaccess2 - more ways in which the kernel reads and writes swapped memory for the program.
 *
 *     kaccess2 vec|msgs|zerocopy|futex2|pimutex|aio|structs
 *
 * vec: preadv2 and pwritev2, offsets for splice, tee, sendfile, copy_file_range; msgs: sendmmsg,
 * recvmmsg, socket options and names; zerocopy: MSG_ZEROCOPY; futex2: futex_waitv, PI requeue,
 * deadlines; pimutex: libc's priority-inheritance mutexes; aio: request and event arrays; structs:
 * what other calls read and fill.
 */
#include "kaccess.h"

#include <linux/aio_abi.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>

static void vec(void)
{
	size_t n = 16 * PT_MIB;
	int fd = memfd(n, 5), fd2 = memfd(0, 0), p[2], q[2];
	struct iovec *iov;
	off_t *o1, *o2;
	ssize_t r;

	CHECK(pipe(p) == 0 && pipe(q) == 0);
	for (int flags = 0; flags < 2; flags++) {
		spots();
		iov = spot(64 * sizeof(*iov));
		for (int i = 0; i < 64; i++)
			iov[i] = (struct iovec){ mem + 20 * PT_MIB + i * 65536 * 2, 65536 };
		out();
		r = preadv2(fd, iov, 64, 0, flags ? RWF_NOWAIT : 0);
		if (flags) { /* may be short or not be had, never wrong */
			CHECKF((r > 0 && r % PT_PAGE == 0) ||
				       (r < 0 && (errno == EOPNOTSUPP || errno == EAGAIN)),
			       "%zd", r);
			if (r < 0)
				CHECK((r = preadv2(fd, iov, 64, 0, 0)) == 64 * 65536);
		} else {
			CHECKF(r == 64 * 65536, "%zd", r);
		}
		for (ssize_t d = 0; d + 65536 <= r; d += 65536)
			pt_verify_at(mem + 20 * PT_MIB + d * 2, 65536, 5, d / PT_PAGE);
		pt_verify_at(mem + 20 * PT_MIB + 65536, 65536, 1, (20 * PT_MIB + 65536) / PT_PAGE);
		out();
		CHECK(pwritev2(fd2, iov, 64, 0, RWF_DSYNC) == 64 * 65536);
		pt_fill(mem + 20 * PT_MIB, 16 * PT_MIB, 3);
		out();
		CHECK(preadv2(fd2, iov, 1, (flags + 1) * 65536 - 65536, 0) == 65536);
		if (r >= 2 * 65536)
			pt_verify_at(mem + 20 * PT_MIB, 65536, 5, flags * 65536 / PT_PAGE);
	}
	/* offsets are pointers */
	spots();
	o1 = spot(8);
	o2 = spot(8);
	*o1 = 3 * PT_PAGE;
	*o2 = 0;
	out();
	CHECK(sendfile(p[1], fd, o1, 2 * PT_PAGE) == 2 * PT_PAGE && *o1 == 5 * PT_PAGE);
	CHECK(tee(p[0], q[1], 2 * PT_PAGE, 0) == 2 * PT_PAGE);
	out();
	CHECK(splice(p[0], NULL, fd2, o2, 2 * PT_PAGE, 0) == 2 * PT_PAGE && *o2 == 2 * PT_PAGE);
	out();
	CHECK(read(q[0], mem + 8 * PT_MIB, 2 * PT_PAGE) == 2 * PT_PAGE);
	pt_verify_at(mem + 8 * PT_MIB, 2 * PT_PAGE, 5, 3);
	*o1 = 7 * PT_PAGE;
	*o2 = PT_PAGE;
	out();
	r = copy_file_range(fd, o1, fd2, o2, 4 * PT_PAGE, 0);
	if (r > 0) {
		CHECK(r == 4 * PT_PAGE && *o1 == 11 * PT_PAGE && *o2 == 5 * PT_PAGE);
		out();
		CHECK(pread(fd2, mem + 9 * PT_MIB, 4 * PT_PAGE, PT_PAGE) == 4 * PT_PAGE);
		pt_verify_at(mem + 9 * PT_MIB, 4 * PT_PAGE, 5, 7);
	}
	/* what lies in a pipe by reference is teed, then the source goes out */
	out();
	struct iovec v = { mem + 30 * PT_MIB, 8 * PT_PAGE };
	CHECK(vmsplice(p[1], &v, 1, 0) == 8 * PT_PAGE);
	CHECK(tee(p[0], q[1], 8 * PT_PAGE, 0) == 8 * PT_PAGE);
	out();
	pt_press();
	CHECK(read(p[0], mem, 8 * PT_PAGE) == 8 * PT_PAGE);
	CHECK(read(q[0], mem + PT_MIB, 8 * PT_PAGE) == 8 * PT_PAGE);
	pt_verify_at(mem, 8 * PT_PAGE, 1, 30 * PT_MIB / PT_PAGE);
	pt_verify_at(mem + PT_MIB, 8 * PT_PAGE, 1, 30 * PT_MIB / PT_PAGE);
	close(fd);
	close(fd2);
}

static void msgs(void)
{
	struct mmsghdr *tx, *rx;
	struct iovec *tv, *rv;
	struct sockaddr_in *name, *peer;
	socklen_t *len;
	struct tcp_info *info;
	struct timespec *ts;
	struct ifconf *ifc;
	char *cbuf;
	int *opt, sv[2], us, ts_fd, one = 1;

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, sv) == 0);
	for (int round = 0; round < 2; round++) {
		spots();
		tx = spot(8 * sizeof(*tx));
		rx = spot(8 * sizeof(*rx));
		tv = spot(8 * sizeof(*tv));
		rv = spot(8 * sizeof(*rv));
		ts = spot(sizeof(*ts));
		ts->tv_sec = 5;
		for (int i = 0; i < 8; i++) {
			tv[i] = (struct iovec){ mem + (10 + i) * PT_MIB, 16384 };
			rv[i] = (struct iovec){ mem + (20 + i) * PT_MIB, 16384 };
			tx[i].msg_hdr = (struct msghdr){ .msg_iov = tv + i, .msg_iovlen = 1 };
			rx[i].msg_hdr = (struct msghdr){ .msg_iov = rv + i, .msg_iovlen = 1 };
		}
		out();
		CHECK(sendmmsg(sv[0], tx, 8, 0) == 8 && tx[7].msg_len == 16384);
		out();
		CHECK(recvmmsg(sv[1], rx, 8, 0, ts) == 8);
		for (int i = 0; i < 8; i++) {
			CHECK(rx[i].msg_len == 16384);
			pt_verify_at(mem + (20 + i) * PT_MIB, 16384, 1, (10 + i) * PT_MIB / PT_PAGE);
		}
		spots_verify();
	}
	us = socket(AF_INET, SOCK_DGRAM, 0);
	ts_fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(us >= 0 && ts_fd >= 0);
	spots();
	name = spot(sizeof(*name));
	name->sin_family = AF_INET;
	name->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	peer = spot(sizeof(*peer));
	len = spot(sizeof(*len));
	*len = sizeof(*peer);
	opt = spot(sizeof(*opt));
	*opt = 1;
	info = spot(sizeof(*info));
	ifc = spot(sizeof(*ifc));
	cbuf = spot(4096);
	ifc->ifc_len = 4096;
	ifc->ifc_buf = cbuf;
	out();
	CHECK(bind(us, (void *)name, sizeof(*name)) == 0);
	CHECK(getsockname(us, (void *)peer, len) == 0 && *len == sizeof(*peer) && peer->sin_port);
	CHECK(setsockopt(us, SOL_SOCKET, SO_REUSEADDR, opt, sizeof(*opt)) == 0);
	CHECK(ioctl(us, SIOCGIFCONF, ifc) == 0 && ifc->ifc_len >= (int)sizeof(struct ifreq));
	CHECK(((struct ifreq *)cbuf)->ifr_name[0]);
	out();
	CHECK(sendto(us, mem + 12 * PT_MIB, 8192, 0, (void *)peer, sizeof(*peer)) == 8192);
	memset(name, 0, sizeof(*name));
	out();
	CHECK(recvfrom(us, mem + 14 * PT_MIB, 8192, MSG_PEEK, (void *)name, len) == 8192);
	CHECK(name->sin_port == peer->sin_port);
	out();
	CHECK(recvfrom(us, mem + 15 * PT_MIB, 8192, 0, NULL, NULL) == 8192);
	pt_verify_at(mem + 14 * PT_MIB, 8192, 1, 12 * PT_MIB / PT_PAGE);
	pt_verify_at(mem + 15 * PT_MIB, 8192, 1, 12 * PT_MIB / PT_PAGE);
	*len = sizeof(*info);
	out();
	CHECK(getsockopt(ts_fd, IPPROTO_TCP, TCP_INFO, info, len) == 0 && info->tcpi_state == 7);
	spots_verify();
	(void)one;
	close(us);
	close(ts_fd);
	close(sv[0]);
	close(sv[1]);
}

/* The network holds references to the pages until they are acknowledged. */
static void zerocopy(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int ls = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s, one = 1;
	socklen_t len = sizeof(a);
	static char buf[PT_PAGE] __attribute__((aligned(4096)));
	size_t sent, n = 2 * PT_MIB;

	CHECK(ls >= 0 && c >= 0 && bind(ls, (void *)&a, sizeof(a)) == 0 && listen(ls, 1) == 0);
	CHECK(getsockname(ls, (void *)&a, &len) == 0 && connect(c, (void *)&a, len) == 0);
	s = accept(ls, NULL, NULL);
	CHECK(s >= 0);
	if (setsockopt(c, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one))) {
		fprintf(stderr, "no SO_ZEROCOPY\n");
		exit(77);
	}
	for (int round = 0; round < 6; round++) {
		pt_fill(mem, size, round);
		out();
		sent = 0;
		while (sent < n) { /* as much as the socket holds */
			ssize_t r = send(c, mem + 7 * PT_MIB + sent, n - sent,
					 MSG_ZEROCOPY | MSG_DONTWAIT);

			if (r < 0) {
				CHECK(errno == EAGAIN || errno == ENOBUFS);
				break;
			}
			sent += r;
		}
		CHECK(sent > 64 * 1024);
		out(); /* the queued pages leave the program */
		pt_press();
		if (round & 1)
			CHECK(madvise(mem + 7 * PT_MIB, n, MADV_DONTNEED) == 0);
		for (size_t d = 0; d + PT_PAGE <= sent; d += PT_PAGE) {
			for (size_t got = 0; got < PT_PAGE;) {
				ssize_t r = recv(s, buf + got, PT_PAGE - got, 0);

				CHECK(r > 0);
				got += r;
			}
			pt_verify_at(buf, PT_PAGE, round, (7 * PT_MIB + d) / PT_PAGE);
		}
		if (sent % PT_PAGE)
			CHECK(recv(s, buf, sent % PT_PAGE, MSG_WAITALL) == (ssize_t)(sent % PT_PAGE));
		pt_verify(mem, 7 * PT_MIB, round);
		if (!(round & 1))
			pt_verify(mem, 12 * PT_MIB, round);
	}
	close(s);
	close(c);
	close(ls);
}

/* ---- futexes ---- */

static long futex(void *w, int op, u32 val, const void *ts, void *w2, u32 val3)
{
	return syscall(SYS_futex, w, op, val, ts, w2, val3);
}

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
struct waitv {
	u64 val, uaddr;
	u32 flags, reserved;
};

static u32 *cond, *pi;
static _Atomic int got, waiting;
static void *requeue_waiter(void *arg)
{
	long r;

	(void)arg;
	waiting++;
	r = futex(cond, FUTEX_WAIT_REQUEUE_PI | FUTEX_PRIVATE_FLAG, 0, NULL, pi, 0);
	CHECKF(r == 0, "wait_requeue_pi %ld", r);
	CHECK((*(volatile u32 *)pi & FUTEX_TID_MASK) == (u32)syscall(SYS_gettid));
	got++;
	CHECK(futex(pi, FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0) == 0);
	return NULL;
}

static void *wake_later(void *arg)
{
	usleep(100000);
	pt_press();
	*(volatile u32 *)arg = 1;
	futex(arg, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
	return NULL;
}

static void futex2(void)
{
	struct waitv *wv;
	struct timespec *ts;
	pthread_t th[4];
	u32 *w;
	long r;

	spots();
	wv = spot(8 * sizeof(*wv));
	ts = spot(sizeof(*ts));
	w = NULL;
	for (int i = 0; i < 8; i++) {
		w = spot(4);
		wv[i] = (struct waitv){ 0, (u64)w, 0x82 /* 32 bits, private */, 0 };
	}
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_sec += 20;
	out();
	PCHECK(pthread_create(&th[0], NULL, wake_later, w));
	r = syscall(SYS_futex_waitv, wv, 8, 0, ts, CLOCK_MONOTONIC);
	CHECKF(r == 7 || (r < 0 && (errno == ENOSYS || errno == EAGAIN)), "waitv %ld", r);
	PCHECK(pthread_join(th[0], NULL));
	spots_verify();
	/* deadlines are read from memory */
	ts->tv_sec = 0;
	ts->tv_nsec = 20000000;
	*w = 0;
	out();
	CHECK(futex(w, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, ts, NULL, 0) == -1 && errno == ETIMEDOUT);
	clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_nsec = 0;
	out();
	CHECK(futex(w, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, ts, NULL, ~0U) == -1 &&
	      errno == ETIMEDOUT);
	/* condition variable with priority inheritance: waiters go over to the lock */
	for (int round = 0; round < 2; round++) {
		spots();
		cond = spot(4);
		pi = spot(4);
		got = waiting = 0;
		out();
		for (int i = 0; i < 4; i++)
			PCHECK(pthread_create(&th[i], NULL, requeue_waiter, NULL));
		while (waiting < 4)
			usleep(1000);
		usleep(100000);
		out();
		CHECK(futex(pi, FUTEX_LOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0) == 0);
		if (round)
			out();
		r = futex(cond, FUTEX_CMP_REQUEUE_PI | FUTEX_PRIVATE_FLAG, 1, (void *)10L, pi, 0);
		CHECKF(r == 4, "cmp_requeue_pi %ld", r);
		out();
		CHECK(got == 0);
		CHECK(futex(pi, FUTEX_UNLOCK_PI | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0) == 0);
		for (int i = 0; i < 4; i++)
			PCHECK(pthread_join(th[i], NULL));
		CHECK(got == 4);
		spots_verify();
	}
}

#define MUTEXES 2000
static struct locked {
	pthread_mutex_t m;
	u64 count;
} *locked[MUTEXES];

static void *pi_thread(void *arg)
{
	u64 x = (uintptr_t)arg;

	for (int i = 0; i < 6000; i++) {
		struct locked *l;

		x = pt_mix(x);
		l = locked[i % 4 ? x % MUTEXES : x % 5];
		PCHECK(pthread_mutex_lock(&l->m));
		l->count++;
		if (i % 64 == 0)
			sched_yield();
		PCHECK(pthread_mutex_unlock(&l->m));
	}
	return NULL;
}

static void pimutex(void)
{
	pthread_mutexattr_t a;
	pthread_t th[4];
	struct pt_churn c;
	u64 sum = 0;

	PCHECK(pthread_mutexattr_init(&a));
	PCHECK(pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT));
	pt_fill(mem, size, 1);
	for (int i = 0; i < MUTEXES; i++) {
		locked[i] = (struct locked *)(mem + i * 5 * PT_PAGE + 128);
		memset(locked[i], 0, sizeof(*locked[i]));
		if (i & 1)
			PCHECK(pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED));
		PCHECK(pthread_mutex_init(&locked[i]->m, &a));
	}
	pt_evict(mem, size);
	pt_churn_start(&c, 24 * PT_MIB);
	for (uintptr_t i = 0; i < 4; i++)
		PCHECK(pthread_create(&th[i], NULL, pi_thread, (void *)(i + 1)));
	for (int i = 0; i < 4; i++)
		PCHECK(pthread_join(th[i], NULL));
	pt_churn_stop(&c);
	for (int i = 0; i < MUTEXES; i++)
		sum += locked[i]->count;
	CHECKF(sum == 4 * 6000, "%llu", (unsigned long long)sum);
	pt_verify_at(mem + PT_PAGE, 4 * PT_PAGE, 1, 1);
}

static void aio(void)
{
	size_t n = 4 * PT_MIB, block = 65536, k = n / block;
	int fd = memfd(n, 5);
	aio_context_t *ctx;
	struct iocb *cb, **list;
	struct io_event *ev;
	struct timespec *ts;
	size_t done = 0;

	spots();
	ctx = spot(sizeof(*ctx));
	cb = spot(k * sizeof(*cb));
	list = spot(k * sizeof(*list));
	ev = spot(k * sizeof(*ev));
	ts = spot(sizeof(*ts));
	ts->tv_sec = 20;
	for (size_t i = 0; i < k; i++) {
		list[i] = &cb[i];
		cb[i].aio_data = i;
		cb[i].aio_fildes = fd;
		cb[i].aio_lio_opcode = IOCB_CMD_PREAD;
		cb[i].aio_buf = (u64)(mem + 20 * PT_MIB + i * block);
		cb[i].aio_nbytes = block;
		cb[i].aio_offset = i * block;
	}
	out();
	CHECK(syscall(SYS_io_setup, 64, ctx) == 0);
	CHECK(syscall(SYS_io_submit, *ctx, k, list) == (long)k);
	while (done < k) {
		long r;

		out();
		r = syscall(SYS_io_getevents, *ctx, 1, k - done, ev, ts);
		CHECKF(r > 0, "io_getevents %ld", r);
		for (long i = 0; i < r; i++)
			CHECK(ev[i].res == (long long)block && ev[i].data < k);
		done += r;
	}
	pt_verify_at(mem + 20 * PT_MIB, n, 5, 0);
	pt_verify_at(mem + 20 * PT_MIB + n, PT_MIB, 1, (20 * PT_MIB + n) / PT_PAGE);
	CHECK(syscall(SYS_io_destroy, *ctx) == 0);
	spots_verify();
	close(fd);
}

static void structs(void)
{
	int fd, ep, p[2], ino, id;
	pid_t pid;

	for (int round = 0; round < 2; round++) {
		spots();
		siginfo_t *si = spot(sizeof(*si));
		struct rusage *ru = spot(sizeof(*ru)), *ru2 = spot(sizeof(*ru2));
		int *st = spot(sizeof(*st));
		struct rlimit *rl = spot(sizeof(*rl));
		struct sysinfo *sy = spot(sizeof(*sy));
		struct statfs *sf = spot(sizeof(*sf));
		gid_t *gr = spot(65536 * sizeof(gid_t));
		cpu_set_t *cpus = spot(sizeof(*cpus));
		struct sigevent *se = spot(sizeof(*se));
		timer_t *ti = spot(sizeof(*ti));
		struct itimerspec *its = spot(sizeof(*its)), *its2 = spot(sizeof(*its2));
		struct signalfd_siginfo *sfd = spot(sizeof(*sfd));
		sigset_t *set = spot(sizeof(*set));
		char *buf = spot(8192), *path = spot(200), *attr = spot(64);
		struct epoll_event *ev = spot(64 * sizeof(*ev)), e = { .events = EPOLLIN };
		struct timespec *ts = spot(sizeof(*ts));
		struct pollfd *pf = spot(sizeof(*pf));
		struct { const sigset_t *s; size_t n; } *mask = spot(sizeof(*mask));
		struct __user_cap_header_struct *ch = spot(sizeof(*ch));
		struct __user_cap_data_struct *cd = spot(2 * sizeof(*cd));
		u64 *val = spot(8), *val2 = spot(8);
		unsigned *cpu = spot(sizeof(*cpu)), *node = spot(sizeof(*node));
		unsigned char *vec = spot(size / PT_PAGE);
		struct sembuf *sb = spot(sizeof(*sb));
		struct { long type; char text[9000]; } *mg = spot(sizeof(*mg));
		struct msqid_ds *mq = spot(sizeof(*mq));
		struct tms *tm = spot(sizeof(*tm));
		struct statx *sx = spot(sizeof(*sx));
		struct { u32 size, policy; u64 f; u32 nice, prio; u64 a, b, c; u32 d, e; } *sa =
			spot(sizeof(*sa));
		struct sched_param *sp = spot(sizeof(*sp));

		se->sigev_notify = SIGEV_NONE;
		its->it_value.tv_nsec = 10000000;
		strcpy(path, "/proc/self/exe");
		strcpy(attr, "user.none");
		sigemptyset(set);
		sigaddset(set, SIGUSR2);
		ts->tv_nsec = 20000000;
		mask->s = set;
		mask->n = 8;
		ch->version = _LINUX_CAPABILITY_VERSION_3;
		mg->type = 3;
		memset(mg->text, 'x', sizeof(mg->text));
		sb->sem_op = 1;
		out();
		pid = fork();
		CHECK(pid >= 0);
		if (!pid)
			_exit(7);
		if (round) {
			CHECK(syscall(SYS_waitid, P_PID, pid, si, WEXITED, ru) == 0);
			CHECK(si->si_pid == pid && si->si_status == 7 && ru->ru_maxrss > 0);
		} else {
			CHECK(syscall(SYS_wait4, pid, st, 0, ru) == pid && WEXITSTATUS(*st) == 7);
		}
		out();
		CHECK(syscall(SYS_getrusage, RUSAGE_SELF, ru2) == 0 && ru2->ru_maxrss > 0);
		CHECK(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, rl) == 0 && rl->rlim_cur > 0);
		CHECK(syscall(SYS_sysinfo, sy) == 0 && sy->totalram > 0);
		CHECK(syscall(SYS_statfs, "/proc", sf) == 0 && sf->f_type == 0x9fa0);
		CHECK(syscall(SYS_getgroups, 65536, gr) >= 0);
		CHECK(syscall(SYS_sched_getaffinity, 0, sizeof(*cpus), cpus) > 0);
		CHECK(CPU_COUNT(cpus) > 0);
		CHECK(syscall(SYS_timer_create, CLOCK_MONOTONIC, se, ti) == 0);
		CHECK(syscall(SYS_timer_settime, *(int *)ti, 0, its, its2) == 0);
		CHECK(syscall(SYS_timer_delete, *(int *)ti) == 0);
		CHECK(syscall(SYS_readlinkat, AT_FDCWD, path, buf, 8192) > 1 && buf[0] == '/');
		CHECK(syscall(SYS_getxattr, path, attr, buf + 4096, 64) == -1 && errno != EFAULT);
		CHECK(syscall(SYS_statx, AT_FDCWD, "/proc", 0, 0x7ff, sx) == 0 && S_ISDIR(sx->stx_mode));
		CHECK(syscall(SYS_capget, ch, cd) == 0);
		CHECK(syscall(SYS_times, tm) >= 0);
		CHECK(prctl(PR_GET_PDEATHSIG, val) == 0);
		CHECK(syscall(SYS_arch_prctl, 0x1003 /* GET_FS */, val2) == 0);
		CHECK(*val2 == (u64)pthread_self());
		CHECK(syscall(SYS_getcpu, cpu, node, NULL) == 0 && *cpu < 1024 && *node < 64);
		CHECK(mincore(mem, size, vec) == 0);
		sa->size = 0;
		CHECK(syscall(SYS_sched_getattr, 0, sa, 48, 0) == 0);
		CHECK(syscall(SYS_sched_getparam, 0, sp) == 0 && sp->sched_priority == 0);
		/* through the vdso: ordinary writes */
		CHECK(clock_gettime(CLOCK_REALTIME, (struct timespec *)buf) == 0);
		out();
		CHECK(pipe(p) == 0);
		ep = epoll_create1(0);
		CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e) == 0);
		CHECK(write(p[1], "abc", 3) == 3);
		CHECK(syscall(SYS_epoll_pwait, ep, ev, 64, 1000, set, 8) == 1 && ev[0].events == EPOLLIN);
		*pf = (struct pollfd){ .fd = p[1], .events = POLLIN };
		out();
		CHECK(syscall(SYS_ppoll, pf, 1, ts, set, 8) == 0);
		out();
		CHECK(syscall(SYS_pselect6, 0, NULL, NULL, NULL, ts, mask) == 0);
		out();
		fd = timerfd_create(CLOCK_MONOTONIC, 0);
		CHECK(fd >= 0 && timerfd_settime(fd, 0, its, its2) == 0);
		out();
		CHECK(read(fd, val, 8) == 8 && *val == 1);
		close(fd);
		CHECK(sigprocmask(SIG_BLOCK, set, NULL) == 0);
		fd = signalfd(-1, set, 0);
		CHECK(fd >= 0 && kill(getpid(), SIGUSR2) == 0);
		out();
		CHECK(read(fd, sfd, sizeof(*sfd)) == sizeof(*sfd) && sfd->ssi_signo == SIGUSR2);
		close(fd);
		ino = inotify_init1(0);
		CHECK(ino >= 0 && inotify_add_watch(ino, "/tmp", IN_CREATE | IN_DELETE) >= 0);
		char tmp[] = "/tmp/kaccess2.XXXXXX";
		int tfd = mkstemp(tmp);
		CHECK(tfd >= 0 && unlink(tmp) == 0);
		close(tfd);
		out();
		CHECK(read(ino, buf, 8192) >= 16);
		close(ino);
		id = semget(IPC_PRIVATE, 1, 0600);
		if (id >= 0) {
			out();
			CHECK(semop(id, sb, 1) == 0 && semctl(id, 0, GETVAL) == 1);
			CHECK(semctl(id, 0, IPC_RMID) == 0);
		}
		id = msgget(IPC_PRIVATE, 0600);
		if (id >= 0) {
			int r;

			out();
			r = msgsnd(id, mg, 8000, IPC_NOWAIT);
			CHECK(r == 0);
			memset(mg, 0, sizeof(*mg));
			out();
			CHECK(msgctl(id, IPC_STAT, mq) == 0 && mq->msg_qnum == 1);
			CHECK(msgrcv(id, mg, 9000, 0, 0) == 8000 && mg->type == 3);
			CHECK(mg->text[0] == 'x' && mg->text[7999] == 'x' && !mg->text[8000]);
			CHECK(msgctl(id, IPC_RMID, NULL) == 0);
		}
		close(ep);
		close(p[0]);
		close(p[1]);
		spots_verify();
	}
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";

	mem = pt_map_huge_aligned(size);
	PT_RUN(how, vec);
	PT_RUN(how, msgs);
	PT_RUN(how, zerocopy);
	PT_RUN(how, futex2);
	PT_RUN(how, pimutex);
	PT_RUN(how, aio);
	PT_RUN(how, structs);
	return 2;
}
