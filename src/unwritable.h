/* SPDX-License-Identifier: MIT */
/*
 * unwritable.h - taking pages out of memory that the program may not write to.
 *
 * UFFDIO_MOVE wants both sides writable and with the same rights.  Of memory with other rights:
 *
 *   PROT_READ, PROT_READ|PROT_EXEC   write-protected by userfaultfd, made writable by mprotect, moved, and made
 *                                    what it was.  Who writes in between faults, waits for e->io, and tries again
 *                                    when the right has gone: a SIGSEGV, as it should be.
 *   PROT_READ|PROT_WRITE|PROT_EXEC   the frame gets these rights for the moment of the move.
 *   PROT_NONE                        copied through /proc/self/mem and dropped: nobody can touch it.  Unlike a
 *                                    move this does not notice pages pinned for DMA.
 *
 * The program must not change the mapping meanwhile: its hooks of mprotect, munmap, mmap and mremap first announce
 * their range (pswap.inflight) and then wait for pswap.window to close; we first open the window and then look for
 * announcements.  A call that no hook sees can come in between and be undone; so where the program is seen to make
 * such calls, its read-only memory stays.
 */
#ifndef PS_UNWRITABLE_H
#define PS_UNWRITABLE_H

#include "types.h"

/* Makes the memory ready for it, where it is not; or says whether it ever can be.  io of an extent may be held, its
 * gate not. */
bool unwritable_prepare(struct ps_ctx *ctx);

/* Moves up to n pages of e, from page p on, into f; all are of one mapping, whose rights are prot.  Returns as
 * uffd_move() does; -EAGAIN: an event, or a call of the program, is in the way; -EACCES: unwritable_prepare() first.
 * e->io and the gate (shared) held. */
s64 unwritable_move(struct ps_ctx *ctx, struct extent *e, struct frame *f, unsigned p, unsigned n, u32 prot);

#endif
