/* SPDX-License-Identifier: MIT */
/*
 * handoff.h - serving the faults of one thread on the CPU it runs on.
 *
 * A fault is a switch to the handler and one back.  Between CPUs each way costs an interrupt and
 * the wake-up of an idle CPU: 63 us for a fault here, 22 when the handler spins; on one CPU both are
 * plain context switches: 5 us (docs/decisions/006-handoff.md).  The scheduler does not do that by
 * itself, because it moves whoever wakes to the idle CPU.  So while the program faults at a high
 * rate, the threads that do (up to PS_BOUND_MAX) and one handler are bound to one CPU, the workers
 * to the others: several threads that mostly wait for faults are faster on one CPU, too.  The
 * binding ends when the rate falls, sooner for several threads (they compute, and want CPUs of their
 * own), every second (for the scheduler to have its say), and before the program could see it or
 * hand it on: hooks end it ahead of clone, fork, exec and calls about affinity.
 *
 * Only for programs we were put in front of (run mode): the caller of a library keeps its CPUs.
 */
#ifndef PS_HANDOFF_H
#define PS_HANDOFF_H

#include "types.h"

/* A handler got a fault of thread tid: begins or ends a binding if it is time. Without locks. */
void handoff_note(struct ps_ctx *ctx, pid_t tid);
/* Ends the binding, if there is one; none begins for hold_ns. Any thread of the engine. */
void handoff_end(struct pswap *ps, u64 hold_ns);
/* From the engine's clock, about ten times a second. */
void handoff_tick(struct pswap *ps);

static inline bool handoff_active(struct pswap *ps)
{
	return relaxed_load(&ps->handoff.bound) != 0;
}
/* This handler has nothing to read: another one serves everything. */
static inline bool handoff_elsewhere(struct ps_ctx *ctx)
{
	struct ps_handoff *h = &ctx->ps->handoff;

	return relaxed_load(&h->bound) && relaxed_load(&h->owner) != ctx->id;
}
/* This worker has no CPU of its own while the binding lasts. */
static inline bool handoff_spare(struct ps_ctx *ctx)
{
	struct ps_handoff *h = &ctx->ps->handoff;

	return relaxed_load(&h->bound) && ctx->id > PS_MAX_HANDLERS &&
	       ctx->id - PS_MAX_HANDLERS + 1 >= h->nr_cpus;
}

#endif
