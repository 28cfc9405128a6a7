/* SPDX-License-Identifier: MIT */
// LIBS:
/*
 * callcost - nanoseconds a system call, of kinds that pswap hooks and of others: run it with and
 * without the preloaded library and subtract.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

#define MEASURE(name, call)                                                     \
	do {                                                                    \
		double best = 1e18;                                             \
		for (int r = 0; r < 9; r++) {                                   \
			double t = now();                                       \
			for (int i = 0; i < n; i++)                             \
				(void)!(long)(call);                            \
			t = (now() - t) / n;                                    \
			best = t < best ? t : best;                             \
		}                                                               \
		printf("%-28s %8.1f ns\n", name, best);                         \
	} while (0)

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 200000;

	MEASURE("madvise (hook_vm)", madvise((void *)1, 1, MADV_NORMAL));
	MEASURE("syscall(SYS_madvise)", syscall(SYS_madvise, 1, 1, MADV_NORMAL));
	MEASURE("syscall(SYS_getppid)", syscall(SYS_getppid));
	MEASURE("getppid (not hooked)", getppid());
	MEASURE("prctl (hook_pre)", prctl(PR_GET_DUMPABLE));
	return 0;
}
