// SPDX-License-Identifier: MIT
/*
 * affinity - faults scattered over memory that does not fit, one thread, so that the engine shares
 * a CPU with it (src/handoff.c); meanwhile looks at its CPUs, hands them on to children and
 * threads, and sets them: all must be as if nobody had touched them.
 *
 *     affinity [MIB]
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static cpu_set_t want;
static uint64_t x = 88172645463325252;
static char *mem;
static size_t pages;

static uint64_t rnd(void)
{
	x ^= x << 13;
	x ^= x >> 7;
	return x ^= x << 17;
}

static void fail(const char *what)
{
	fprintf(stderr, "affinity: %s\n", what);
	exit(1);
}

static void scatter(size_t n)
{
	while (n--) {
		size_t i = rnd() % pages;
		uint64_t *p = (uint64_t *)(mem + (i << 12));

		if (p[300] != i * 11)
			fail("wrong data");
		p[5]++;
	}
}

static void check(const char *what)
{
	cpu_set_t now;

	CPU_ZERO(&now);
	if (sched_getaffinity(0, sizeof(now), &now) || !CPU_EQUAL(&now, &want))
		fail(what);
}

/* A child that another program runs in: what it was given. */
static void run_child(void)
{
	int status;
	pid_t pid = vfork();

	if (pid == 0) {
		execl("/proc/self/exe", "affinity", "--child", NULL);
		_exit(2);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		fail("a vforked child has other CPUs");
}

static void *thread(void *arg)
{
	(void)arg;
	check("a thread has other CPUs");
	scatter(2000);
	return NULL;
}

int main(int argc, char **argv)
{
	size_t mib = argc > 1 && argv[1][0] != '-' ? strtoul(argv[1], NULL, 0) : 96;

	CPU_ZERO(&want);
	if (argc > 1 && strcmp(argv[1], "--child") == 0) {
		const char *n = getenv("AFFINITY_CPUS");

		sched_getaffinity(0, sizeof(want), &want);
		return !n || CPU_COUNT(&want) != atoi(n);
	}
	sched_getaffinity(0, sizeof(want), &want);
	{
		char n[16];

		snprintf(n, sizeof(n), "%d", CPU_COUNT(&want));
		setenv("AFFINITY_CPUS", n, 1);
	}
	pages = mib << 8;
	mem = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		fail("mmap");
	for (size_t i = 0; i < pages; i++) {
		uint64_t *p = (uint64_t *)(mem + (i << 12));

		for (int k = 0; k < 128; k++)
			p[k] = rnd();
		p[300] = i * 11;
	}
	for (int round = 0; round < 6; round++) {
		pthread_t t;
		pid_t pid;
		int status;

		scatter(8000);
		check("the CPUs changed");
		scatter(8000);
		run_child();
		scatter(8000);
		pid = fork();
		if (pid == 0) {
			check("a forked child has other CPUs");
			scatter(500);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			fail("the forked child failed");
		scatter(8000);
		if (pthread_create(&t, NULL, thread, NULL))
			fail("pthread_create");
		scatter(2000);
		pthread_join(t, NULL);
		if (round == 3) {
			/* Its own wish stays. */
			for (int c = CPU_SETSIZE - 1; c >= 0; c--)
				if (CPU_ISSET(c, &want)) {
					CPU_ZERO(&want);
					CPU_SET(c, &want);
					break;
				}
			if (sched_setaffinity(0, sizeof(want), &want))
				fail("sched_setaffinity");
			setenv("AFFINITY_CPUS", "1", 1);
		}
	}
	puts("affinity: all right");
	return 0;
}
