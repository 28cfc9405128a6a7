/* SPDX-License-Identifier: MIT */
/* handoff.c - see handoff.h. */
#include "handoff.h"
#include "log.h"

#define RUN_FAULTS 64		   /* so many faults of one thread */
#define RUN_NS 20000000ULL	   /* in so short a time begin a binding, */
#define RUN_MIXED_NS 10000000ULL   /* of several threads in this */
#define TICK_NS 100000000ULL
#define FEW_FAULTS 50		   /* in a tick: it is not worth it any more; of several threads, */
#define FEW_MIXED 2000		   /* they compute more than they wait, and want CPUs of their own */
#define LONGEST_NS 1000000000ULL
#define HOLD_MIN_NS 50000000ULL	   /* after a binding that was no good; doubles each time, */
#define HOLD_MAX_NS 5000000000ULL  /* up to this */

static long get_mask(pid_t tid, u64 mask[PS_CPU_WORDS])
{
	memset(mask, 0, PS_CPU_WORDS * sizeof(u64));
	return sys_call3(SYS_sched_getaffinity, tid, PS_CPU_WORDS * sizeof(u64), mask);
}

static long set_mask(pid_t tid, const u64 mask[PS_CPU_WORDS])
{
	return sys_call3(SYS_sched_setaffinity, tid, PS_CPU_WORDS * sizeof(u64), mask);
}

static void one_cpu(u64 mask[PS_CPU_WORDS], unsigned cpu)
{
	memset(mask, 0, PS_CPU_WORDS * sizeof(u64));
	mask[cpu / 64] = 1ULL << (cpu % 64);
}

static bool in_mask(const u64 mask[PS_CPU_WORDS], unsigned cpu)
{
	return cpu < PS_CPU_WORDS * 64 && (mask[cpu / 64] >> (cpu % 64) & 1);
}

/* Another process of the tree is bound to this CPU. */
static bool taken(struct pswap *ps, unsigned cpu)
{
	struct ps_shm *shm = ps->shm;
	unsigned n = shm ? relaxed_load(&shm->nr_members) : 0;

	for (unsigned i = 0; i < n && i < PS_SHM_MEMBERS; i++) {
		struct ps_member *m = &shm->members[i];

		if (m != ps->stat && relaxed_load(&m->handoff_bound) == cpu + 1 &&
		    relaxed_load(&m->pid) && relaxed_load(&m->state) == PS_MEMBER_ARMED)
			return true;
	}
	return false;
}

/* The CPU we are on if it will do, else the first that does; -1: none. */
static int choose_cpu(struct pswap *ps, const u64 allowed[PS_CPU_WORDS], unsigned *nr)
{
	struct ps_handoff *h = &ps->handoff;
	unsigned here = 0;
	int cpu = -1;

	sys_call3(SYS_getcpu, &here, NULL, NULL);
	*nr = 0;
	for (unsigned c = 0; c < PS_CPU_WORDS * 64; c++) {
		*nr += in_mask(h->own, c);
		if (in_mask(allowed, c) && in_mask(h->own, c) && (cpu < 0 || c == here) &&
		    !taken(ps, c))
			cpu = (int)c;
	}
	return cpu;
}

static void bind_workers(struct pswap *ps, const u64 mask[PS_CPU_WORDS])
{
	for (unsigned i = 0; i < ps->cfg.nr_workers; i++) {
		pid_t tid = relaxed_load(&ps->ctx[PS_MAX_HANDLERS + i]->tid);

		if (tid)
			set_mask(tid, mask);
	}
}

/* Takes tid in. h->lock held. False: it cannot be. */
static bool bind_thread(struct ps_handoff *h, pid_t tid, unsigned cpu)
{
	u64 mask[PS_CPU_WORDS];

	if (get_mask(tid, h->mask[h->nr]) < 0 || !in_mask(h->mask[h->nr], cpu))
		return false;
	one_cpu(mask, cpu);
	if (set_mask(tid, mask) < 0)
		return false;
	h->tid[h->nr] = tid;
	relaxed_add(&h->nr, 1);
	return true;
}

/* h->lock held. */
static void begin(struct ps_ctx *ctx, pid_t tid)
{
	struct pswap *ps = ctx->ps;
	struct ps_handoff *h = &ps->handoff;
	u64 mask[PS_CPU_WORDS];
	int cpu;

	/* Another user's, or a filter: it will not become possible later. */
	if (get_mask(0, h->own) < 0 || get_mask(tid, mask) < 0) {
		h->off = true;
		return;
	}
	cpu = choose_cpu(ps, mask, &h->nr_cpus);
	if (cpu < 0 || h->nr_cpus < 2 || !bind_thread(h, tid, (unsigned)cpu)) {
		relaxed_store(&h->not_before_ns, ps_now_ns() + HOLD_MAX_NS);
		return;
	}
	h->started_ns = h->tick_ns = ps_now_ns();
	relaxed_store(&h->faults, 0);
	relaxed_store(&h->owner, ctx->id);
	one_cpu(mask, (unsigned)cpu);
	set_mask(0, mask);
	for (unsigned w = 0; w < PS_CPU_WORDS; w++)
		mask[w] = h->own[w] & ~mask[w];
	bind_workers(ps, mask);
	relaxed_store(&ps->stat->handoff_bound, (u32)cpu + 1);
	atomic_store(&h->bound, (u32)cpu + 1);
	stat_inc(ps->stat, handoffs);
}

/* h->lock held, bound. */
static void end(struct pswap *ps)
{
	struct ps_handoff *h = &ps->handoff;
	u64 mask[PS_CPU_WORDS], now[PS_CPU_WORDS];

	one_cpu(mask, h->bound - 1);
	/* Where it is not what we set, the program has set it since: its wish stays. */
	for (u32 i = 0; i < h->nr; i++)
		if (get_mask(h->tid[i], now) >= 0 && memcmp(now, mask, sizeof(mask)) == 0)
			set_mask(h->tid[i], h->mask[i]);
	relaxed_store(&h->nr, 0);
	if (ps->ctx[h->owner]->tid)
		set_mask(ps->ctx[h->owner]->tid, h->own);
	bind_workers(ps, h->own);
	relaxed_store(&ps->stat->handoff_bound, 0);
	atomic_store(&h->bound, 0);
	/* The other handlers read again. */
	sys_call3(SYS_write, ps->kick_fd, &(u64){ 1 }, sizeof(u64));
}

void handoff_end(struct pswap *ps, u64 hold_ns)
{
	struct ps_handoff *h = &ps->handoff;

	ps_mutex_lock(&h->lock);
	if (hold_ns)
		relaxed_store(&h->not_before_ns, ps_now_ns() + hold_ns);
	if (h->bound)
		end(ps);
	ps_mutex_unlock(&h->lock);
}

/* It did more harm than good: not again for a while. */
static void end_for_longer(struct pswap *ps)
{
	struct ps_handoff *h = &ps->handoff;

	h->hold_ns = MIN(MAX(h->hold_ns * 2, HOLD_MIN_NS), HOLD_MAX_NS);
	handoff_end(ps, h->hold_ns);
}

/* A fault while bound. */
static void note_bound(struct pswap *ps, pid_t tid)
{
	struct ps_handoff *h = &ps->handoff;
	bool full = false;

	relaxed_add(&h->faults, 1);
	for (u32 i = 0; i < relaxed_load(&h->nr); i++)
		if (h->tid[i] == tid)
			return;
	if (ps_mutex_trylock(&h->lock)) {
		if (h->bound)
			full = h->nr == PS_BOUND_MAX || !bind_thread(h, tid, h->bound - 1);
		ps_mutex_unlock(&h->lock);
	}
	if (full)
		end_for_longer(ps);
}

void handoff_note(struct ps_ctx *ctx, pid_t tid)
{
	struct pswap *ps = ctx->ps;
	struct ps_handoff *h = &ps->handoff;
	u64 now;

	if (!ps->cfg.handoff || !ps->caps.thread_id || h->off || !tid)
		return;
	if (relaxed_load(&h->bound)) {
		note_bound(ps, tid);
		return;
	}
	if (!ctx->run) {
		ctx->run_tid = tid;
		ctx->run_mixed = false;
		ctx->run_ns = ps_now_ns();
	}
	ctx->run_mixed |= tid != ctx->run_tid;
	if (++ctx->run < RUN_FAULTS)
		return;
	ctx->run = 0;
	now = ps_now_ns();
	if (now - ctx->run_ns > (ctx->run_mixed ? RUN_MIXED_NS : RUN_NS) ||
	    now < relaxed_load(&h->not_before_ns))
		return;
	if (ps_mutex_trylock(&h->lock)) {
		if (!h->bound)
			begin(ctx, tid);
		ps_mutex_unlock(&h->lock);
	}
}

void handoff_tick(struct pswap *ps)
{
	struct ps_handoff *h = &ps->handoff;
	u64 now = ps_now_ns();
	u32 faults;

	if (!relaxed_load(&h->bound) || now - h->tick_ns < TICK_NS)
		return;
	h->tick_ns = now;
	faults = atomic_exchange(&h->faults, 0);
	if (relaxed_load(&h->nr) > 1 && faults < FEW_MIXED) {
		end_for_longer(ps);
	} else if (faults < FEW_FAULTS || now - h->started_ns > LONGEST_NS) {
		h->hold_ns = 0;
		handoff_end(ps, 0);
	}
}
