/* SPDX-License-Identifier: MIT */
/*
 * reaper - a process that adopts orphans, with memory that is swapped: wait() finds its children, and the
 * orphans that are left to it, and ends when there are none; it must not find what swaps the memory.
 *
 *     reaper self       PR_SET_CHILD_SUBREAPER before there is anything to swap
 *     reaper late       ... after
 *     reaper init       process 1 of a pid namespace
 */
#include "pt.h"

#include <sched.h>
#include <sys/prctl.h>

static char *mem;
static const size_t size = 24 * PT_MIB;

static void no_children(const char *when)
{
	pid_t r = waitpid(-1, NULL, WNOHANG);

	CHECKF(r == -1 && errno == ECHILD, "%s: waitpid says %d", when, (int)r);
}

static void swapped(u64 tag)
{
	pt_fill(mem, size, tag);
	pt_evict(mem, size);
	pt_verify(mem, size, tag);
}

static void adopt(void)
{
	_Atomic pid_t *orphan = mmap(NULL, PT_PAGE, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool seen_child = false, seen_orphan = false;
	pid_t child, parent, r;
	int st;

	CHECK(orphan != MAP_FAILED);
	no_children("at first");
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		swapped(2);
		no_children("in the child");
		parent = getpid();
		child = fork();
		CHECK(child >= 0);
		if (!child) {
			while (getppid() == parent)
				usleep(1000);
			pt_verify(mem, size, 2);
			swapped(3);
			no_children("in the orphan");
			_exit(0);
		}
		atomic_store(orphan, child);
		_exit(0);
	}
	/* An engine ends a moment after its program, as an orphan: it may be found then, not before. */
	while ((r = waitpid(-1, &st, 0)) > 0) {
		if (r == child || r == atomic_load(orphan))
			CHECKF(st == 0, "%d: status 0x%x", (int)r, st);
		seen_child |= r == child;
		seen_orphan |= r == atomic_load(orphan);
		if (r == child)
			pt_verify(mem, size, 1);
	}
	CHECK(errno == ECHILD);
	CHECK(seen_child && seen_orphan);
	pt_verify(mem, size, 1);
	no_children("at the end");
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "self";
	pid_t pid;
	int st;

	alarm(60);
	if (!strcmp(how, "self"))
		CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	mem = pt_map(size);
	if (!strcmp(how, "init")) {
		if (unshare(CLONE_NEWPID))
			return 77;
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			CHECK(getpid() == 1);
			swapped(1);
			adopt();
			_exit(0);
		}
		CHECK(waitpid(pid, &st, 0) == pid);
		CHECKF(st == 0, "status 0x%x", st);
	} else {
		swapped(1);
		if (strcmp(how, "self"))
			CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
		adopt();
	}
	pt_say("reaper %s done", how);
	return 0;
}
