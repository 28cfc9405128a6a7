/* SPDX-License-Identifier: MIT */
/*
 * pagetable.h - address -> where the page is.  Two sparse levels lead to a struct extent for each
 * 2 MiB; its pmd entry holds nothing, a whole-2 MiB fact, or a table of 512 ptes.  Whole facts are
 * what makes unmapping cheap: one step for 512 pages.
 */
#ifndef PS_PAGETABLE_H
#define PS_PAGETABLE_H

#include "types.h"

int pt_init(struct ps_mm *mm);
void pt_free(struct ps_mm *mm); /* every pte must be PTE_NONE */

/* The extent of addr, or NULL when there is none yet. No lock needed; extents live as long as mm. */
struct extent *pt_find(struct ps_mm *mm, u64 addr);
/* The same, made when missing. NULL: out of memory. */
struct extent *pt_get(struct ps_mm *mm, u64 addr);
/* The first extent at or after the one of addr whose start is below end; NULL when there is none. */
struct extent *pt_next(struct ps_mm *mm, u64 addr, u64 end);

static inline unsigned pt_index(u64 addr)
{
	return (addr >> PAGE_SHIFT) & (PTRS_PER_PMD - 1);
}
static inline u64 pt_addr(const struct extent *e, unsigned i)
{
	return e->addr + ((u64)i << PAGE_SHIFT);
}

/* All below: extent.lock held. */
pte_t pte_get(struct extent *e, unsigned i);
/* PMD_TABLE: i, or the first page after it that may have a pte; 512: none has. */
static inline unsigned pte_skip(const struct extent *e, unsigned i)
{
	while (i < PTRS_PER_PMD && !e->table->block[i / BLOCK_PAGES])
		i = ALIGN_DOWN(i, BLOCK_PAGES) + BLOCK_PAGES;
	return i;
}
/* Sets one pte; turns a whole-2 MiB fact into a table first where needed. Keeps the counts. */
void pte_set(struct extent *e, unsigned i, pte_t pte);
/* The whole extent becomes PTE_NONE / 512 consecutive slots of one cluster / 512 pages of its frame.
 * Whatever its ptes said before is forgotten, not freed. */
void pmd_clear(struct extent *e);
void pmd_set_swap(struct extent *e, swp_entry_t first);
void pmd_set_cached(struct extent *e);

/* e gets a frame, or has none any more. */
static inline void extent_set_frame(struct extent *e, struct frame *f)
{
	e->frame = f;
	relaxed_store(&e->folio.held, f != NULL);
}

/* Which pages are resident, as far as we know. */
static inline bool present_test(const struct extent *e, unsigned i)
{
	return e->present[i / 64] >> (i % 64) & 1;
}
void present_set(struct extent *e, unsigned i, unsigned nr);
void present_clear(struct extent *e, unsigned i, unsigned nr);

#endif
