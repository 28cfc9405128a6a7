/* SPDX-License-Identifier: MIT */
// LIBS: -luring
/*
 * uring - io_uring requests that are pending into (or out of) memory that pressure evicts
 * meanwhile. Registered buffers are pinned: the device writes into the page, whatever became of the
 * mapping (FACTS trap 13: write-protect, copy, drop loses the new bytes); plain buffers are faulted
 * in when the data comes.
 *
 *     uring fixed|plain|async|sqpoll|write|churn
 */
#include "pt.h"

#include <liburing.h>
#include <sys/uio.h>

#define N   64
#define BUF 16384UL
static int pipes[N][2];
static char *mem;
static const size_t size = 32 * PT_MIB;
static struct io_uring ring;

/* Request i uses the buffer at this offset: scattered, so that neighbours are ordinary memory. */
static size_t at(int i)
{
	return (size_t)i * (size / N) + 3 * PT_PAGE;
}

static void reap(int n, const char *what)
{
	struct io_uring_cqe *cqe;
	struct __kernel_timespec ts = { 20, 0 };

	for (int i = 0; i < n; i++) {
		int r = io_uring_wait_cqe_timeout(&ring, &cqe, &ts);

		CHECKF(r == 0, "%s: wait %d of %d: %d", what, i, n, r);
		CHECKF(cqe->res == (int)BUF, "%s: request %d: res %d", what, (int)cqe->user_data,
		       cqe->res);
		io_uring_cqe_seen(&ring, cqe);
	}
}

static void reads(bool fixed, bool async, int rounds)
{
	static char data[BUF];
	int r;

	for (int round = 0; round < rounds; round++) {
		u64 old = 100 + 10 * round, new = old + 1;

		pt_fill(mem, size, old);
		if (round & 1)
			pt_evict_share(mem, size, 30);
		for (int i = 0; i < N; i++) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			CHECK(sqe);
			if (fixed)
				io_uring_prep_read_fixed(sqe, pipes[i][0], mem + at(i), BUF, 0, i);
			else
				io_uring_prep_read(sqe, pipes[i][0], mem + at(i), BUF, 0);
			sqe->user_data = i;
			if (async)
				io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
		}
		r = io_uring_submit(&ring);
		CHECKF(r == N, "submit %d", r);
		pt_evict_share(mem, size, 30);
		for (int i = 0; i < N; i++) {
			pt_fill_at(data, BUF, new, at(i) / PT_PAGE);
			CHECK(write(pipes[i][1], data, BUF) == (ssize_t)BUF);
		}
		if (round == 2)
			pt_press(); /* completes under pressure */
		reap(N, fixed ? "read_fixed" : "read");
		for (int i = 0; i < N; i++) {
			size_t a = at(i), b = i + 1 < N ? at(i + 1) : size;

			pt_verify_at(mem + a, BUF, new, a / PT_PAGE);
			pt_verify_at(mem + a + BUF, b - a - BUF, old, (a + BUF) / PT_PAGE);
		}
		pt_evict_share(mem, size, 30);
		for (int i = 0; i < N; i++)
			pt_verify_at(mem + at(i), BUF, new, at(i) / PT_PAGE);
	}
}

static void writes(void)
{
	static char data[BUF];

	for (int round = 0; round < 3; round++) {
		u64 old = 200 + round;

		pt_fill(mem, size, old);
		pt_evict(mem, size);
		for (int i = 0; i < N; i++) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			io_uring_prep_write_fixed(sqe, pipes[i][1], mem + at(i), BUF, 0, i);
			sqe->user_data = i;
		}
		CHECK(io_uring_submit(&ring) == N);
		reap(N, "write_fixed");
		for (int i = 0; i < N; i++) {
			size_t done = 0;

			while (done < BUF) {
				ssize_t n = read(pipes[i][0], data + done, BUF - done);

				CHECK(n > 0);
				done += n;
			}
			pt_verify_at(data, BUF, old, at(i) / PT_PAGE);
		}
		pt_verify(mem, size, old);
	}
}

static void register_buffers(void)
{
	struct iovec iov[N];

	for (int i = 0; i < N; i++)
		iov[i] = (struct iovec){ mem + at(i), BUF };
	CHECK(io_uring_register_buffers(&ring, iov, N) == 0);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "fixed";
	struct io_uring_params params = { 0 };
	int r;

	if (!strcmp(how, "sqpoll")) {
		params.flags = IORING_SETUP_SQPOLL;
		params.sq_thread_idle = 50;
	}
	r = io_uring_queue_init_params(2 * N, &ring, &params);
	if (r == -ENOSYS || r == -EPERM) {
		fprintf(stderr, "no io_uring here: %s\n", strerror(-r));
		return 77;
	}
	CHECKF(r == 0, "io_uring_queue_init %d", r);
	for (int i = 0; i < N; i++)
		CHECK(pipe(pipes[i]) == 0);
	mem = pt_map(size);
	pt_fill(mem, size, 1);
	pt_evict(mem, size); /* registered from swapped memory */
	if (!strcmp(how, "fixed")) {
		register_buffers();
		reads(true, false, 3);
	} else if (!strcmp(how, "plain")) {
		reads(false, false, 3);
	} else if (!strcmp(how, "async")) {
		reads(false, true, 3);
	} else if (!strcmp(how, "sqpoll")) {
		register_buffers();
		reads(true, false, 2);
		reads(false, false, 2);
	} else if (!strcmp(how, "write")) {
		register_buffers();
		writes();
	} else if (!strcmp(how,
			   "churn")) { /* register and unregister while memory comes and goes */
		struct pt_churn c;

		pt_churn_start(&c, 16 * PT_MIB);
		for (int i = 0; i < 4; i++) {
			register_buffers();
			reads(true, false, 1);
			CHECK(io_uring_unregister_buffers(&ring) == 0);
			pt_fill(mem, size, i);
			pt_evict_share(mem, size, 30);
			pt_verify(mem, size, i);
		}
		pt_churn_stop(&c);
	} else {
		return 2;
	}
	io_uring_queue_exit(&ring);
	pt_say("uring %s done", how);
	return 0;
}
