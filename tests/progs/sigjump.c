/* SPDX-License-Identifier: MIT */
/*
 * sigjump - a timer's handler that jumps out of whatever memory call is under way, as old ways of setting a time limit
 * do: what such a call leaves behind does not keep memory in.
 *
 *     sigjump MIB JUMPS
 */
#include "pt.h"
#include <setjmp.h>
#include <sys/time.h>

#define PIECE (2 * PT_MIB)

static sigjmp_buf jump;

static void on_alarm(int sig)
{
	(void)sig;
	siglongjmp(jump, 1);
}

static void calls_without_end(char *mem, size_t len)
{
	static size_t o;

	for (;; o = (o + PIECE) % len) {
		char *p = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *q;

		for (unsigned i = 0; i < 50; i++)
			mprotect(mem + o, PIECE, i % 2 ? PROT_READ | PROT_WRITE : PROT_READ);
		madvise(p, PIECE / 2, MADV_DONTNEED);
		q = mremap(p, PIECE, 2 * PIECE, MREMAP_MAYMOVE);
		if (q == MAP_FAILED)
			munmap(p, PIECE);
		else
			munmap(q, 2 * PIECE);
	}
}

int main(int argc, char **argv)
{
	struct itimerval it = { .it_value.tv_usec = 2000 };
	volatile int jumps = 0;
	size_t len;
	char *p;

	if (argc != 3)
		DIE("MIB JUMPS");
	len = (size_t)atol(argv[1]) * PT_MIB;
	p = pt_map_huge_aligned(len);
	pt_fill(p, len, 1);
	signal(SIGALRM, on_alarm);
	sigsetjmp(jump, 1);
	if (jumps++ < atoi(argv[2])) {
		CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
		calls_without_end(p, len);
	}
	/* What was left behind is seen for what it is; until then none of this memory could go again. */
	sleep(12);
	CHECK(mprotect(p, len, PROT_READ | PROT_WRITE) == 0);
	pt_verify(p, len, 1);
	pt_fill(p, len, 2);
	pt_verify(p, len, 2);
	puts("ok");
	return 0;
}
