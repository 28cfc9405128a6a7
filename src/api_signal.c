/* SPDX-License-Identifier: MIT */
/*
 * api_signal.c - signal mode: UFFD_FEATURE_SIGBUS makes the kernel send SIGBUS instead of a message,
 * and the faulting thread serves itself.  It saves two thread switches a fault; system calls that
 * meet swapped memory fail with EFAULT, which is why only the API has it.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "api.h"
#include "fault.h"
#include "log.h"
#include "pagetable.h"
#include "region.h"

#define MAX_ENGINES 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct pswap *_Atomic engines[MAX_ENGINES];
static _Atomic unsigned users; /* handlers at work */
static struct sigaction old_action;
static unsigned installed;

static bool ours(struct pswap *ps, u64 addr)
{
	bool found;

	ps_rwlock_read_lock(&ps->mm.gate);
	found = region_find(&ps->mm, addr) != NULL;
	ps_rwlock_read_unlock(&ps->mm.gate);
	return found;
}

static bool poisoned(struct pswap *ps, u64 addr)
{
	struct extent *e = pt_find(&ps->mm, addr);
	bool bad;

	if (!e)
		return false;
	ps_mutex_lock(&e->lock);
	bad = pte_kind(pte_get(e, pt_index(addr))) == PTE_POISON;
	ps_mutex_unlock(&e->lock);
	return bad;
}

/* One of the handler contexts, which no thread uses in this mode. */
static struct ps_ctx *get_ctx(struct pswap *ps)
{
	for (;;) {
		for (unsigned i = 0; i < PS_MAX_HANDLERS; i++)
			if (ps_mutex_trylock(&ps->ctx[i]->busy))
				return ps->ctx[i];
		sys_call0(SYS_sched_yield);
	}
}

static void pass_on(int sig, siginfo_t *info, void *uc)
{
	if (old_action.sa_flags & SA_SIGINFO) {
		old_action.sa_sigaction(sig, info, uc);
	} else if (old_action.sa_handler != SIG_DFL && old_action.sa_handler != SIG_IGN) {
		old_action.sa_handler(sig);
	} else {
		/* By default the process ends: let the instruction fault again under it. */
		struct sigaction dfl = { .sa_handler = SIG_DFL };

		sigaction(sig, &dfl, NULL);
	}
}

static void on_sigbus(int sig, siginfo_t *info, void *uc)
{
	u64 addr = (u64)(uintptr_t)info->si_addr & PAGE_MASK;
	int saved = errno;
	bool served = false;

	atomic_fetch_add(&users, 1);
	for (unsigned i = 0; i < MAX_ENGINES && !served; i++) {
		struct pswap *ps = engines[i];
		struct ps_ctx *ctx;

		if (!ps || !ours(ps, addr) || poisoned(ps, addr))
			continue;
		ctx = get_ctx(ps);
		ps_rwlock_read_lock(&ps->freeze);
		fault_serve(ctx, &ps->mm, addr, false);
		ps_rwlock_read_unlock(&ps->freeze);
		ps_mutex_unlock(&ctx->busy);
		served = !poisoned(ps, addr);
	}
	atomic_fetch_sub(&users, 1);
	if (!served)
		pass_on(sig, info, uc);
	errno = saved;
}

int api_signal_start(struct pswap *ps)
{
	struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_RESTART };
	int ret = -EMFILE;

	/* A handler of the program that ran inside ours, holding our locks, could touch our memory. */
	sigfillset(&sa.sa_mask);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < MAX_ENGINES && ret; i++) {
		if (engines[i])
			continue;
		engines[i] = ps;
		ret = 0;
	}
	if (ret == 0 && installed++ == 0)
		sigaction(SIGBUS, &sa, &old_action);
	pthread_mutex_unlock(&lock);
	return ret;
}

void api_signal_stop(struct pswap *ps)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < MAX_ENGINES; i++)
		if (engines[i] == ps)
			engines[i] = NULL;
	if (--installed == 0)
		sigaction(SIGBUS, &old_action, NULL);
	while (atomic_load(&users))
		cpu_relax();
	pthread_mutex_unlock(&lock);
}
