/* SPDX-License-Identifier: MIT */
/*
 * watch.c - in the engine: is the program still there, and still the one whose memory this is?  The
 * end of the engine with it, and the guard, which ends the program with the engine.
 */
#include <linux/kcmp.h>
#include <linux/sched.h>
#include <poll.h>

#include "event.h"
#include "handoff.h"
#include "log.h"
#include "region.h"
#include "state.h"
#include "zap.h"

#define PEER_NS 20000000 /* how often to look for processes that share the memory of one that ended */

int pidfd_open(pid_t pid)
{
	return (int)sys_call2(SYS_pidfd_open, pid, 0);
}

static void die(void)
{
	atomic_store(&G.quit, 1);
	sys_call1(SYS_exit_group, 0);
}

/* ---- is the program still there? ---- */

static bool same_memory(pid_t pid, long *err)
{
	*err = sys_call5(SYS_kcmp, pid, sys_getpid(), KCMP_VM, 0, 0);
	return *err == 0;
}

struct dirent64 {
	u64 ino;
	s64 off;
	u16 reclen;
	u8 type;
	char name[];
};

/* Calls fn for every number in a directory of /proc until it returns true; true if one did. */
static bool for_each_id(const char *path, bool (*fn)(pid_t id))
{
	char buf[2048];
	bool found = false;
	int fd = (int)sys_openat(G.ps.proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	long n;

	if (fd < 0)
		return false;
	while (!found && (n = sys_call3(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		for (long off = 0; off < n && !found;) {
			struct dirent64 *d = (struct dirent64 *)(buf + off);
			pid_t id = 0;

			for (const char *p = d->name; *p >= '0' && *p <= '9'; p++)
				id = id * 10 + (*p - '0');
			found = id && fn(id);
			off += d->reclen;
		}
	}
	sys_close(fd);
	return found;
}

/* The threads of the program. */
static bool for_each_thread(bool (*fn)(pid_t tid))
{
	char path[64];

	ps_format(path, sizeof(path), "%u/task", (u64)G.ps.proc_pid);
	return for_each_id(path, fn);
}

static bool thread_same(pid_t tid)
{
	long err;

	return same_memory(tid, &err);
}

static long nr_threads;

static bool count_one(pid_t tid)
{
	(void)tid;
	nr_threads++;
	return false;
}

long count_threads(void)
{
	nr_threads = 0;
	for_each_thread(count_one);
	return nr_threads;
}

/* What a process may do: user ids, groups, capabilities, seccomp state, and of which user namespace they
 * are (root of another one reads the same in all of them). */
static size_t credentials(pid_t pid, char *buf, size_t size)
{
	static const char *const keys[] = { "Uid:", "Gid:", "CapEff:", "Seccomp:", "NoNewPrivs:" };
	char path[64], text[4096];
	size_t len;
	long n;
	int fd;

	ps_format(path, sizeof(path), "%u/ns/user", (u64)pid);
	n = sys_call4(SYS_readlinkat, G.ps.proc_fd, path, buf, size);
	if (n <= 0)
		return 0;
	len = n;
	ps_format(path, sizeof(path), "%u/status", (u64)pid);
	fd = (int)sys_openat(G.ps.proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = sys_read(fd, text, sizeof(text) - 1);
	sys_close(fd);
	text[MAX(n, 0)] = 0;
	for (char *line = text, *nl; (nl = memchr(line, '\n', text + MAX(n, 0) - line));
	     line = nl + 1)
		for (unsigned k = 0; k < ARRAY_SIZE(keys); k++)
			if (strncmp(line, keys[k], strlen(keys[k])) == 0 &&
			    len + (nl - line) < size) {
				memcpy(buf + len, line, nl - line);
				len += nl - line;
			}
	return len;
}

/* An engine of the child's own would have the rights that the thread which forks has now; if they are not
 * what they were when this engine came up, it might not get what it needs. */
bool child_can_have_engine(pid_t tid)
{
	char ours[512], theirs[512], self[16];
	long len = sys_call4(SYS_readlinkat, G.ps.proc_fd, "self", self, sizeof(self) - 1);
	pid_t own = 0;
	size_t n;

	for (long i = 0; i < len; i++)
		own = own * 10 + (self[i] - '0');
	n = credentials(own, ours, sizeof(ours));
	/* In a pid namespace below that of /proc the thread's number says nothing: the process, then. */
	if (!tid || G.ps.proc_pid != G.pid)
		tid = G.ps.proc_pid;
	return n && n == credentials(tid, theirs, sizeof(theirs)) && memcmp(ours, theirs, n) == 0;
}

bool program_replaced(void)
{
	long err;

	if (same_memory(G.pid, &err))
		return false;
	if (err == -EPERM || err == -EACCES) {
		/* Not allowed to look: because our own memory is not dumpable (then nothing can
		 * be said), or because the program became another user's, by exec. */
		return sys_call2(SYS_prctl, 3 /* PR_GET_DUMPABLE */, 0) == 1;
	}
	if (err == -ENOSYS)
		return false;
	return !for_each_thread(thread_same);
}

/* The program's memory, of which nothing is needed any more, while forked children that we serve
 * go on. */
static void drop_program(void)
{
	struct ps_mm *mm = &G.ps.mm;

	while (mm->nr_regions) {
		struct region r = mm->regions[0];

		ps_rwlock_write_lock(&mm->gate);
		zap_range(mm, r.start, r.end, 0);
		region_del(mm, r.start, r.end);
		ps_rwlock_write_unlock(&mm->gate);
		uffd_unregister(mm->uffd, r.start, r.end - r.start);
		sys_munmap((void *)(uintptr_t)r.start, r.end - r.start);
	}
}

/* A child of a fork takes descriptors from us when it starts its own engine; its parent may end before
 * that. */
static void wait_for_children(void)
{
	ps_rwlock_read_lock(&G.ps.freeze);
	ps_rwlock_read_unlock(&G.ps.freeze);
	for (int i = 0; i < 5000 && relaxed_load(&G.fork_page->settled) < G.children; i++)
		sys_sleep_ns(1000000);
}

static bool is_peer(pid_t pid)
{
	long err;

	return pid != G.pid && pid != (pid_t)sys_getpid() &&
	       pid != (pid_t)relaxed_load(&G.ps.stat->guard_pid) && same_memory(pid, &err);
}

/* Another process shares the memory (not the program's threads, not ours), and goes on with what only
 * we can bring back. */
bool peer_left(void)
{
	return atomic_load(&G.peers) && for_each_id(".", is_peer);
}

void program_gone(void)
{
	/* After an exec the slot is the new program's. */
	if (relaxed_load(&G.member->engine_pid) != (u32)G.engine_pid)
		G.ps.stat = &G.own_member;
	if (G.children)
		wait_for_children();
	handoff_end(&G.ps, 0);
	if (G.ps.foreign) {
		drop_program();
		while (fork_reap_foreign(&G.ps))
			sys_sleep_ns(100000000);
	}
	relaxed_store(&G.ps.stat->state, PS_MEMBER_ENDED);
	if (G.shm)
		relaxed_add(&G.shm->epoch, 1);
	die();
}

static int program_fd, engine_fd;

/* What watching needs, before anything can be taken out: an engine without it would leave its program, or be
 * killed without anybody's noticing. */
int watch_open(void)
{
	program_fd = pidfd_open(G.pid);
	engine_fd = pidfd_open(G.engine_pid);
	/* A program that has ended already is no failure. */
	if (program_fd < 0 && program_fd != -ESRCH)
		return program_fd;
	return engine_fd < 0 ? engine_fd : 0;
}

/* A thread of its own waits for the program's end, so that memory goes at once. */
void watch_program(struct ps_ctx *ctx)
{
	struct pollfd p = { .fd = program_fd, .events = POLLIN };

	(void)ctx;
	if (p.fd < 0)
		program_gone();
	for (;;)
		if (sys_call4(SYS_ppoll, &p, 1, NULL, NULL) == 1) {
			while (peer_left())
				sys_sleep_ns(PEER_NS);
			atomic_store(&G.ended, 1);
			program_gone();
		}
}

/*
 * The guard: a process that shares memory and descriptors with the engine.  Should the engine be
 * killed alone, the descriptors stay open in the guard, so that the program waits at its next fault
 * instead of reading zeros, and the guard ends the program.
 */
static _Alignas(64) char guard_stack[KiB(32)];

static void guard_main(void *arg)
{
	struct pollfd p[2] = { { .fd = engine_fd, .events = POLLIN },
			       { .fd = program_fd, .events = POLLIN } };

	(void)arg;
	sys_call2(SYS_prctl, 15 /* PR_SET_NAME */, "pswap-guard");
	if (p[1].fd < 0)
		return;
	while (sys_call4(SYS_ppoll, p, 2, NULL, NULL) < 1)
		;
	if (atomic_load(&G.quit) || p[1].revents)
		return;
	preload_log("pswap: the engine was killed; its program cannot go on\n", 55);
	sys_call2(SYS_kill, G.pid, 9);
}

int watch_start_guard(void)
{
	long pid = raw_clone(CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_UNTRACED,
			     guard_stack + sizeof(guard_stack), guard_main, NULL, NULL);

	relaxed_store(&G.ps.stat->guard_pid, (u32)MAX(pid, 0));
	return pid < 0 ? (int)pid : 0;
}
