/* SPDX-License-Identifier: MIT */
/*
 * core - memory for a core dump or a debugger to look at.
 *
 *     core abort|segv|quit|thread     says where its memory is, pushes it out, dies in this way
 *     core wait                       says so, pushes it out, and waits for a line on standard input;
 *                                     then checks everything
 *
 * "memory ADDRESS BYTES": page i holds the eight bytes i, little-endian, and 4088 bytes of i % 251.
 */
#include "pt.h"

#include <sys/resource.h>

#define N (24 * PT_MIB)

static unsigned char *mem;

static void fill(void)
{
	for (u64 i = 0; i < N / PT_PAGE; i++) {
		memset(mem + i * PT_PAGE, (int)(i % 251), PT_PAGE);
		memcpy(mem + i * PT_PAGE, &i, sizeof(i));
	}
}

static void check(void)
{
	for (u64 i = 0; i < N / PT_PAGE; i++) {
		const unsigned char *p = mem + i * PT_PAGE;

		CHECK(memcmp(p, &i, sizeof(i)) == 0 && p[8] == i % 251 && p[PT_PAGE - 1] == i % 251);
	}
}

static void *die(void *arg)
{
	(void)arg;
	*(volatile int *)8 = 1;
	return NULL;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	pthread_t t;
	char c;

	mem = pt_map(N);
	fill();
	pt_evict(mem, N);
	printf("memory %lx %lx\n", (unsigned long)mem, (unsigned long)N);
	fflush(stdout);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "segv"))
		die(NULL);
	if (!strcmp(how, "quit"))
		kill(getpid(), SIGQUIT);
	if (!strcmp(how, "thread")) {
		CHECK(pthread_create(&t, NULL, die, NULL) == 0);
		pthread_join(t, NULL);
	}
	if (strcmp(how, "wait"))
		DIE("core abort|segv|quit|thread|wait");
	CHECK(read(0, &c, 1) == 1);
	check();
	return 0;
}
