/* SPDX-License-Identifier: MIT */
/*
 * vmsplice - pages lie in a pipe by reference while pressure takes them out of the program (FACTS
 * trap 16: the kernel lets such a page be moved; whoever then writes into that frame changes the
 * pipe).
 *
 * What the reader may get: with memory untouched, unmapped, or zapped after vmsplice: the old
 * contents. After the program rewrote a page: natively the new contents, since it is the same page;
 * a copy that was swapped out and in is another page, so old or new are right, each page as a
 * whole, and never anything else.
 *
 *     vmsplice 4k|huge|gift
 */
#include "pt.h"

#include <sys/uio.h>

#define PIPES 8
#define CHUNK PT_MIB
static int pipes[PIPES][2];
static char *mem;
static char buf[CHUNK];
static unsigned flags;

static void splice_in(int i, void *addr)
{
	size_t done = 0;

	while (done < CHUNK) {
		struct iovec iov = { (char *)addr + done, CHUNK - done };
		ssize_t n = vmsplice(pipes[i][1], &iov, 1, flags | SPLICE_F_NONBLOCK);

		CHECKF(n > 0, "vmsplice %zd after %zu", n, done);
		done += n;
	}
}

static void drain(int i)
{
	size_t done = 0;

	while (done < CHUNK) {
		ssize_t n = read(pipes[i][0], buf + done, CHUNK - done);

		CHECK(n > 0);
		done += n;
	}
}

int main(int argc, char **argv)
{
	bool huge = argc > 1 && !strcmp(argv[1], "huge");
	size_t size = 48 * PT_MIB, at;
	int i;

	if (argc > 1 && !strcmp(argv[1], "gift"))
		flags = SPLICE_F_GIFT;
	mem = pt_map_huge_aligned(size);
	if (huge)
		CHECK(madvise(mem, size, MADV_HUGEPAGE) == 0);
	for (i = 0; i < PIPES; i++) {
		CHECK(pipe(pipes[i]) == 0);
		CHECKF(fcntl(pipes[i][1], F_SETPIPE_SZ, CHUNK) >= (int)CHUNK, "pipe size");
	}
	for (int round = 0; round < 3; round++) {
		u64 old = 10 * round + 1, new = old + 1;

		pt_fill(mem, size, old);
		if (round == 2) /* from memory that was swapped before */
			pt_evict(mem, size);
		/* pipe i: pages of mem at 5 MiB * i + 1 MiB */
		for (i = 0; i < PIPES; i++) {
			at = (5 * i + 1) * PT_MIB;
			splice_in(i, mem + at);
		}
		pt_evict_share(mem, size, 30);
		/* 0-1: left alone; 2: rewritten; 3: read back, then rewritten after more pressure;
		 * 4: zapped, new contents; 5: unmapped and mapped anew; 6: moved; 7: rewritten,
		 * evicted */
		at = (5 * 2 + 1) * PT_MIB;
		pt_fill_at(mem + at, CHUNK, new, at / PT_PAGE);
		at = (5 * 3 + 1) * PT_MIB;
		pt_verify_at(mem + at, CHUNK, old, at / PT_PAGE);
		pt_press();
		pt_fill_at(mem + at, CHUNK, new, at / PT_PAGE);
		at = (5 * 4 + 1) * PT_MIB;
		CHECK(madvise(mem + at, CHUNK, MADV_DONTNEED) == 0);
		pt_verify_zero(mem + at, CHUNK);
		pt_fill_at(mem + at, CHUNK, new, at / PT_PAGE);
		at = (5 * 5 + 1) * PT_MIB;
		CHECK(munmap(mem + at, CHUNK) == 0);
		CHECK(mmap(mem + at, CHUNK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mem + at);
		pt_fill_at(mem + at, CHUNK, new, at / PT_PAGE);
		at = (5 * 6 + 1) * PT_MIB;
		char *to = pt_map(CHUNK);
		CHECK(mremap(mem + at, CHUNK, CHUNK, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
		CHECK(mmap(mem + at, CHUNK, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mem + at);
		pt_verify_at(to, CHUNK, old, at / PT_PAGE);
		at = (5 * 7 + 1) * PT_MIB;
		pt_fill_at(mem + at, CHUNK, new, at / PT_PAGE);
		pt_evict_share(mem, size, 30);
		for (i = 0; i < PIPES; i++) {
			size_t first = (5 * i + 1) * PT_MIB / PT_PAGE;
			bool may_new = i == 2 || i == 3 || i == 7;

			drain(i);
			for (size_t k = 0; k < CHUNK / PT_PAGE; k++) {
				unsigned wo = pt_page_wrong(buf + k * PT_PAGE, old, first + k);
				unsigned wn = pt_page_wrong(buf + k * PT_PAGE, new, first + k);

				if (wo && !(may_new && !wn))
					DIE("round %d pipe %d page %zu: %u words are not the old, "
					    "%u "
					    "not the new contents%s",
					    round, i, k, wo, wn,
					    pt_page_zero(buf + k * PT_PAGE) ? ", all zero" : "");
			}
		}
		/* and the program's own view */
		for (i = 0; i < PIPES; i++) {
			at = (5 * i + 1) * PT_MIB;
			if (i == 6)
				pt_verify_zero(mem + at, CHUNK);
			else
				pt_verify_at(mem + at, CHUNK, i < 2 ? old : new, at / PT_PAGE);
		}
		pt_verify_at(to, CHUNK, old, 31 * PT_MIB / PT_PAGE);
		CHECK(munmap(to, CHUNK) == 0);
		pt_verify_at(mem + 41 * PT_MIB, size - 41 * PT_MIB, old, 41 * PT_MIB / PT_PAGE);
	}
	pt_say("vmsplice done");
	return 0;
}
