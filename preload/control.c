/* SPDX-License-Identifier: MIT */
/*
 * control.c - the first thread of the engine process: answers requests of hooks, decides when to
 * arm, and ends the engine with the program.
 */
#include <linux/kcmp.h>
#include <linux/sched.h>
#include <poll.h>

#include "account.h"
#include "arena.h"
#include "engine.h"
#include "event.h"
#include "fault.h"
#include "log.h"
#include "region.h"
#include "pagetable.h"
#include "state.h"
#include "zap.h"

#define CHECK_NS 200000000LL  /* how often to see whether the program still is the same */
#define EXEC_CHECK_NS 1000000LL
#define EXEC_CHECKS 200
#define ARM_POLL_MIN_NS 1000000LL
#define ARM_POLL_MAX_NS 50000000LL
#define FILL_BYTES_PER_NS 8 /* a program can touch no faster than this */
#define UNSEEN_BYTES (s64)MiB(2)
#define SMALL_LIMIT MiB(64)
#define RESCAN_NS 1000000000ULL

static struct ps_ctx *control_ctx(void)
{
	return G.ps.ctx[PS_NR_CTX - 1];
}

static int pidfd_open(pid_t pid)
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

/* The first thread may have ended while others go on. */
static bool any_thread_same(void)
{
	char path[64], buf[2048];
	bool same = false;
	int fd;
	long n;

	ps_format(path, sizeof(path), "/proc/%u/task", (u64)G.pid);
	fd = (int)sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	while (!same && (n = sys_call3(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		for (long off = 0; off < n && !same;) {
			struct dirent64 *d = (struct dirent64 *)(buf + off);
			pid_t tid = 0;
			long err;

			for (const char *p = d->name; *p >= '0' && *p <= '9'; p++)
				tid = tid * 10 + (*p - '0');
			same = tid && same_memory(tid, &err);
			off += d->reclen;
		}
	}
	sys_close(fd);
	return same;
}

static bool program_replaced(void)
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
	return !any_thread_same();
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

static void program_gone(void)
{
	if (G.ps.foreign) {
		drop_program();
		while (fork_reap_foreign(&G.ps))
			sys_sleep_ns(100000000);
	}
	relaxed_store(&G.ps.stat->state, PS_MEMBER_ENDED);
	die();
}

/* A thread of its own waits for the program's end, so that memory goes at once. */
static void watch_program(struct ps_ctx *ctx)
{
	struct pollfd p = { .fd = pidfd_open(G.pid), .events = POLLIN };

	(void)ctx;
	if (p.fd < 0)
		program_gone();
	for (;;)
		if (sys_call4(SYS_ppoll, &p, 1, NULL, NULL) == 1)
			program_gone();
}

/*
 * The guard: a process that shares memory and descriptors with the engine.  Should the engine be
 * killed alone, the descriptors stay open in the guard, so that the program waits at its next fault
 * instead of reading zeros, and the guard ends the program.
 */
static _Alignas(64) char guard_stack[KiB(32)];

long raw_clone(unsigned long flags, void *stack_top, void (*fn)(void *), void *arg, void *tls);

static void guard_main(void *arg)
{
	struct pollfd p[2] = { { .fd = pidfd_open(G.engine_pid), .events = POLLIN },
			       { .fd = pidfd_open(G.pid), .events = POLLIN } };

	(void)arg;
	sys_call2(SYS_prctl, 15 /* PR_SET_NAME */, "pswap-guard");
	if (p[0].fd < 0 || p[1].fd < 0)
		return;
	while (sys_call4(SYS_ppoll, p, 2, NULL, NULL) < 1)
		;
	if (atomic_load(&G.quit) || p[1].revents)
		return;
	preload_log("pswap: the engine was killed; its program cannot go on\n", 55);
	sys_call2(SYS_kill, G.pid, 9);
}

/* ---- requests ---- */

static void set_guards(u64 start, u64 end, bool on)
{
	struct ps_mm *mm = &G.ps.mm;

	ps_rwlock_write_lock(&mm->gate);
	if (on)
		zap_range(mm, start, end, 0);
	for (u64 addr = start; addr < end; addr += PAGE_SIZE) {
		struct extent *e = on ? pt_get(mm, addr) : pt_find(mm, addr);

		if (!e) {
			addr = ALIGN_UP(addr + 1, PMD_SIZE) - PAGE_SIZE;
			continue;
		}
		if (!on && pte_kind(pte_get(e, pt_index(addr))) != PTE_GUARD)
			continue;
		if (on && !region_find(mm, addr))
			continue;
		pte_set(e, pt_index(addr), pte_make(on ? PTE_GUARD : PTE_NONE));
	}
	ps_rwlock_write_unlock(&mm->gate);
}

static long set_flags(u64 start, u64 end, u32 set, u32 clear)
{
	struct ps_mm *mm = &G.ps.mm;
	long ret;

	ps_rwlock_write_lock(&mm->gate);
	ret = region_flags(mm, start, end, set, clear);
	ps_rwlock_write_unlock(&mm->gate);
	/* What was locked and is resident must be found again by reclaim. */
	if (clear & REGION_LOCKED)
		adopt_rescan(control_ctx());
	return ret;
}

static long add(u64 start, u64 end, u32 flags, bool tail)
{
	struct ps_mm *mm = &G.ps.mm;
	struct region *before;

	if (atomic_load(&G.mode) != MODE_ARMED) {
		adopt_all(control_ctx());
		return 0;
	}
	if (tail) {
		/* The tail of a moved or grown mapping: ours if its head is. */
		ps_rwlock_read_lock(&mm->gate);
		before = region_find(mm, start - 1);
		if (before)
			flags |= before->flags & ~(u32)REGION_FRESH;
		ps_rwlock_read_unlock(&mm->gate);
		if (!before)
			return 0;
	}
	return adopt_add(control_ctx(), start, end, flags);
}

/* Everything stands still until the clone call is over. */
static void quiet_for_fork(void)
{
	struct pswap *ps = &G.ps;
	int uffd = -1;

	ps_rwlock_write_lock(&ps->freeze);
	for (unsigned i = 0; i < ps->nr_stores; i++)
		if (ps->stores[i]->ops->before_fork)
			ps->stores[i]->ops->before_fork(ps->stores[i]);
	atomic_store(&G.fork_state, 1);
	atomic_store(&G.req_state, 2);
	sys_futex_wake(&G.req_state, INT32_MAX);

	if (ps->caps.event_fork && atomic_load(&G.mode) == MODE_ARMED)
		uffd = event_await_fork(control_ctx(), &G.fork_done);
	/* The child opens its own; as long as this copy is open its mappings belong to it. */
	if (uffd >= 0)
		sys_close(uffd);
	while (!atomic_load(&G.fork_done))
		sys_futex_wait(&G.fork_done, 0, 1000000);
	stat_inc(ps->stat, forks);
	atomic_store(&G.fork_state, 0);
	sys_futex_wake(&G.fork_state, INT32_MAX);
	ps_rwlock_write_unlock(&ps->freeze);
}

static void answer(long ret)
{
	G.req_ret = ret;
	atomic_store(&G.req_state, 2);
	sys_futex_wake(&G.req_state, INT32_MAX);
}

static void serve_request(void)
{
	struct pswap *ps = &G.ps;
	long ret = 0;

	if (G.req_op == REQ_FORK) {
		G.req_ret = 0;
		quiet_for_fork();
		return;
	}
	ps_rwlock_read_lock(&ps->freeze);
	switch (G.req_op) {
	case REQ_ADD:
		ret = add(G.req_a, G.req_b, (u32)G.req_c, G.req_d != 0);
		break;
	case REQ_DROP:
		ps_rwlock_write_lock(&ps->mm.gate);
		zap_range(&ps->mm, G.req_a, G.req_b, ZAP_KEEP_GUARDS);
		ps_rwlock_write_unlock(&ps->mm.gate);
		break;
	case REQ_GUARD:
		set_guards(G.req_a, G.req_b, G.req_c != 0);
		break;
	case REQ_FLAGS:
		ret = set_flags(G.req_a, G.req_b, (u32)G.req_c, (u32)G.req_d);
		break;
	case REQ_PIN:
		ret = adopt_pin(control_ctx(), G.req_a, G.req_b);
		break;
	case REQ_BRING_IN:
		ret = fault_range(control_ctx(), &ps->mm, G.req_a, G.req_b);
		break;
	case REQ_LOCK_ALL:
		relaxed_store(&ps->locked_all, G.req_c != 0);
		break;
	default:
		break;
	}
	ps_rwlock_read_unlock(&ps->freeze);
	answer(ret);
}

/* ---- the loop ---- */

/* How long to sleep, arming first if it is time. */
static s64 arm_or_wait(void)
{
	struct pswap *ps = &G.ps;
	s64 limit, used, head;

	if (atomic_load(&G.mode) != MODE_ENGINE)
		return CHECK_NS;
	used = account_refresh(ps);
	limit = account_hard(ps);
	if (used > limit / 2) {
		ps_rwlock_read_lock(&ps->freeze);
		adopt_all(control_ctx());
		ps_rwlock_read_unlock(&ps->freeze);
		return CHECK_NS;
	}
	if (relaxed_load(&G.vm_bytes) < limit / 2 - (s64)MiB(2))
		return ARM_POLL_MAX_NS;
	head = (limit / 2 - used) / FILL_BYTES_PER_NS;
	return MIN(MAX(head, ARM_POLL_MIN_NS), ARM_POLL_MAX_NS);
}

/* Memory that grew without our doing: mapped by a system call that no hook saw. */
static void look_for_unseen(void)
{
	static s64 last;
	struct pswap *ps = &G.ps;
	s64 unknown = relaxed_load(&ps->footprint) -
		      ((s64)(relaxed_load(&ps->nr_resident) + relaxed_load(&ps->cache.nr_pages))
		       << PAGE_SHIFT) -
		      (s64)relaxed_load(&ps->metadata_bytes);

	if (G.count == PS_COUNT_ALL)
		unknown -= (s64)relaxed_load(&ps->pool_bytes);
	if (unknown < last)
		last = unknown;
	if (unknown - last < UNSEEN_BYTES)
		return;
	last = unknown;
	ps_rwlock_read_lock(&ps->freeze);
	adopt_more(control_ctx());
	ps_rwlock_read_unlock(&ps->freeze);
}

static void loop(void)
{
	u64 checked = ps_now_ns(), rescanned = checked;
	unsigned exec_checks = 0;

	for (;;) {
		s64 sleep = arm_or_wait();
		u64 now;

		if (atomic_load(&G.exec_seen)) {
			atomic_store(&G.exec_seen, 0);
			exec_checks = EXEC_CHECKS;
		}
		if (exec_checks)
			sleep = EXEC_CHECK_NS;
		if (atomic_load(&G.req_state) != 1)
			sys_futex_wait(&G.req_state, 0, sleep);
		if (atomic_load(&G.req_state) == 1)
			serve_request();
		now = ps_now_ns();
		if (exec_checks || now - checked > (u64)CHECK_NS) {
			checked = now;
			exec_checks -= exec_checks > 0;
			if (program_replaced())
				program_gone();
			fork_reap_foreign(&G.ps);
		}
		if (atomic_load(&G.mode) == MODE_ARMED)
			look_for_unseen();
		/* Over the limit with nothing to take: perhaps memory became resident unseen. */
		if (relaxed_load(&G.ps.give_up_until) > now && now - rescanned > RESCAN_NS) {
			rescanned = now;
			ps_rwlock_read_lock(&G.ps.freeze);
			adopt_rescan(control_ctx());
			ps_rwlock_read_unlock(&G.ps.freeze);
		}
	}
}

static const char *env_value(const char *name)
{
	const char *p;

	for (char *const *e = G.envp; e && *e; e++) {
		size_t n = strlen(name);

		p = *e;
		if (strncmp(p, name, n) == 0 && p[n] == '=')
			return p + n + 1;
	}
	return NULL;
}

static int open_engine(void)
{
	struct pswap *ps = &G.ps;

	ps->cfg.limit = G.limit;
	ps->cfg.count = G.count;
	ps->cfg.nr_handlers = 2;
	ps->cfg.nr_workers = MIN(MAX(G.cpus, 1U), PS_MAX_WORKERS);
	/* With a small limit 2 MiB is a big step, and every writer has 2 MiB of its own. */
	if (G.limit < SMALL_LIMIT) {
		ps->cfg.no_thp = true;
		ps->cfg.nr_workers = 1;
	}
	ps->cfg.uffd_want = UFFD_WANT_EVENTS | UFFD_WANT_FORK;
	ps->cfg.foreign_program = true;
	ps->stat = G.member;
	ps->shm = G.shm;
	ps->foreign_fork = fork_foreign;
	engine_tune(ps, env_value);
	return engine_open(ps, G.specs, G.nr_specs, G.dir, G.why, sizeof(G.why));
}

static struct ps_ctx watch_ctx;

static int start(bool restart)
{
	struct pswap *ps = &G.ps;
	int ret = restart ? engine_open_fds(ps) : open_engine();

	if (ret == 0 && !ps->caps.move) {
		ps_format(G.why, sizeof(G.why),
			  "this kernel has no UFFDIO_MOVE (Linux 6.8), which run mode needs");
		ret = -ENOSYS;
	}
	if (ret == 0 && !ps->caps.events)
		ret = -ENOSYS;
	if (ret == 0 && restart)
		ret = adopt_reregister();
	if (ret == 0)
		ret = proc_spawn(ps, watch_program, &watch_ctx);
	if (ret == 0)
		ret = engine_start(ps, proc_spawn);
	if (ret == 0) {
		long pid = raw_clone(CLONE_VM | CLONE_FILES | CLONE_FS | CLONE_UNTRACED,
				     guard_stack + sizeof(guard_stack), guard_main, NULL, NULL);

		ret = pid < 0 ? (int)pid : 0;
		relaxed_store(&ps->stat->guard_pid, (u32)MAX(pid, 0));
	}
	return ret;
}

void control_main(bool restart)
{
	int ret;

	G.engine_pid = (pid_t)sys_getpid();
	relaxed_store(&G.member->engine_pid, (u32)G.engine_pid);
	ret = start(restart);
	if (ret) {
		G.error = -ret;
		atomic_store(&G.quit, 1);
		atomic_store(&G.ready, 2);
		sys_futex_wake(&G.ready, INT32_MAX);
		sys_call1(SYS_exit_group, 1);
	}
	if (!restart) {
		atomic_store(&G.mode, MODE_ENGINE);
		relaxed_store(&G.ps.stat->state, PS_MEMBER_ENGINE);
	}
	atomic_store(&G.ready, 1);
	sys_futex_wake(&G.ready, INT32_MAX);
	loop();
}
