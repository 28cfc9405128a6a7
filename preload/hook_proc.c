/* SPDX-License-Identifier: MIT */
/*
 * hook_proc.c - threads, forks, execs and what else must be known before it happens (hook.h says
 * under which rules).
 */
#include <linux/futex.h>
#include <linux/sched.h>
#include <sys/prctl.h>

#include "hook.h"
#include "hook_int.h"
#include "state.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define TCB_BYTES 2560 /* struct pthread of glibc 2.28 to 2.41 is 2304 bytes at most */
#define ROBUST_MAX 2048

/* ---- threads and processes ---- */

/* The kernel writes to a thread's control block when the thread ends, without waiting for a fault
 * (trap 6). Stacks of libc's own are never taken over; one given by the program may be. */
static void pin(u64 start, u64 end)
{
	u32 i;

	start &= PAGE_MASK;
	end = ALIGN_UP(end, PAGE_SIZE);
	if (mode() == MODE_ARMED) {
		ask(REQ_PIN, start, end, 0, 0);
		return;
	}
	if (adopt_excluded(start, end))
		return;
	i = relaxed_add(&G.nr_pins, 1);
	if (i < MAX_PINS) {
		relaxed_store(&G.pins[i].end, end);
		atomic_store(&G.pins[i].start, start);
	}
}

static void on_thread(u64 flags, u64 tls, u64 child_tid)
{
	/* A process that shares our memory, and may outlive us. */
	if (!(flags & (CLONE_THREAD | CLONE_VFORK)))
		atomic_store(&G.peers, 1);
	if (flags & CLONE_SETTLS)
		pin(tls, tls + TCB_BYTES);
	if (flags & CLONE_CHILD_CLEARTID)
		pin(child_tid, child_tid + 4);
}

/* A thread ends: the kernel will walk its list of held robust mutexes and mark them, without waiting
 * for faults. */
static void on_exit_thread(void)
{
	struct robust_list_head *head;
	struct robust_list *l;
	u64 tcb;

	if (mode() != MODE_ARMED || !G.robust_offset)
		return;
	__asm__("mov %%fs:0x10, %0" : "=r"(tcb));
	head = (struct robust_list_head *)(tcb + G.robust_offset);
	if (!head->list.next)
		return;
	l = (struct robust_list *)((uintptr_t)head->list.next & ~1UL);
	for (int i = 0; l != &head->list && l && i < ROBUST_MAX; i++) {
		u64 word = (u64)(uintptr_t)l + head->futex_offset;

		pin(word, word + 4);
		pin((u64)(uintptr_t)l, (u64)(uintptr_t)l + sizeof(*l));
		l = (struct robust_list *)((uintptr_t)l->next & ~1UL);
	}
	l = (struct robust_list *)((uintptr_t)head->list_op_pending & ~1UL);
	if (l)
		pin((u64)(uintptr_t)l + head->futex_offset, (u64)(uintptr_t)l + head->futex_offset + 4);
}

/* From now on a call of ours may be what kills the program: start the engine while we may. */
static void on_seccomp(void)
{
	if (mode() == MODE_COUNTING)
		start_engine();
	spin_while(&G.mode, MODE_STARTING);
	relaxed_store(&G.filtered, 1);
}

/* These operations write to a word in a way that does not wait for userfaultfd: EFAULT where the word
 * is not there. Bring it in. (Seen only when made through syscall(); libc's own priority-inheritance
 * locks touch the word just before.) */
static void on_futex(const long a[6])
{
	if (mode() != MODE_ARMED || relaxed_load(&G.filtered))
		return;
	switch (a[1] & FUTEX_CMD_MASK) {
	case FUTEX_WAKE_OP:
	case FUTEX_CMP_REQUEUE_PI:
		sys_call6(SYS_madvise, (long)(a[4] & PAGE_MASK), PAGE_SIZE, MADV_POPULATE_WRITE, 0,
			  0, 0);
		break;
	case FUTEX_LOCK_PI:
	case FUTEX_UNLOCK_PI:
	case FUTEX_TRYLOCK_PI:
	case 13: /* FUTEX_LOCK_PI2 */
		sys_call6(SYS_madvise, (long)(a[0] & PAGE_MASK), PAGE_SIZE, MADV_POPULATE_WRITE, 0,
			  0, 0);
		break;
	}
}

/* A range can have one userfaultfd: the program's own comes first, where it is not too late. */
static void on_userfaultfd(void)
{
	if (mode() == MODE_COUNTING)
		start_engine();
	spin_while(&G.mode, MODE_STARTING);
	if (mode() >= MODE_ENGINE)
		ask(REQ_OWN_UFFD, 0, 0, 0, 0);
}

/* ---- fork (fork.c has what comes of it) ---- */

/* What the call writes to or reads is there until it is over. */
static void pin_ids(u64 flags, u64 parent_tid, u64 child_tid)
{
	u64 addr[2] = { flags & (CLONE_PARENT_SETTID | CLONE_PIDFD) ? parent_tid : 0,
			flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID) ? child_tid : 0 };

	/* The child's is written before anything of ours runs there; a page that is not there then would
	 * be a new one, of zeros. */
	for (unsigned i = 0; i < ARRAY_SIZE(addr); i++)
		if (addr[i] && mode() == MODE_ARMED && !adopt_excluded(addr[i], addr[i] + 4))
			ask(REQ_PIN, addr[i] & PAGE_MASK, ALIGN_UP(addr[i] + 4, PAGE_SIZE), 0, 0);
}

static struct fork_call *take_call(const long *arg)
{
	for (;;) {
		for (unsigned i = 0; i < MAX_FORK_CALLS; i++) {
			u64 zero = 0;

			if (!relaxed_load(&G.fork_calls[i].key) &&
			    atomic_compare_exchange_strong(&G.fork_calls[i].key, &zero,
							   (u64)(uintptr_t)arg))
				return &G.fork_calls[i];
		}
		sys_call6(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
	}
}

/*
 * A child in a new user namespace has no rights over our engine, so it could not take over the descriptors
 * of the file stores: it inherits copies.  The engine waits, so there is no new one meanwhile.
 */
static void lend_fds(u64 flags)
{
	long pidfd;
	int nr = 0;

	if (!(flags & CLONE_NEWUSER) || (flags & CLONE_VFORK) || G.fork_foreign ||
	    mode() != MODE_ARMED || relaxed_load(&G.filtered))
		return;
	pidfd = sys_call6(SYS_pidfd_open, G.engine_pid, 0, 0, 0, 0, 0);
	if (pidfd < 0)
		return;
	for (unsigned i = 0; i < G.ps.nr_stores; i++)
		nr += G.nr_store_fds[i] > 0 ? G.nr_store_fds[i] : 0;
	for (int k = 0; k < nr; k++)
		G.lent_fds[k] = (int)sys_call6(SYS_pidfd_getfd, pidfd, G.store_fds[k], 0, 0, 0, 0);
	G.nr_lent_fds = nr;
	G.lent_shared = flags & CLONE_FILES;
	sys_call6(SYS_close, pidfd, 0, 0, 0, 0, 0);
}

void hook_drop_lent(void)
{
	for (int k = 0; k < G.nr_lent_fds; k++)
		if (G.lent_fds[k] >= 0)
			sys_call6(SYS_close, G.lent_fds[k], 0, 0, 0, 0, 0);
	G.nr_lent_fds = 0;
}

static int on_fork(u64 flags, u64 parent_tid, u64 child_tid, const long *arg)
{
	u64 old = block_signals();
	struct fork_call *c = take_call(arg);
	bool engine;

	pin_ids(flags, parent_tid, child_tid);
	c->mask = old;
	c->ticket = fork_lock(flags & CLONE_VFORK);
	spin_while(&G.mode, MODE_STARTING);
	engine = mode() == MODE_ENGINE || mode() == MODE_ARMED;
	G.fork_ticket = c->ticket;
	G.fork_mask = old;
	G.fork_engine = engine;
	atomic_store(&c->done, 0);
	atomic_store(&c->quiet, engine);
	if (engine && ask(REQ_FORK, flags, (u64)(c - G.fork_calls), 0, 0) == NOBODY) {
		G.fork_engine = false;
		atomic_store(&c->quiet, 0);
	}
	if (G.fork_engine)
		lend_fds(flags);
	return HOOK_FORK;
}

static void parent_after_fork(long ret, const long *arg)
{
	struct fork_call *c = G.fork_calls;
	u64 mask;

	while (relaxed_load(&c->key) != (u64)(uintptr_t)arg)
		c++;
	atomic_store(&c->done, ret > 0 ? 1 : 2);
	spin_while(&c->quiet, 1);
	mask = c->mask;
	/* None for a vfork, and another fork may be on its way. In a shared table the child closes them. */
	if (!(c->ticket & 1) && !G.lent_shared)
		hook_drop_lent();
	else if (!(c->ticket & 1))
		G.nr_lent_fds = 0;
	fork_unlock(c->ticket);
	atomic_store(&c->key, 0);
	restore_signals(mask);
}

void hook_post_fork(long ret, const long *arg)
{
	if (ret != 0) {
		parent_after_fork(ret, arg);
		return;
	}
	fork_child_state();
	restore_signals(G.fork_mask);
}

/* The call could show, or hand on, that this thread shares a CPU with a handler (handoff.c). */
static void unbind(void)
{
	if (relaxed_load(&G.ps.handoff.bound))
		ask(REQ_UNBIND, 0, 0, 0, 0);
}

int hook_pre(long nr, const long a[6], int site)
{
	const struct clone_args *ca;

	(void)site;
	if (mode() == MODE_OFF)
		return HOOK_PASS;
	switch (nr) {
	case SYS_clone:
		if (!(a[0] & CLONE_VM))
			return on_fork((u64)a[0], a[2], a[3], a);
		unbind();
		on_thread(a[0], a[4], a[3]);
		break;
	case SYS_clone3:
		ca = (const struct clone_args *)a[0];
		if ((size_t)a[1] < CLONE_ARGS_SIZE_VER0)
			break;
		if (!(ca->flags & CLONE_VM))
			return on_fork(ca->flags, ca->flags & CLONE_PARENT_SETTID ?
				       ca->parent_tid : ca->pidfd, ca->child_tid, a);
		unbind();
		on_thread(ca->flags, ca->tls, ca->child_tid);
		break;
	case SYS_fork:
		return on_fork(0, 0, 0, a);
	case SYS_vfork:
	case SYS_sched_getaffinity:
	case SYS_sched_setaffinity:
		unbind();
		break;
	case SYS_exit:
		on_exit_thread();
		break;
	case SYS_execve:
	case SYS_execveat:
		unbind();
		atomic_store(&G.exec_seen, 1);
		hook_exec(nr, a);
		break;
	case SYS_prctl:
		if ((int)a[0] == PR_SET_SECCOMP)
			on_seccomp();
		if ((int)a[0] == PR_SET_CHILD_SUBREAPER && a[1])
			proc_note_reaper();
		break;
	case SYS_seccomp:
		on_seccomp();
		break;
	case SYS_futex:
		on_futex(a);
		break;
	case SYS_userfaultfd:
		on_userfaultfd();
		break;
	}
	return HOOK_PASS;
}

void hook_swapoff(void)
{
	if (mode() == MODE_ARMED)
		ask(REQ_SWAPOFF, 0, 0, 0, 0);
}
