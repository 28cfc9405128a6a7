/* SPDX-License-Identifier: MIT */
// LIBS: -luring
/*
 * uring2 - the other ways in which io_uring touches the program's memory: structures and names that
 * requests point to, rings and buffer rings that the program itself has placed in swapped memory
 * (pinned for as long as they live), advice given by a request, vectors, messages, zero-copy sends.
 *
 *     uring2 structs|advise|vectors|bufring|nommap|sendzc|hugefixed|forked
 */
#include "pt.h"

#include <liburing.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

static char *mem;
static const size_t size = 32 * PT_MIB;
static struct io_uring ring;

static void out(void)
{
	pt_evict_share(mem, size, 60);
}

static int done(void)
{
	struct io_uring_cqe *cqe;
	struct __kernel_timespec ts = { 20, 0 };
	int r = io_uring_wait_cqe_timeout(&ring, &cqe, &ts);

	CHECKF(r == 0, "wait: %d", r);
	r = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	return r;
}

static int run(struct io_uring_sqe *sqe, bool async)
{
	if (async)
		io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
	CHECK(io_uring_submit(&ring) == 1);
	return done();
}

static void structs(void)
{
	for (int round = 0; round < 4; round++) {
		bool async = round & 1;
		char *path = mem + PT_MIB + 77;
		struct statx *sx = (void *)(mem + 3 * PT_MIB + 512);
		struct __kernel_timespec *ts = (void *)(mem + 5 * PT_MIB + 8);
		struct epoll_event *ev = (void *)(mem + 7 * PT_MIB);
		struct open_how *how = (void *)(mem + 9 * PT_MIB + 40);
		int fd, ep, p[2];

		pt_fill(mem, size, 1);
		strcpy(path, "/proc/self/status");
		memset(how, 0, sizeof(*how));
		*ts = (struct __kernel_timespec){ 0, 20000000 };
		*ev = (struct epoll_event){ .events = EPOLLIN, .data.u64 = 77 };
		out();
		struct io_uring_sqe *s = io_uring_get_sqe(&ring);
		io_uring_prep_openat2(s, AT_FDCWD, path, how);
		fd = run(s, async);
		CHECKF(fd >= 0, "openat2 %d", fd);
		out();
		s = io_uring_get_sqe(&ring);
		io_uring_prep_statx(s, AT_FDCWD, path, 0, STATX_ALL, sx);
		CHECK(run(s, async) == 0 && S_ISREG(sx->stx_mode));
		out();
		s = io_uring_get_sqe(&ring);
		io_uring_prep_timeout(s, ts, 0, 0);
		CHECK(run(s, false) == -ETIME);
		CHECK(pipe(p) == 0);
		ep = epoll_create1(0);
		out();
		s = io_uring_get_sqe(&ring);
		io_uring_prep_epoll_ctl(s, ep, p[0], EPOLL_CTL_ADD, ev);
		CHECK(run(s, async) == 0);
		CHECK(write(p[1], "x", 1) == 1);
		CHECK(epoll_wait(ep, ev, 1, 100) == 1 && ev->data.u64 == 77);
		close(ep);
		close(p[0]);
		close(p[1]);
		close(fd);
		pt_verify_at(mem + 10 * PT_MIB, size - 10 * PT_MIB, 1, 10 * PT_MIB / PT_PAGE);
	}
}

/* The event of a drop is raised by a worker of the kernel's; no hook sees the call. */
static void advise(void)
{
	struct pt_churn c;

	pt_churn_start(&c, 12 * PT_MIB);
	for (int round = 0; round < 6; round++) {
		size_t a = (1 + round) * PT_MIB + 3 * PT_PAGE, n = 6 * PT_MIB;
		struct io_uring_sqe *s = io_uring_get_sqe(&ring);

		pt_fill(mem, size, round);
		if (round & 1)
			out();
		io_uring_prep_madvise(s, mem + a, n, MADV_DONTNEED);
		CHECK(run(s, false) == 0);
		pt_verify_zero(mem + a, n);
		pt_verify(mem, a, round);
		pt_verify_at(mem + a + n, size - a - n, round, (a + n) / PT_PAGE);
		pt_fill_at(mem + a, n, 9, 0);
		s = io_uring_get_sqe(&ring);
		io_uring_prep_madvise(s, mem, size, MADV_PAGEOUT);
		CHECK(run(s, false) == 0);
		s = io_uring_get_sqe(&ring);
		io_uring_prep_madvise(s, mem, size, MADV_WILLNEED);
		CHECK(run(s, false) == 0);
		pt_verify_at(mem + a, n, 9, 0);
	}
	pt_churn_stop(&c);
}

static void vectors(void)
{
	int p[2], sv[2];

	CHECK(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	CHECK(fcntl(p[0], F_SETPIPE_SZ, PT_MIB) > 0);
	for (int round = 0; round < 4; round++) {
		bool async = round & 1;
		struct iovec *v = (void *)(mem + 2 * PT_MIB + 64), *w = (void *)(mem + 3 * PT_MIB);
		struct msghdr *m = (void *)(mem + 4 * PT_MIB + 8);
		struct io_uring_sqe *s;
		int r;

		pt_fill(mem, size, round);
		for (int i = 0; i < 8; i++) {
			v[i] = (struct iovec){ mem + (8 + i) * PT_MIB, 8 * PT_PAGE };
			w[i] = (struct iovec){ mem + (20 + i) * PT_MIB, 8 * PT_PAGE };
		}
		out();
		s = io_uring_get_sqe(&ring);
		io_uring_prep_writev(s, p[1], v, 8, 0);
		CHECK((r = run(s, async)) == 64 * (int)PT_PAGE);
		out();
		s = io_uring_get_sqe(&ring);
		io_uring_prep_readv(s, p[0], w, 8, 0);
		CHECK((r = run(s, async)) == 64 * (int)PT_PAGE);
		for (int i = 0; i < 8; i++)
			pt_verify_at(mem + (20 + i) * PT_MIB, 8 * PT_PAGE, round,
				     (8 + i) * PT_MIB / PT_PAGE);
		*m = (struct msghdr){ .msg_iov = v, .msg_iovlen = 2 };
		out();
		s = io_uring_get_sqe(&ring);
		io_uring_prep_sendmsg(s, sv[0], m, 0);
		CHECK(run(s, async) == 16 * (int)PT_PAGE);
		m->msg_iov = w;
		out();
		/* waits for more than there is, while its structures go out */
		s = io_uring_get_sqe(&ring);
		io_uring_prep_recvmsg(s, sv[1], m, MSG_WAITALL);
		m->msg_iovlen = 4;
		if (async)
			io_uring_sqe_set_flags(s, IOSQE_ASYNC);
		CHECK(io_uring_submit(&ring) == 1);
		out();
		CHECK(write(sv[0], mem + 16 * PT_MIB, 16 * PT_PAGE) == 16 * (ssize_t)PT_PAGE);
		CHECK((r = done()) == 32 * (int)PT_PAGE);
		for (int i = 0; i < 2; i++)
			pt_verify_at(mem + (20 + i) * PT_MIB, 8 * PT_PAGE, round,
				     (8 + i) * PT_MIB / PT_PAGE);
		for (int i = 2; i < 4; i++)
			pt_verify_at(mem + (20 + i) * PT_MIB, 8 * PT_PAGE, round,
				     16 * PT_MIB / PT_PAGE + 8 * (i - 2));
	}
}

/* Buffers given to the kernel: a pinned ring in swapped memory, the buffers in it as well. */
static void bufring(void)
{
	enum { N = 64, LEN = 8192 };
	struct io_uring_buf_reg reg = { 0 };
	struct io_uring_buf_ring *br = (void *)(mem + 6 * PT_MIB);
	int sv[2], r;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv) == 0);
	pt_fill(mem, size, 1);
	memset(br, 0, N * sizeof(struct io_uring_buf));
	out();
	reg.ring_addr = (u64)br;
	reg.ring_entries = N;
	reg.bgid = 3;
	r = io_uring_register_buf_ring(&ring, &reg, 0);
	if (r) {
		fprintf(stderr, "no buffer rings: %d\n", r);
		exit(77);
	}
	for (int round = 0; round < 4; round++) {
		out();
		for (int i = 0; i < N; i++)
			io_uring_buf_ring_add(br, mem + 10 * PT_MIB + (size_t)i * 3 * LEN, LEN, i,
					      N - 1, i);
		io_uring_buf_ring_advance(br, N);
		for (int i = 0; i < N; i++) {
			struct io_uring_sqe *s = io_uring_get_sqe(&ring);

			io_uring_prep_recv(s, sv[1], NULL, LEN, 0);
			s->flags |= IOSQE_BUFFER_SELECT;
			s->buf_group = 3;
			CHECK(io_uring_submit(&ring) == 1);
			if (i == 20)
				out();
			CHECK(write(sv[0], mem + 20 * PT_MIB + i * LEN, LEN) == LEN);
			struct io_uring_cqe *cqe;
			struct __kernel_timespec ts = { 20, 0 };

			CHECK(io_uring_wait_cqe_timeout(&ring, &cqe, &ts) == 0);
			CHECKF(cqe->res == LEN && (cqe->flags & IORING_CQE_F_BUFFER), "res %d",
			       cqe->res);
			unsigned id = cqe->flags >> IORING_CQE_BUFFER_SHIFT;
			io_uring_cqe_seen(&ring, cqe);
			CHECK(id < N);
			pt_verify_at(mem + 10 * PT_MIB + (size_t)id * 3 * LEN, LEN, 1,
				     (20 * PT_MIB + i * LEN) / PT_PAGE);
		}
	}
	pt_verify_at(mem + 20 * PT_MIB, 4 * PT_MIB, 1, 20 * PT_MIB / PT_PAGE);
	pt_verify(mem, 6 * PT_MIB, 1);
}

/* The rings themselves in the program's memory: the kernel and we must go on seeing one page. */
#ifndef IORING_SETUP_NO_MMAP
#define IORING_SETUP_NO_MMAP (1U << 14)
#endif

static void nommap(void)
{
	struct io_uring_params p = { 0 };
	char *cq = mem + 8 * PT_MIB, *sq = mem + 12 * PT_MIB;
	struct io_uring_sqe *sqes = (void *)sq;
	volatile u32 *sq_tail, *sq_array, *cq_head, *cq_tail;
	struct io_uring_cqe *cqes;
	u32 mask, cmask, done_ = 0;
	int fd, pp[2];

	CHECK(pipe(pp) == 0);
	pt_fill(mem, size, 1);
	memset(cq, 0, PT_PAGE);
	memset(sq, 0, PT_PAGE);
	out();
	p.flags = IORING_SETUP_NO_MMAP;
	((u64 *)&p.sq_off)[4] = (u64)sq; /* sq_off.user_addr */
	((u64 *)&p.cq_off)[4] = (u64)cq;
	fd = syscall(SYS_io_uring_setup, 16, &p);
	if (fd < 0) {
		fprintf(stderr, "no IORING_SETUP_NO_MMAP: %s\n", strerror(errno));
		exit(77);
	}
	sq_tail = (u32 *)(cq + p.sq_off.tail);
	sq_array = (u32 *)(cq + p.sq_off.array);
	cq_head = (u32 *)(cq + p.cq_off.head);
	cq_tail = (u32 *)(cq + p.cq_off.tail);
	cqes = (void *)(cq + p.cq_off.cqes);
	mask = *(u32 *)(cq + p.sq_off.ring_mask);
	cmask = *(u32 *)(cq + p.cq_off.ring_mask);
	for (u32 i = 0; i < 100; i++) {
		u32 t = *sq_tail;

		if (i % 8 == 0)
			out();
		memset(&sqes[t & mask], 0, sizeof(*sqes));
		io_uring_prep_write(&sqes[t & mask], pp[1], mem + (i % 7) * PT_MIB, PT_PAGE, 0);
		sqes[t & mask].user_data = i;
		sq_array[t & mask] = t & mask;
		__atomic_store_n(sq_tail, t + 1, __ATOMIC_RELEASE);
		CHECK(syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
		CHECKF(__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == done_ + 1,
		       "request %u: completions %u: the kernel's ring is another page", i, *cq_tail);
		CHECKF(cqes[done_ & cmask].user_data == i &&
			       cqes[done_ & cmask].res == (int)PT_PAGE,
		       "request %u: res %d", i, cqes[done_ & cmask].res);
		done_++;
		__atomic_store_n(cq_head, done_, __ATOMIC_RELEASE);
		CHECK(read(pp[0], mem + 20 * PT_MIB, PT_PAGE) == (ssize_t)PT_PAGE);
		pt_verify_at(mem + 20 * PT_MIB, PT_PAGE, 1, (i % 7) * PT_MIB / PT_PAGE);
	}
	close(fd);
	pt_press();
	pt_fill(mem, size, 2);
	out();
	/* A ring is taken down some time after close, and the kernel writes to it once more. */
	usleep(200000);
	pt_fill_page(cq, 2, 8 * PT_MIB / PT_PAGE);
	pt_fill_page(sq, 2, 12 * PT_MIB / PT_PAGE);
	out();
	pt_verify(mem, size, 2);
}

static void sendzc(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int ls = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	static char buf[PT_PAGE] __attribute__((aligned(4096)));
	socklen_t len = sizeof(a);

	CHECK(bind(ls, (void *)&a, sizeof(a)) == 0 && listen(ls, 1) == 0);
	CHECK(getsockname(ls, (void *)&a, &len) == 0 && connect(c, (void *)&a, len) == 0);
	s = accept(ls, NULL, NULL);
	CHECK(s >= 0);
	for (int round = 0; round < 4; round++) {
		size_t n = 128 * 1024;
		struct io_uring_sqe *q = io_uring_get_sqe(&ring);
		struct io_uring_cqe *cqe;
		struct __kernel_timespec ts = { 20, 0 };
		int left = 1;

		pt_fill(mem, size, round);
		out();
		io_uring_prep_send(q, c, mem + 5 * PT_MIB, n, MSG_WAITALL);
		q->opcode = 47; /* IORING_OP_SEND_ZC, Linux 6.0 */
		CHECK(io_uring_submit(&ring) == 1);
		out();
		for (size_t d = 0; d < n; d += PT_PAGE) {
			size_t got = 0;

			while (got < PT_PAGE) {
				ssize_t r = recv(s, buf + got, PT_PAGE - got, MSG_DONTWAIT);

				if (r < 0 && errno == EAGAIN) {
					usleep(1000);
					if (io_uring_peek_cqe(&ring, &cqe) == 0 &&
					    cqe->res == -EINVAL)
						exit(77);
					continue;
				}
				CHECK(r > 0);
				got += r;
			}
			pt_verify_at(buf, PT_PAGE, round, (5 * PT_MIB + d) / PT_PAGE);
		}
		while (left) { /* the answer, and that the pages are free */
			CHECK(io_uring_wait_cqe_timeout(&ring, &cqe, &ts) == 0);
			if (cqe->flags & (1U << 3)) /* NOTIF */
				left--;
			else {
				CHECKF(cqe->res == (int)n, "send_zc %d", cqe->res);
				if (!(cqe->flags & IORING_CQE_F_MORE))
					left--;
			}
			io_uring_cqe_seen(&ring, cqe);
		}
		pt_verify(mem, size, round);
	}
}

/* Registered buffers in huge pages, of which parts go out and parts are dropped. */
static void hugefixed(void)
{
	char *h = pt_map_huge_aligned(8 * PT_MIB);
	struct iovec v[4];
	int p[2];

	CHECK(pipe(p) == 0);
	CHECK(madvise(h, 8 * PT_MIB, MADV_HUGEPAGE) == 0);
	pt_fill(h, 8 * PT_MIB, 1);
	pt_evict_share(h, 8 * PT_MIB, 30);
	for (int i = 0; i < 4; i++)
		v[i] = (struct iovec){ h + i * PT_HUGE + 512 * 1024, 65536 };
	CHECK(io_uring_register_buffers(&ring, v, 4) == 0);
	for (int round = 0; round < 3; round++) {
		pt_fill(h, 8 * PT_MIB, 2 + round);
		pt_press();
		pt_press();
		for (int i = 0; i < 4; i++) {
			struct io_uring_sqe *s = io_uring_get_sqe(&ring);
			size_t first = (i * PT_HUGE + 512 * 1024) / PT_PAGE;

			io_uring_prep_write_fixed(s, p[1], v[i].iov_base, 16384, 0, i);
			CHECK(run(s, false) == 16384);
			CHECK(read(p[0], mem, 16384) == 16384);
			pt_verify_at(mem, 16384, 2 + round, first);
			/* and into it */
			pt_fill_at(mem, 16384, 50 + round, first);
			CHECK(write(p[1], mem, 16384) == 16384);
			s = io_uring_get_sqe(&ring);
			io_uring_prep_read_fixed(s, p[0], v[i].iov_base, 16384, 0, i);
			CHECK(run(s, false) == 16384);
			pt_verify_at(v[i].iov_base, 16384, 50 + round, first);
			pt_fill_at(v[i].iov_base, 16384, 2 + round, first);
		}
		pt_verify(h, 8 * PT_MIB, 2 + round);
	}
	CHECK(io_uring_unregister_buffers(&ring) == 0);
	pt_evict(h, 8 * PT_MIB);
	pt_verify(h, 8 * PT_MIB, 4);
}

/* A fork while buffers are registered: the parent's stay its own. */
static void forked(void)
{
	struct iovec v = { mem + 4 * PT_MIB, 65536 };
	int p[2];

	CHECK(pipe(p) == 0);
	pt_fill(mem, size, 1);
	out();
	CHECK(io_uring_register_buffers(&ring, &v, 1) == 0);
	for (int round = 0; round < 3; round++) {
		struct io_uring_sqe *s = io_uring_get_sqe(&ring);
		pid_t pid;

		pt_fill(mem, size, 10 + round);
		io_uring_prep_read_fixed(s, p[0], v.iov_base, 16384, 0, 0);
		CHECK(io_uring_submit(&ring) == 1);
		out();
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			pt_verify(mem, size, 10 + round);
			pt_fill(mem, size, 99);
			pt_evict_share(mem, size, 30);
			pt_verify(mem, size, 99);
			_exit(0);
		}
		out();
		pt_fill_at(mem + 20 * PT_MIB, 16384, 70, 0);
		CHECK(write(p[1], mem + 20 * PT_MIB, 16384) == 16384);
		CHECK(done() == 16384);
		pt_verify_at(v.iov_base, 16384, 70, 0);
		pt_reap(pid);
		out();
		pt_verify_at(v.iov_base, 16384, 70, 0);
		pt_verify(mem, 4 * PT_MIB, 10 + round);
	}
	CHECK(io_uring_unregister_buffers(&ring) == 0);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	int r = io_uring_queue_init(128, &ring, 0);

	if (r == -ENOSYS || r == -EPERM) {
		fprintf(stderr, "no io_uring here: %s\n", strerror(-r));
		return 77;
	}
	CHECKF(r == 0, "io_uring_queue_init %d", r);
	mem = pt_map_huge_aligned(size);
	PT_RUN(how, structs);
	PT_RUN(how, advise);
	PT_RUN(how, vectors);
	PT_RUN(how, bufring);
	PT_RUN(how, nommap);
	PT_RUN(how, sendzc);
	PT_RUN(how, hugefixed);
	PT_RUN(how, forked);
	return 2;
}
