/* SPDX-License-Identifier: MIT */
/*
 * odirect - O_DIRECT reads and writes from and into swapped buffers: by pread and pwrite, by kernel
 * AIO (io_submit, pages pinned while the request is in flight), and from a second thread while the
 * first keeps memory moving.
 *
 *     odirect DIR
 */
#include "pt.h"

#include <linux/aio_abi.h>
#include <sys/uio.h>

static char *mem;
static const size_t size = 24 * PT_MIB;
static int fd;
#define BLOCK (256UL * 1024)

static void all_out(void)
{
	for (size_t o = 0; o < size; o += BLOCK)
		CHECK(pwrite(fd, mem + o, BLOCK, o) == (ssize_t)BLOCK);
}

static void all_in(void)
{
	for (size_t o = 0; o < size; o += BLOCK)
		CHECK(pread(fd, mem + o, BLOCK, o) == (ssize_t)BLOCK);
}

#define AIO 64
static void aio(bool write)
{
	static struct iocb cb[AIO];
	struct iocb *list[AIO];
	struct io_event ev[AIO];
	aio_context_t ctx = 0;
	struct timespec ts = { 20, 0 };
	size_t o = 0;

	CHECK(syscall(SYS_io_setup, AIO, &ctx) == 0);
	while (o < size) {
		int n = 0, got = 0;

		for (; n < AIO && o < size; n++, o += BLOCK) {
			memset(&cb[n], 0, sizeof(cb[n]));
			cb[n].aio_fildes = fd;
			cb[n].aio_lio_opcode = write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
			cb[n].aio_buf = (uintptr_t)(mem + o);
			cb[n].aio_nbytes = BLOCK;
			cb[n].aio_offset = o;
			list[n] = &cb[n];
		}
		CHECK(syscall(SYS_io_submit, ctx, n, list) == n);
		pt_press_n(8 * PT_MIB); /* while requests are in flight */
		while (got < n) {
			int k = syscall(SYS_io_getevents, ctx, 1, n - got, ev, &ts);

			CHECKF(k > 0, "io_getevents %d", k);
			for (int i = 0; i < k; i++)
				CHECKF(ev[i].res == (long long)BLOCK, "aio res %lld", ev[i].res);
			got += k;
		}
	}
	CHECK(syscall(SYS_io_destroy, ctx) == 0);
}

int main(int argc, char **argv)
{
	char path[300];
	struct pt_churn c;

	snprintf(path, sizeof(path), "%s/odirect.data", argc > 1 ? argv[1] : "/var/tmp");
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (fd < 0 && errno == EINVAL) {
		fprintf(stderr, "no O_DIRECT in %s\n", path);
		return 77;
	}
	CHECK(fd >= 0);
	CHECK(unlink(path) == 0);
	mem = pt_map(size);
	for (u64 v = 1; v < 4; v++) {
		pt_fill(mem, size, v);
		pt_evict(mem, size);
		all_out();
		pt_verify(mem, size, v);
		pt_fill(mem, size, 100 + v);
		pt_evict(mem, size);
		all_in();
		pt_verify(mem, size, v);
		pt_evict(mem, size);
		pt_verify(mem, size, v);
	}
	pt_churn_start(&c, 16 * PT_MIB);
	for (u64 v = 11; v < 13; v++) {
		pt_fill(mem, size, v);
		pt_evict_share(mem, size, 30);
		aio(true);
		pt_fill(mem, size, 100 + v);
		pt_evict_share(mem, size, 30);
		aio(false);
		pt_verify(mem, size, v);
	}
	pt_churn_stop(&c);
	pt_say("odirect done");
	return 0;
}
