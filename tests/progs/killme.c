/* SPDX-License-Identifier: MIT */
/*
 * killme - a process and two children, all with swapped memory of their own, that wait to be killed. When
 * they are ready the parent says "ready PID PID PID" on standard output.
 */
#include "pt.h"

int main(void)
{
	size_t size = 60 * PT_MIB;
	int ready[2];
	pid_t pid[2];
	char *mem = pt_map(size), c;

	CHECK(pipe(ready) == 0);
	pt_fill(mem, size, 1);
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		CHECK(pid[i] >= 0);
		if (!pid[i]) {
			pt_verify(mem, size, 1);
			pt_fill(mem, size, 2 + i);
			CHECK(write(ready[1], "x", 1) == 1);
			for (;;)
				pause();
		}
		CHECK(read(ready[0], &c, 1) == 1);
	}
	printf("ready %d %d %d\n", (int)getpid(), (int)pid[0], (int)pid[1]);
	fflush(stdout);
	for (;;)
		pause();
}
