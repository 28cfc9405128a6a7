/* SPDX-License-Identifier: MIT */
/* engine.h - putting an engine together, starting and stopping its threads. */
#ifndef PS_ENGINE_H
#define PS_ENGINE_H

#include "store_spec.h"
#include "types.h"

/* Runs fn(ctx) on a new thread; 0 or -errno. */
typedef int (*ps_spawn_fn)(struct pswap *ps, void (*fn)(struct ps_ctx *ctx), struct ps_ctx *ctx);

/* Fills what depends on the environment: PSWAP_NO_MOVE, PSWAP_NO_THP, PSWAP_NO_POISON,
 * PSWAP_NO_HANDOFF, PSWAP_AROUND, PSWAP_FREE=entry, PSWAP_DRAIN=every; getval returns the value of a
 * name, or NULL. */
void engine_tune(struct pswap *ps, const char *(*getval)(const char *name));

/*
 * ps: zeroed, with cfg set and stat pointing somewhere.  Opens the stores (specs in order; dir: where
 * file stores without a path go), the userfaultfd and what else it needs.  0, or -errno with one
 * line in err; nothing is left open then.
 */
int engine_open(struct pswap *ps, const struct store_spec *specs, unsigned n, const char *dir,
		char *err, size_t err_size);
/* The descriptors alone (again, in a fork's child): userfaultfd and /proc/self. */
int engine_open_fds(struct pswap *ps);
int engine_start(struct pswap *ps, ps_spawn_fn spawn);
/* Asks the threads to stop; they end when they next look. */
void engine_stop(struct pswap *ps);
/* Everything back. No thread runs any more and every region is gone. */
void engine_close(struct pswap *ps);

#endif
