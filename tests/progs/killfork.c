/* SPDX-License-Identifier: MIT */
/*
 * killfork - a program that is killed, or whose other thread execs or exits, while it forks.
 *
 *     killfork wait           forks until it is killed
 *     killfork exec|exit USEC a thread forks; after so long the first one execs or exits
 *     killfork first USEC     the first thread forks, another execs
 */
#include "pt.h"

static void *forker(void *arg)
{
	(void)arg;
	for (;;) {
		pid_t c = fork();

		if (!c)
			_exit(0);
		waitpid(c, NULL, 0);
	}
	return NULL;
}

static void *execer(void *usec)
{
	usleep((useconds_t)(uintptr_t)usec);
	execl("/proc/self/exe", "killfork", "done", NULL);
	DIE("execl");
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";
	useconds_t usec = argc > 2 ? (useconds_t)atoi(argv[2]) : 0;
	pthread_t t;
	char *p;

	if (!strcmp(how, "done")) {
		/* For long enough to see whether the engine of before the exec goes. */
		usleep(1000000);
		return 0;
	}
	p = pt_map(40 * PT_MIB);
	pt_fill(p, 40 * PT_MIB, 1);
	CHECK(write(1, "ready\n", 6) == 6);
	if (!strcmp(how, "wait"))
		forker(NULL);
	if (!strcmp(how, "first")) {
		CHECK(pthread_create(&t, NULL, execer, (void *)(uintptr_t)usec) == 0);
		forker(NULL);
	}
	CHECK(pthread_create(&t, NULL, forker, NULL) == 0);
	if (!strcmp(how, "exec"))
		execer((void *)(uintptr_t)usec);
	usleep(usec);
	exit(0);
}
