/* SPDX-License-Identifier: MIT */
/*
 * arena.h - where all memory of pswap itself comes from.  One arena per process, private anonymous
 * mappings, so that a fork copies it with everything else (docs/decisions: what a fork does to the
 * pool).  Nothing here uses malloc.  All functions are thread-safe.
 *
 * Three shapes: 2 MiB units (segments, frames), mappings of any size (tables), small objects.
 */
#ifndef PS_ARENA_H
#define PS_ARENA_H

#include "lock.h"

#define ARENA_UNIT PMD_SIZE

enum arena_kind {
	ARENA_META,  /* tables, small objects, stacks */
	ARENA_POOL,  /* segments of the RAM store */
	ARENA_FRAME, /* frames of the swap cache */
	ARENA_NR_KINDS,
};

/* A 2 MiB aligned, 2 MiB long piece of zeroed memory with MADV_HUGEPAGE set, nothing of it touched
 * yet; NULL when no address space is left. */
void *arena_get_unit(enum arena_kind kind);
/* Gives a unit back: its memory returns to the system at once (MADV_DONTNEED), its address range
 * is kept for the next get. The unit must not be registered with a userfaultfd. */
void arena_put_unit(enum arena_kind kind, void *unit);

/* A zeroed mapping of size bytes (rounded up to pages; 2 MiB aligned if size >= 2 MiB); memory
 * is used as it is touched. NULL: out of address space. */
void *arena_map(size_t size);
void arena_unmap(void *p, size_t size);

/* Small objects, zeroed, aligned to their power-of-two size class (16 to 4096 bytes). The size
 * given to arena_free is the one given to arena_alloc. NULL: out of memory. */
void *arena_alloc(size_t size);
void arena_free(void *p, size_t size);

/* Is addr inside memory of pswap?  And the next range at or after addr: false if none. */
bool arena_owns(const void *addr);
bool arena_next_range(uintptr_t addr, uintptr_t *start, uintptr_t *end);
/* Between the two nothing is mapped or unmapped, and nobody may allocate; the ranges are asked for by
 * the _frozen one. */
void arena_freeze(void);
void arena_thaw(void);
bool arena_next_range_frozen(uintptr_t addr, uintptr_t *start, uintptr_t *end);

/* Bytes of units now handed out (POOL, FRAME), or for META of mappings and small objects. */
u64 arena_bytes(enum arena_kind kind);

/* The program asked for all future mappings to be locked (MCL_FUTURE): ours are to be unlocked before
 * they can be touched. */
void arena_lock_future(bool on);

/* In a fork's child, before any other thread exists: forget locks that a thread of the parent may
 * have held. The caller has made sure that no operation was half done. */
void arena_after_fork(void);

#endif
