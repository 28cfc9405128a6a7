/* SPDX-License-Identifier: MIT */
/*
 * swap_cache.h - frames: 2 MiB pieces of pswap's memory into which pages of one extent are moved,
 * out of the program's view.  A page that came from the program is never written here: a pipe or
 * a device may still refer to it.
 *
 * A frame is registered with the *same* userfaultfd as the program's memory while it is in use, so
 * that a MOVE into it meets EAGAIN when a VM event waits to be read; it is unregistered before its
 * memory is dropped, so that the drop raises no event (docs/decisions/004).
 */
#ifndef PS_SWAP_CACHE_H
#define PS_SWAP_CACHE_H

#include "types.h"

/* A new, empty, registered frame for e (not yet its frame). NULL: no address space. */
struct frame *frame_alloc(struct pswap *ps, struct extent *e);
/* Drops what is left in f and the frame itself. e->io held, f->nr_live is 0, f not e->frame any
 * more. */
void frame_release(struct pswap *ps, struct frame *f);

/* Of an entry of /proc/PID/pagemap. */
#define PM_PRESENT (1ULL << 63)
#define PM_SWAP (1ULL << 62)
#define PM_GUARD (1ULL << 58)
#define PM_MMAP_EXCLUSIVE (1ULL << 56) /* no other process maps it */

/* Which of the 512 pages at addr are in memory or in the kernel's own swap: one bit each. -errno. */
int pages_present(struct pswap *ps, u64 addr, u64 bits[PTRS_PER_PMD / 64]);
/* The same, which are resident and mapped by another process too. */
int pages_shared(struct pswap *ps, u64 addr, u64 bits[PTRS_PER_PMD / 64]);

/* Is the page a guard (MADV_GUARD_INSTALL)? */
bool page_is_guard(struct pswap *ps, u64 addr);

/* Fresh zeroed memory for 512 pages, as one huge page when *huge comes back true. Give the unit
 * back with thp_put once its page was moved away. */
char *thp_get(struct pswap *ps, bool *huge);
void thp_put(struct pswap *ps, char *unit);

#endif
