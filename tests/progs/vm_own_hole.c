// SPDX-License-Identifier: MIT
/*
 * vm_own_hole - what a program with one thread unmaps stays free until it maps there again, failing
 * calls change nothing, and populated memory is gated like any other.
 *
 *     vm_own_hole fixed|unmap|noreplace|hint|mremap|populate|malloc
 *     vm_own_hole peer RESULT      (a process that shares the memory and outlives the program)
 */
#include "pt.h"

#include <sched.h>

#define N (64 * PT_MIB)
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

/* A reservation with its middle given back, and more memory than the limit elsewhere. */
static char *hole(char **q)
{
	char *p = mmap(NULL, 40 * PT_MIB, RW, ANON | MAP_NORESERVE, -1, 0);

	CHECK(p != MAP_FAILED);
	CHECK(munmap(p + 4 * PT_MIB, 32 * PT_MIB) == 0);
	*q = mmap(NULL, N, RW, ANON, -1, 0);
	CHECK(*q != MAP_FAILED);
	pt_fill(*q, N, 1);
	return p;
}

static char *shared;
static const char *result;

static int peer(void *arg)
{
	int fd;

	(void)arg;
	while (getppid() != 1 && kill(getppid(), 0) == 0 && getppid() == *(pid_t *)shared)
		usleep(10000);
	usleep(300000);
	pt_verify(shared + PT_PAGE, N - PT_PAGE, 4);
	fd = open(result, O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0 && write(fd, "ok", 2) == 2);
	_exit(0);
}

static void outlived(const char *file)
{
	static char stack[65536] __attribute__((aligned(16)));

	result = file;
	shared = pt_map(N);
	*(pid_t *)shared = getpid();
	pt_fill(shared + PT_PAGE, N - PT_PAGE, 4);
	CHECK(clone(peer, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL) > 0);
	_exit(0);
}

static void failing_mremap(void)
{
	char *p = pt_map(N), *to = pt_map(N);

	pt_fill(p, N, 3);
	pt_press();
	CHECK(mremap(p, N, N / 2, MREMAP_MAYMOVE | MREMAP_FIXED, to + 1) == MAP_FAILED);
	CHECK(mremap(p, N, N / 2, MREMAP_FIXED, to) == MAP_FAILED);
	CHECK(mremap(p, N, N / 2, MREMAP_MAYMOVE | MREMAP_FIXED, p + PT_PAGE) == MAP_FAILED);
	pt_verify(p, N, 3);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "fixed";
	char *p, *q = NULL, *r;

	if (!strcmp(how, "peer")) {
		CHECK(argc > 2);
		outlived(argv[2]);
	} else if (!strcmp(how, "mremap")) {
		failing_mremap();
	} else if (!strcmp(how, "populate")) {
		p = mmap(NULL, 4 * N, RW, ANON | MAP_POPULATE, -1, 0);
		CHECK(p != MAP_FAILED);
		pt_verify_zero(p, 4 * N);
		pt_fill(p, N, 2);
		pt_verify(p, N, 2);
	} else if (!strcmp(how, "malloc")) {
		/* Small steps, each below what the engine looks at by itself. */
		for (int i = 0; i < 3200; i++) {
			char *m = malloc(65536);

			CHECK(m);
			memset(m, i, 65536);
		}
	} else {
		p = hole(&q);
		if (!strcmp(how, "unmap")) {
			CHECK(munmap(p, 40 * PT_MIB) == 0);
		} else {
			int flags = !strcmp(how, "fixed")	? MAP_FIXED
				    : !strcmp(how, "noreplace") ? MAP_FIXED_NOREPLACE
								: 0;

			r = mmap(p + 4 * PT_MIB, 32 * PT_MIB, RW, ANON | flags, -1, 0);
			CHECK(r == p + 4 * PT_MIB);
			pt_verify_zero(r, 32 * PT_MIB);
			pt_fill(r, 32 * PT_MIB, 2);
			pt_verify(r, 32 * PT_MIB, 2);
		}
		pt_verify(q, N, 1);
	}
	pt_say("%s", how);
	return 0;
}
