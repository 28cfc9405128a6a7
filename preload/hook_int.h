/* SPDX-License-Identifier: MIT */
/*
 * hook_int.h - what hook.c (memory) and hook_proc.c (threads, processes) have in common.  All of it
 * runs under the rules of hook.h.
 */
#ifndef PS_HOOK_INT_H
#define PS_HOOK_INT_H

#include <linux/futex.h>
#include <signal.h>

#include "state.h"

#define NSIG_BYTES 8
#define SPINS 1000U
#define SPIN_NAP_NS 200000

#define NOBODY (-100000L) /* no errno is that large */

/* Asks the engine and waits for its answer. */
long ask(enum request_op op, u64 a, u64 b, u64 c, u64 d);
void start_engine(void);
/* execve, execveat: makes the call with what keeps the program in the tree, where that was left out.
 * Returns when there is nothing to add, or the call failed. */
void hook_exec(long nr, const long a[6]);

static inline u32 mode(void)
{
	return atomic_load_explicit(&G.mode, memory_order_acquire);
}

/* ---- waiting; lock.c may be compiled to vector code ---- */

static inline void futex(_Atomic u32 *word, int op, u32 val)
{
	sys_call6(SYS_futex, SYS_ARG(word), op | FUTEX_PRIVATE_FLAG, val, 0, 0, 0);
}

/* Whoever changes the word need not wake us, and may need this CPU, whatever our priority is. */
static inline void spin_while(_Atomic u32 *word, u32 val)
{
	const struct timespec nap = { .tv_nsec = SPIN_NAP_NS };

	for (unsigned spins = 0; atomic_load(word) == val; spins++) {
		if (spins < SPINS)
			cpu_relax();
		else
			sys_call6(SYS_futex, SYS_ARG(word), FUTEX_WAIT | FUTEX_PRIVATE_FLAG, val,
				  SYS_ARG(&nap), 0, 0);
	}
}

/* One fork, or start of the engine, at a time. The ticket of the holder is the answer. */
static inline u32 fork_lock(bool vfork)
{
	const struct timespec nap = { .tv_nsec = SPIN_NAP_NS };
	u32 ticket = (atomic_fetch_add(&G.fork_page->next, 2) + 2) | vfork;

	for (;;) {
		u32 held = 0;

		if (atomic_compare_exchange_strong(&G.fork_lock, &held, ticket))
			return ticket;
		/* Its child is made, and the rest of its call may last. */
		if ((held & 1) && fork_made(G.fork_page, held) &&
		    atomic_compare_exchange_strong(&G.fork_lock, &held, ticket))
			return ticket;
		sys_call6(SYS_futex, SYS_ARG(&G.fork_lock), FUTEX_WAIT | FUTEX_PRIVATE_FLAG, held,
			  SYS_ARG(&nap), 0, 0);
	}
}

/* Unless another has it already. */
static inline void fork_unlock(u32 ticket)
{
	if (atomic_compare_exchange_strong(&G.fork_lock, &ticket, 0))
		futex(&G.fork_lock, FUTEX_WAKE, 1);
}

static inline u64 block_signals(void)
{
	u64 all = ~0UL, old = 0;

	sys_call6(SYS_rt_sigprocmask, SIG_SETMASK, SYS_ARG(&all), SYS_ARG(&old), NSIG_BYTES, 0, 0);
	return old;
}

static inline void restore_signals(u64 old)
{
	sys_call6(SYS_rt_sigprocmask, SIG_SETMASK, SYS_ARG(&old), 0, NSIG_BYTES, 0, 0);
}

#endif
