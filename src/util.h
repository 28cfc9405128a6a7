/* SPDX-License-Identifier: MIT */
/*
 * util.h - the few definitions every file of pswap uses: sizes, integer names, bit helpers and the
 * two strengths of assertion.
 *
 * The engine runs beside a program whose heap, .data and libc state it must never touch (see
 * docs/design.md, "Where the engine runs").  So nothing under src/ may call malloc, stdio or
 * anything that uses thread-local storage, errno included.  memcpy, memset, memmove, memcmp and
 * strlen are fine: they have no state.
 */
#ifndef PS_UTIL_H
#define PS_UTIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#define PAGE_SHIFT 12
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define PMD_SHIFT 21
#define PMD_SIZE (1UL << PMD_SHIFT)
#define PMD_MASK (~(PMD_SIZE - 1))
#define PTRS_PER_PMD 512U /* pages in a pmd entry's 2 MiB */

#define KiB(x) ((u64)(x) << 10)
#define MiB(x) ((u64)(x) << 20)
#define GiB(x) ((u64)(x) << 30)

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define ALIGN_UP(x, a) (((x) + ((a) - 1)) & ~((__typeof__(x))(a) - 1))
#define ALIGN_DOWN(x, a) ((x) & ~((__typeof__(x))(a) - 1))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#define PS_CACHELINE 64

/* A state the code cannot go on from.  Writes one line and ends the process by SIGABRT: memory
 * whose bookkeeping is wrong must not be handed to the program. */
_Noreturn void ps_bug(const char *file, int line, const char *what);

/* Always on: cheap checks of what keeps the program's bytes right. */
#define ps_assert(x) (likely(x) ? (void)0 : ps_bug(__FILE__, __LINE__, #x))
/* Debug builds only (-DPS_DEBUG, implied by the sanitizer builds): dear or redundant checks. */
#ifdef PS_DEBUG
#define ps_debug_assert(x) ps_assert(x)
#else
#define ps_debug_assert(x) ((void)sizeof(!(x)))
#endif

#define relaxed_load(p) atomic_load_explicit((p), memory_order_relaxed)
#define relaxed_store(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define relaxed_add(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define relaxed_sub(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_relaxed)

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("" ::: "memory");
#endif
}

#endif
