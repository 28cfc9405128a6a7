/* SPDX-License-Identifier: MIT */
/*
 * store_file_io.c - transfers of the file store: io_uring, one ring a worker, or pread and pwrite
 * where the kernel refuses rings.  liburing's ring functions map memory and make system calls by
 * themselves: no malloc, no errno.
 */
#include "store_file_int.h"

#define RING_ENTRIES 128 /* more than can be queued: two halves, or the edges */
_Static_assert(RING_ENTRIES >= 2 * HALF_IOS && RING_ENTRIES >= 2 * MAX_RUNS, "ring size");

static void drop_direct(struct store_fd *f)
{
	long flags = sys_call3(SYS_fcntl, f->fd, F_GETFL, 0);

	relaxed_store(&f->direct, false);
	if (flags >= 0)
		sys_call3(SYS_fcntl, f->fd, F_SETFL, flags & ~O_DIRECT);
}

/* The part of a transfer from byte `done` on, in this thread. */
static int sync_io(struct io *io, u32 done)
{
	while (done < io->len) {
		u8 *buf = io->buf + done;
		off_t off = (off_t)(io->off + done);
		long n = io->write ? sys_pwrite(io->file->fd, buf, io->len - done, off) :
				     sys_pread(io->file->fd, buf, io->len - done, off);

		if (n > 0) {
			done += (u32)n;
		} else if (n == -EINVAL && relaxed_load(&io->file->direct)) {
			/* The device wants another alignment: the page cache takes any. */
			drop_direct(io->file);
		} else if (n != -EINTR && n != -EAGAIN) {
			/* 0: the file is shorter than we made it. */
			return n ? (int)n : -EIO;
		}
	}
	return 0;
}

static bool ring_open(struct file_store *fs, struct file_worker *w)
{
	int err = -ENOSYS;

	if (w->ring_state != RING_UNTRIED)
		return w->ring_state == RING_OK;
	if (!(fs->opt.flags & STORE_FILE_NO_URING))
		err = io_uring_queue_init(RING_ENTRIES, &w->ring, 0);
	if (!err) {
		/* A child opens its own. */
		io_uring_ring_dontfork(&w->ring);
		w->ring_state = RING_OK;
	} else {
		w->ring_state = RING_NONE;
	}
	return !err;
}

void file_io_close(struct file_worker *w)
{
	if (w->ring_state == RING_OK)
		io_uring_queue_exit(&w->ring);
	w->ring_state = RING_UNTRIED;
}

void file_io_add(struct file_store *fs, struct file_worker *w, unsigned group, const struct io *io)
{
	struct io_group *g = &w->groups[group];
	struct io_uring_sqe *sqe = NULL;
	struct io *own;

	ps_assert(g->nr < ARRAY_SIZE(g->io));
	own = &g->io[g->nr++];
	*own = *io;
	own->group = (u8)group;
	w->used = true;
	if (!relaxed_load(&io->file->direct))
		relaxed_add(&fs->cached_bytes, io->len);
	if (ring_open(fs, w))
		sqe = io_uring_get_sqe(&w->ring);
	if (!sqe) {
		own->res = sync_io(own, 0);
		return;
	}
	if (io->write)
		io_uring_prep_write(sqe, io->file->fd, io->buf, io->len, io->off);
	else
		io_uring_prep_read(sqe, io->file->fd, io->buf, io->len, io->off);
	io_uring_sqe_set_data(sqe, own);
	own->res = INT32_MIN; /* under way */
	g->in_flight++;
}

/* The ring has stopped working, which a kernel should not do: make what is open by hand, and no
 * more rings.  A transfer the kernel made as well was the same transfer. */
static void ring_broken(struct file_worker *w, int err)
{
	ps_log("file store: io_uring failed (error %d), going on without", (s64)err);
	io_uring_queue_exit(&w->ring);
	w->ring_state = RING_NONE;
	for (unsigned i = 0; i < ARRAY_SIZE(w->groups); i++) {
		struct io_group *g = &w->groups[i];

		for (unsigned j = 0; j < g->nr && g->in_flight; j++)
			if (g->io[j].res == INT32_MIN)
				g->io[j].res = sync_io(&g->io[j], 0);
		g->in_flight = 0;
	}
}

static void reap(struct file_worker *w)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&w->ring, &cqe)) {
		struct io *io = io_uring_cqe_get_data(cqe);

		w->groups[io->group].in_flight--;
		io->res = cqe->res;
		io_uring_cqe_seen(&w->ring, cqe);
		/* Anything but all of it is settled by a plain call, which also gives the error. */
		if (io->res == (int)io->len)
			io->res = 0;
		else
			io->res = sync_io(io, io->res > 0 ? (u32)io->res : 0);
	}
}

static void submit(struct file_worker *w, unsigned wait)
{
	int n = io_uring_submit_and_wait(&w->ring, wait);

	if (n < 0 && n != -EINTR && n != -EAGAIN && n != -EBUSY)
		ring_broken(w, n);
	else
		reap(w);
}

void file_io_submit(struct file_store *fs, struct file_worker *w)
{
	(void)fs;
	if (w->ring_state == RING_OK && io_uring_sq_ready(&w->ring))
		submit(w, 0);
}

void file_io_wait(struct file_store *fs, struct file_worker *w, unsigned group)
{
	(void)fs;
	while (w->groups[group].in_flight)
		submit(w, 1);
}
