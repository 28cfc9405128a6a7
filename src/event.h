/* SPDX-License-Identifier: MIT */
/* event.h - reading the userfaultfd: faults and VM events. */
#ifndef PS_EVENT_H
#define PS_EVENT_H

#include "types.h"

/* The body of a handler thread. */
void event_handler(struct ps_ctx *ctx);

/* Frees announcements (pswap.inflight) whose call was left by a signal handler that jumped away. From the first
 * worker's clock. */
void event_age_inflight(struct pswap *ps);

/* Reads and handles one message of mm; false when there was none. */
bool event_step(struct ps_ctx *ctx, struct ps_mm *mm);

/*
 * Fork seen by the hook: freeze is held exclusively by the caller, who reads the EVENT_FORK that the
 * fork raises, and whatever comes before it. Faults are put off, except those of the thread `tid` that
 * forks, which has to get on. Returns the child's userfaultfd, or -EAGAIN when over() first (the fork
 * failed, or raised no event).
 */
int event_await_fork(struct ps_ctx *ctx, pid_t tid, bool (*over)(void *arg), void *arg);

/* Applies what event_await_fork has put off: by the child's engine, before it looks at its memory. */
void event_apply_put_off(struct ps_ctx *ctx);

#endif
