/* SPDX-License-Identifier: MIT */
/*
 * control.c - the first thread of the engine process: answers requests of hooks and decides when to
 * arm.
 */
#include <linux/sched.h>
#include <poll.h>
#include <sys/resource.h>

#include "account.h"
#include "arena.h"
#include "engine.h"
#include "event.h"
#include "fault.h"
#include "handoff.h"
#include "log.h"
#include "region.h"
#include "rescan.h"
#include "pagetable.h"
#include "state.h"
#include "swapoff.h"
#include "vma.h"
#include "store_file.h"
#include "zap.h"

#define UNBIND_NS 50000000ULL /* no binding so soon after a call that could hand it on */
#define CHECK_NS 200000000LL  /* how often to see whether the program still is the same */
#define FDS_LEAST 24 /* descriptors of the engine: 16, and one for each file of a store */
#define CALLER_CHECK_NS 2000000ULL
#define BELL_POLL_NS 50000000LL /* an exec is noticed so late at the most */
#define ABANDONED_NS 10000000000ULL
#define EXEC_CHECK_NS 1000000LL
#define EXEC_CHECKS 200
#define ARM_POLL_MIN_NS 1000000LL
#define ARM_POLL_MAX_NS 50000000LL
#define FILL_BYTES_PER_NS 8 /* a program can touch no faster than this */
#define UNSEEN_BYTES (s64)MiB(2)
#define RESCAN_NS 1000000000ULL

static struct ps_ctx *control_ctx(void)
{
	return G.ps.ctx[PS_NR_CTX - 1];
}

/* ---- requests ---- */

/* madvise(GUARD_INSTALL or GUARD_REMOVE), made here so that nothing is filled or forgotten between the
 * call and our knowing of it. It raises no event. */
static long set_guards(u64 start, u64 end, int advice)
{
	struct pswap *ps = &G.ps;
	struct ps_mm *mm = &ps->mm;
	long ret;

	ps_rwlock_write_lock(&mm->gate);
	ret = sys_madvise((void *)(uintptr_t)start, end - start, advice);
	/* A failure may have come half-way: the kernel says which pages are guards now. */
	adopt_guards(control_ctx(), start, end);
	ps_rwlock_write_unlock(&mm->gate);
	return ret;
}

struct lock_all {
	int flags;
	long err;
};

static bool lock_vma(const struct vma *v, void *arg)
{
	struct lock_all *l = arg;

	/* Not our own memory, and not the kernel's pages ([vvar], [vdso], [vsyscall]). */
	if (arena_owns((void *)(uintptr_t)v->start) || memcmp(v->name, "[v", 2) == 0)
		return true;
	l->err = sys_call3(SYS_mlock2, v->start, v->end - v->start,
			   l->flags & MCL_ONFAULT ? MLOCK_ONFAULT : 0);
	if (l->err == -ENOMEM && v->prot == PROT_NONE)
		l->err = 0; /* locked, though nothing of it can be brought in */
	return l->err == 0;
}

/* mlockall(flags), 0: munlockall. */
static long lock_all(int flags)
{
	struct pswap *ps = &G.ps;
	struct lock_all l = { .flags = flags };

	if (flags && ((flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) ||
		      !(flags & (MCL_CURRENT | MCL_FUTURE))))
		return -EINVAL;
	relaxed_store(&ps->locked_all, flags != 0);
	arena_lock_future(flags & MCL_FUTURE);
	if (flags & MCL_FUTURE)
		l.err = sys_call1(SYS_mlockall, flags & ~MCL_CURRENT);
	if (l.err == 0 && (flags & MCL_CURRENT))
		vma_for_each(ps->maps_fd, control_ctx()->buf, KiB(64), lock_vma, &l);
	if (l.err) {
		relaxed_store(&ps->locked_all, 0);
		arena_lock_future(false);
	}
	return l.err;
}

static long set_flags(u64 start, u64 end, u32 set, u32 clear)
{
	struct ps_mm *mm = &G.ps.mm;
	bool known;
	long ret;

	/* What a child will find there is asked of the regions: there must be one, though it may not be
	 * written to yet. */
	ps_rwlock_read_lock(&mm->gate);
	known = region_covers(mm, start, end);
	ps_rwlock_read_unlock(&mm->gate);
	if (!known && (set & (REGION_DONTFORK | REGION_WIPEONFORK)) && !relaxed_load(&G.no_adopt))
		adopt_more(control_ctx());
	ps_rwlock_write_lock(&mm->gate);
	ret = region_flags(mm, start, end, set, clear);
	ps_rwlock_write_unlock(&mm->gate);
	/* What was locked and is resident must be found again by reclaim. */
	if (clear & REGION_LOCKED)
		rescan_all(control_ctx());
	return ret;
}

static long vma_end(u64 addr)
{
	struct vma v;

	if (vma_query(G.ps.maps_fd, addr, &v))
		return 0;
	return v.start <= addr ? (long)v.end : -(long)v.start;
}

static void own_userfaultfd(void)
{
	if (atomic_exchange(&G.no_adopt, 1))
		return;
	if (atomic_load(&G.mode) != MODE_ARMED) {
		preload_off("it uses userfaultfd itself");
		return;
	}
	ps_log("%s (process %u) uses userfaultfd itself: new memory stays unswapped from now on",
	       G.member->comm, (u64)G.pid);
}

static long add(u64 start, u64 end, u32 flags, bool tail)
{
	struct ps_mm *mm = &G.ps.mm;
	struct region *before;

	if (relaxed_load(&G.no_adopt))
		return 0;
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

static void ring_back(struct request *r, long ret)
{
	unsigned slot = r - G.req;

	r->ret = ret;
	r->answered_ns = ps_now_ns();
	relaxed_store(&r->armed, 0);
	atomic_store(&r->state, REQUEST_ANSWERED);
	if (uffd_zeropage(G.bell_uffd, (u64)(uintptr_t)G.bells + slot * PAGE_SIZE, PAGE_SIZE,
			  true) < 0)
		uffd_wake(G.bell_uffd, (u64)(uintptr_t)G.bells + slot * PAGE_SIZE, PAGE_SIZE);
}

/* Bells whose thread has gone on are made to ring again. A request that a signal handler jumped out
 * of is never released: it is taken back after a while. */
static void rearm_bells(void)
{
	u64 now = ps_now_ns();

	for (unsigned i = 0; i < NR_REQUESTS; i++) {
		struct request *r = &G.req[i];

		if (relaxed_load(&r->armed))
			continue;
		if (atomic_load(&r->state) == REQUEST_ANSWERED && now - r->answered_ns > ABANDONED_NS)
			atomic_store(&r->state, REQUEST_FREE);
		if (atomic_load(&r->state) != REQUEST_FREE)
			continue;
		sys_madvise(G.bells + i * PAGE_SIZE, PAGE_SIZE, MADV_DONTNEED);
		atomic_store(&r->armed, 1);
	}
}

static int open_bells(void)
{
	struct uffd_caps caps;

	if (!G.bells)
		G.bells = arena_map(NR_REQUESTS * PAGE_SIZE);
	if (!G.bells)
		return -ENOMEM;
	/* Not with the program's: dropping a bell's page must not raise an event. */
	G.bell_uffd = uffd_open(UFFD_WANT_USER_ONLY, &caps);
	if (G.bell_uffd < 0)
		return G.bell_uffd;
	sys_madvise(G.bells, NR_REQUESTS * PAGE_SIZE, MADV_DONTNEED);
	memset(G.req, 0, sizeof(G.req));
	for (unsigned i = 0; i < NR_REQUESTS; i++)
		relaxed_store(&G.req[i].armed, 1);
	return uffd_register(G.bell_uffd, (u64)(uintptr_t)G.bells, NR_REQUESTS * PAGE_SIZE, false);
}

struct fork_wait {
	struct fork_call *call;
	pid_t tid;
	u64 looked_ns;
};

/* The caller was killed on the way, by the program's end or by another thread's exec. Should there be a
 * child after all, it is waited for as others are. */
static bool caller_gone(struct fork_wait *w)
{
	u64 now = ps_now_ns();

	if (atomic_load(&G.ended))
		return true;
	if (now - w->looked_ns < CALLER_CHECK_NS)
		return false;
	w->looked_ns = now;
	/* The first thread's number stays, whoever has it. */
	return w->tid == G.pid ? program_replaced() :
				 w->tid && sys_call3(SYS_tgkill, G.pid, w->tid, 0) == -ESRCH;
}

/* The child has been made, or will not be. */
static bool fork_over(void *arg)
{
	struct fork_wait *w = arg;

	return atomic_load(&w->call->done) || fork_made(G.fork_page, w->call->ticket) ||
	       caller_gone(w);
}

/* Until the call has copied everything; applies what events come meanwhile. A child that only we can
 * serve is taken on. */
static void await_fork(struct fork_call *call, pid_t tid)
{
	struct pswap *ps = &G.ps;
	struct ps_ctx *ctx = control_ctx();
	bool ours = ps->caps.event_fork;
	struct fork_wait w = { .call = call, .tid = tid, .looked_ns = ps_now_ns() };
	int uffd;

	while (atomic_load(&G.mode) == MODE_ARMED &&
	       (uffd = event_await_fork(ctx, tid, fork_over, &w)) >= 0) {
		/* The first is taken for this fork's; another is of one that no hook saw. */
		if (G.fork_foreign || !ours)
			fork_foreign(&ps->mm, uffd);
		else
			/* The child opens its own; as long as this copy is open its mappings
			 * belong to it. */
			sys_close(uffd);
		ours = false;
	}
	while (!fork_over(&w))
		sys_sleep_ns(20000);
	/* Faults that came meanwhile: those threads fault again. */
	while (ctx->nr_deferred) {
		ctx->nr_deferred--;
		uffd_wake(ps->mm.uffd, ctx->deferred[ctx->nr_deferred].addr, PAGE_SIZE);
	}
}

/* Everything stands still until the child is made. */
static void quiet_for_fork(struct request *r)
{
	struct pswap *ps = &G.ps;
	struct fork_call *call = &G.fork_calls[r->b];
	u32 ticket = call->ticket;
	pid_t tid = r->tid;
	int nr = 0;

	handoff_end(ps, UNBIND_NS);
	ps_rwlock_write_lock(&ps->freeze);
	for (unsigned i = 0; i < ps->nr_stores; i++) {
		struct store *st = ps->stores[i];

		ps_assert(!st->ops->before_fork || st->ops->before_fork(st) == 0);
		G.nr_store_fds[i] = 0;
		if (!st->counts_as_memory) {
			G.nr_store_fds[i] = store_file_fds(st, G.store_fds + nr, MAX_STORE_FDS - nr);
			nr += MAX(G.nr_store_fds[i], 0);
		}
	}
	G.parent_engine = (pid_t)sys_getpid();
	G.parent_proc_fd = ps->proc_fd;
	for (unsigned i = 0; i < ps->nr_stores; i++)
		G.store_dir_fd[i] = ps->stores[i]->counts_as_memory ? -1 : store_file_dir(ps->stores[i]);
	/* In a new user namespace the child has no rights to what its engine would need.  Before arming
	 * nothing is swapped, and such a child goes on without us; after it, our engine must serve it. */
	G.fork_foreign = (atomic_load(&G.mode) != MODE_ARMED || ps->caps.event_fork) &&
			 ((r->a & CLONE_NEWUSER) || !child_can_have_engine(tid));
	account_fork(ps);
	ring_back(r, 0);

	await_fork(call, tid);
	account_fork_done(ps);
	if (atomic_load(&call->done) != 2 && !G.fork_foreign) {
		G.children++;
		/* A file may be empty for us, and be closed, before the child has it. */
		relaxed_store(&ps->files_held, 1);
	}
	stat_inc(ps->stat, forks);
	ps_rwlock_write_unlock(&ps->freeze);
	atomic_store(&call->quiet, 0);
	sys_futex_wake(&call->quiet, 1);
	ps_event_wake(&ps->reclaim_ev);
	/* The call returns when the child is through; others may fork by then. (Its call gives the lock
	 * back too: this is of its ticket.) */
	if ((ticket & 1) && atomic_compare_exchange_strong(&G.fork_lock, &ticket, 0))
		sys_futex_wake(&G.fork_lock, 1);
}

static void serve_request(struct request *r)
{
	struct pswap *ps = &G.ps;
	long ret = 0;

	if (r->op == REQ_FORK) {
		quiet_for_fork(r);
		return;
	}
	if (r->op == REQ_SWAPOFF) {
		swapoff_now(control_ctx());
		ring_back(r, 0);
		return;
	}
	ps_rwlock_read_lock(&ps->freeze);
	switch (r->op) {
	case REQ_ADD:
		ret = add(r->a, r->b, (u32)r->c, r->d != 0);
		break;
	case REQ_GUARD:
		ret = set_guards(r->a, r->b, (int)r->c);
		break;
	case REQ_FLAGS:
		ret = set_flags(r->a, r->b, (u32)r->c, (u32)r->d);
		break;
	case REQ_PIN:
		ret = adopt_pin(control_ctx(), r->a, r->b);
		break;
	case REQ_REPLACED:
		adopt_replaced(r->a);
		break;
	case REQ_VMA_END:
		ret = vma_end(r->a);
		break;
	case REQ_OWN_UFFD:
		own_userfaultfd();
		break;
	case REQ_THREADS:
		ret = count_threads();
		break;
	case REQ_LOCK_ALL:
		ret = lock_all((int)r->c);
		break;
	case REQ_UNBIND:
		handoff_end(ps, UNBIND_NS);
		break;
	case REQ_NONE:
	case REQ_FORK:
	case REQ_SWAPOFF:
		break;
	}
	ps_rwlock_read_unlock(&ps->freeze);
	ring_back(r, ret);
}

/* Waits for a bell, and serves it and all others. */
static void serve_bells(s64 timeout_ns)
{
	struct pollfd p = { .fd = G.bell_uffd, .events = POLLIN };
	struct timespec ts = { timeout_ns / 1000000000, timeout_ns % 1000000000 };
	struct uffd_msg msg;

	sys_call4(SYS_ppoll, &p, 1, &ts, NULL);
	while (sys_read(G.bell_uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		u64 addr = msg.arg.pagefault.address & PAGE_MASK;
		unsigned slot = (addr - (u64)(uintptr_t)G.bells) >> PAGE_SHIFT;

		if (msg.event != UFFD_EVENT_PAGEFAULT || slot >= NR_REQUESTS)
			continue;
		if (atomic_load(&G.req[slot].state) == REQUEST_ASKED) {
			G.req[slot].tid = (pid_t)msg.arg.pagefault.feat.ptid;
			serve_request(&G.req[slot]);
			continue;
		}
		/* Rung again after the answer (a signal, a stop): the page has to be taken away
		 * again before anybody else may use this bell. */
		relaxed_store(&G.req[slot].armed, 0);
		if (uffd_zeropage(G.bell_uffd, addr, PAGE_SIZE, true) < 0)
			uffd_wake(G.bell_uffd, addr, PAGE_SIZE);
	}
	/* Asked, but the message went: its thread was in a handler that jumped away. */
	for (unsigned i = 0; i < NR_REQUESTS; i++)
		if (atomic_load(&G.req[i].state) == REQUEST_ASKED)
			serve_request(&G.req[i]);
	rearm_bells();
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
		if (swapoff_tick(control_ctx()))
			sleep = 0;
		serve_bells(MIN(sleep, BELL_POLL_NS));
		now = ps_now_ns();
		if (relaxed_load(&G.ps.files_held) &&
		    relaxed_load(&G.fork_page->settled) >= G.children)
			relaxed_store(&G.ps.files_held, 0);
		if (exec_checks || now - checked > (u64)CHECK_NS) {
			checked = now;
			exec_checks -= exec_checks > 0;
			if (program_replaced() && !peer_left())
				program_gone();
			fork_reap_foreign(&G.ps);
		}
		if (atomic_load(&G.mode) == MODE_ARMED && !relaxed_load(&G.no_adopt))
			look_for_unseen();
		/* Over the limit with nothing to take: perhaps memory became resident unseen. */
		if (relaxed_load(&G.ps.give_up_until) > now && now - rescanned > RESCAN_NS) {
			rescanned = now;
			ps_rwlock_read_lock(&G.ps.freeze);
			rescan_all(control_ctx());
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
	u64 lim[2];

	/* proc.c has raised it where that is allowed. */
	if (sys_call4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, lim) == 0 && lim[0] < FDS_LEAST) {
		ps_format(G.why, sizeof(G.why),
			  "the limit of open files is %u (ulimit -n), and its engine needs %u", lim[0],
			  (u64)FDS_LEAST);
		return -EMFILE;
	}
	ps->cfg.limit = G.limit;
	ps->cfg.count = G.count;
	ps->cfg.nr_handlers = 2;
	ps->cfg.nr_workers = MIN(MAX(G.cpus, 1U), PS_MAX_WORKERS);
	if (G.limit <= PS_SMALL_LIMIT) {
		ps->cfg.no_thp = true;
		ps->cfg.nr_workers = 1;
	}
	ps->cfg.uffd_want = UFFD_WANT_EVENTS | UFFD_WANT_FORK;
	ps->cfg.foreign_program = true;
	ps->cfg.handoff = true;
	ps->stat = G.member;
	ps->shm = G.shm;
	ps->foreign_fork = fork_foreign;
	engine_tune(ps, env_value);
	return engine_open(ps, G.specs, G.nr_specs, G.dir, G.why, sizeof(G.why));
}

static struct ps_ctx watch_ctx;

/* ---- a fork's child: descriptors that only the parent's engine has ---- */

static int take_fd_by(int pidfd, int fd)
{
	char path[64];
	int got = pidfd < 0 ? -EBADF : (int)sys_call3(SYS_pidfd_getfd, pidfd, fd, 0);

	if (got >= 0)
		return got;
	/* Where tracing is restricted (Yama), /proc still is not. */
	ps_format(path, sizeof(path), "%u/fd/%u", (u64)G.parent_engine, (u64)fd);
	got = (int)sys_openat(G.ps.proc_fd, path, O_RDWR | O_CLOEXEC);
	return got == -EISDIR ? (int)sys_openat(G.ps.proc_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC) :
				got;
}

static int take_fd(int fd)
{
	int pidfd = pidfd_open(G.parent_engine), got = take_fd_by(pidfd, fd);

	if (pidfd >= 0)
		sys_close(pidfd);
	return got;
}

static int take_proc_fd(void)
{
	return G.parent_engine ? take_fd(G.parent_proc_fd) : -1;
}

static int take_store_fds(void)
{
	struct pswap *ps = &G.ps;
	int at = 0, ret = 0, pidfd = pidfd_open(G.parent_engine);

	for (unsigned i = 0; i < ps->nr_stores; i++) {
		int n = G.nr_store_fds[i];
		int err = 0;

		if (ps->stores[i]->counts_as_memory)
			continue;
		if (G.store_dir_fd[i] >= 0)
			store_file_set_dir(ps->stores[i], take_fd_by(pidfd, G.store_dir_fd[i]));
		if (n <= 0)
			continue;
		for (int k = 0; k < n; k++) {
			G.store_fds[at + k] = at + k < G.nr_lent_fds && G.lent_fds[at + k] >= 0 ?
						      G.lent_fds[at + k] :
						      take_fd_by(pidfd, G.store_fds[at + k]);
			if (G.store_fds[at + k] < 0)
				err = G.store_fds[at + k];
		}
		store_file_set_fds(ps->stores[i], G.store_fds + at, n);
		if (err && store_file_missing(ps->stores[i]))
			ret = err;
		at += n;
	}
	if (pidfd >= 0)
		sys_close(pidfd);
	return ret;
}

static int start(bool restart)
{
	struct pswap *ps = &G.ps;
	int ret;

	ps->inherit_proc = take_proc_fd;
	ps->program_pid = G.pid;
	G.step = "open";
	ret = restart ? engine_open_fds(ps) : open_engine();

	if (ret == 0 && !ps->caps.move) {
		ps_format(G.why, sizeof(G.why),
			  "this kernel has no UFFDIO_MOVE (Linux 6.8), which run mode needs");
		ret = -ENOSYS;
	}
	if (ret == 0 && !ps->caps.events)
		ret = -ENOSYS;
	if (ret == 0) {
		G.step = "bells";
		ret = open_bells();
	}
	if (ret == 0 && restart) {
		G.step = "stores";
		ret = take_store_fds();
	}
	fork_settled(true);
	if (ret == 0 && restart) {
		G.step = "register";
		event_apply_put_off(control_ctx());
		ret = adopt_reregister();
	}
	if (ret == 0) {
		G.step = "watch";
		ret = watch_open();
	}
	if (ret == 0) {
		G.step = "threads";
		ret = proc_spawn(ps, watch_program, &watch_ctx);
	}
	if (ret == 0)
		ret = engine_start(ps, proc_spawn);
	if (ret == 0)
		ret = watch_start_guard();
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
		if (!restart)
			ps_log("%s (process %u): %s: it runs unswapped", G.member->comm,
			       (u64)G.pid, G.why[0] ? G.why : "the engine cannot start");
		relaxed_store(&G.member->state, PS_MEMBER_UNSWAPPED);
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
