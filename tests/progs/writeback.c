/* SPDX-License-Identifier: MIT */
/*
 * writeback - one process has much in the pool and sleeps; another then needs nearly all of the tree's
 * limit.  What the first has in memory has to go on to the file, and come back whole.
 */
#include "pt.h"

int main(void)
{
	size_t sleeper = 120 * PT_MIB, worker = 44 * PT_MIB;
	int go[2], ready[2];
	pid_t pid;
	char c, *p;

	CHECK(pipe(go) == 0 && pipe(ready) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		p = pt_map(sleeper);
		pt_fill(p, sleeper, 1);
		CHECK(write(ready[1], "x", 1) == 1);
		CHECK(read(go[0], &c, 1) == 1);
		pt_verify(p, sleeper, 1);
		pt_fill(p, sleeper, 2);
		pt_verify(p, sleeper, 2);
		CHECK(munmap(p, sleeper) == 0);
		_exit(0);
	}
	CHECK(read(ready[0], &c, 1) == 1);
	p = pt_map(worker);
	for (u64 v = 10; v < 22; v++) {
		pt_fill(p, worker, v);
		pt_verify(p, worker, v);
		usleep(100000);
	}
	CHECK(write(go[1], "x", 1) == 1);
	for (u64 v = 30; v < 34; v++) {
		pt_fill(p, worker, v);
		pt_verify(p, worker, v);
	}
	pt_reap(pid);
	pt_say("writeback done");
	return 0;
}
