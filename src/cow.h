/* SPDX-License-Identifier: MIT */
/*
 * cow.h - copies of pages that a fork left shared ask for room first.
 *
 * Who writes to such a page gets a copy from the kernel, and nobody is told: a process with 1 GiB resident may
 * so become 2 GiB as fast as memory can be copied.  Where that could break the limit, and the program has
 * begun to write, its memory is write-protected by userfaultfd (UFFDIO_WRITEPROTECT).  A write then
 * is a fault that is throttled like a first touch, and takes the protection off some pages.  Once
 * nothing is shared any more the protection goes.  Forks whose child soon execs or ends see none of
 * it.  docs/decisions/011.
 *
 * Run mode only, and only where the kernel's own accesses wait for us as well.
 */
#ifndef PS_COW_H
#define PS_COW_H

#include "types.h"

#define COW_MAX_PAGES 64U /* from which protection goes in one fault, at most */

/* Protects or lets go, as need be; from the first worker's clock. No lock held. */
void cow_tick(struct ps_ctx *ctx);
/* Is it worth to look more often: is there something to copy that there is no room for? */
bool cow_looming(struct pswap *ps);

/* Can memory be write-protected here? And makes it ready for that: 0, or -EAGAIN: an event must be read first. Gate
 * not held. */
bool cow_can_protect(struct pswap *ps);
int cow_register(struct ps_mm *mm);

/* A fault for writing at page i of e: takes the protection off. 0, or -EAGAIN: an event must be read first.
 * e->io held. */
int cow_fault(struct ps_ctx *ctx, struct extent *e, unsigned i);

/* Takes the protection off pages [i, i + n) of e, which the engine is going to write to, or which must never
 * wait for anybody. 0 or -EAGAIN. */
int cow_allow(struct extent *e, unsigned i, unsigned n);

/* A fork is about to be made, by a process with so many faults of its own; and in its child. */
void cow_forked(struct pswap *ps, u64 faults);

#endif
