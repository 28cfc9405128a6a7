/* SPDX-License-Identifier: MIT */
/* pagetable.c - see pagetable.h. */
#include "pagetable.h"
#include "arena.h"
#include "folio_batch.h"
#include "group.h"
#include "lru.h"
#include "swap_cache.h"

#define PT_ADDR_BITS 47
_Static_assert(PT_ADDR_BITS - PMD_SHIFT == 2 * PT_LEAF_BITS, "two levels cover user space");

static unsigned root_index(u64 addr)
{
	return addr >> (PMD_SHIFT + PT_LEAF_BITS);
}

static unsigned leaf_index(u64 addr)
{
	return (addr >> PMD_SHIFT) & (PT_LEAF_SIZE - 1);
}

int pt_init(struct ps_mm *mm)
{
	ps_lock_set_rank(&mm->gate, RANK_GATE);
	ps_lock_set_rank(&mm->table_lock, RANK_LEAF);
	mm->root = arena_map(PT_ROOT_SIZE * sizeof(*mm->root));
	return mm->root ? 0 : -ENOMEM;
}

void pt_free(struct ps_mm *mm)
{
	if (!mm->root)
		return;
	lru_add_drain_all(&mm->ps->lru);
	for (unsigned r = 0; r < PT_ROOT_SIZE; r++) {
		struct extent **leaf = mm->root[r];

		if (!leaf)
			continue;
		for (unsigned l = 0; l < PT_LEAF_SIZE; l++) {
			if (!leaf[l])
				continue;
			ps_assert(leaf[l]->pmd == PMD_NONE);
			folio_del_lru(&leaf[l]->folio);
			if (leaf[l]->frame)
				frame_release(mm->ps, leaf[l]->frame);
			if (leaf[l]->groups)
				arena_free(leaf[l]->groups, PTRS_PER_PMD * sizeof(u16));
			arena_free(leaf[l], sizeof(struct extent));
		}
		arena_unmap(leaf, PT_LEAF_SIZE * sizeof(*leaf));
	}
	arena_unmap((void *)mm->root, PT_ROOT_SIZE * sizeof(*mm->root));
	mm->root = NULL;
}

struct extent *pt_find(struct ps_mm *mm, u64 addr)
{
	struct extent **leaf;

	if (root_index(addr) >= PT_ROOT_SIZE)
		return NULL;
	leaf = atomic_load_explicit(&mm->root[root_index(addr)], memory_order_acquire);
	if (!leaf)
		return NULL;
	return __atomic_load_n(&leaf[leaf_index(addr)], __ATOMIC_ACQUIRE);
}

struct extent *pt_get(struct ps_mm *mm, u64 addr)
{
	struct extent *e = pt_find(mm, addr), **leaf;
	unsigned r = root_index(addr);

	if (e || r >= PT_ROOT_SIZE)
		return e;
	ps_mutex_lock(&mm->table_lock);
	leaf = mm->root[r];
	if (!leaf) {
		leaf = arena_map(PT_LEAF_SIZE * sizeof(*leaf));
		if (!leaf)
			goto out;
		atomic_store_explicit(&mm->root[r], leaf, memory_order_release);
	}
	e = leaf[leaf_index(addr)];
	if (!e) {
		e = arena_alloc(sizeof(*e));
		if (!e)
			goto out;
		ps_lock_set_rank(&e->io, RANK_IO);
		ps_lock_set_rank(&e->lock, RANK_EXTENT);
		e->mm = mm;
		e->addr = addr & PMD_MASK;
		folio_init(&e->folio, &mm->ps->lru.root);
		relaxed_add(&mm->ps->nr_extents, 1);
		__atomic_store_n(&leaf[leaf_index(addr)], e, __ATOMIC_RELEASE);
	}
out:
	ps_mutex_unlock(&mm->table_lock);
	return e;
}

struct extent *pt_next(struct ps_mm *mm, u64 addr, u64 end)
{
	addr &= PMD_MASK;
	while (addr < end && root_index(addr) < PT_ROOT_SIZE) {
		struct extent **leaf =
			atomic_load_explicit(&mm->root[root_index(addr)], memory_order_acquire);
		u64 leaf_end = (u64)(root_index(addr) + 1) << (PMD_SHIFT + PT_LEAF_BITS);

		if (!leaf) {
			addr = leaf_end;
			continue;
		}
		for (; addr < leaf_end && addr < end; addr += PMD_SIZE) {
			struct extent *e =
				__atomic_load_n(&leaf[leaf_index(addr)], __ATOMIC_ACQUIRE);

			if (e)
				return e;
		}
	}
	return NULL;
}

pte_t pte_get(struct extent *e, unsigned i)
{
	switch (e->pmd) {
	case PMD_SWAP:
		return pte_swap((swp_entry_t){ e->swap.val + i });
	case PMD_CACHED:
		return pte_make(PTE_CACHED);
	case PMD_TABLE:
		if (e->table->block[i / BLOCK_PAGES])
			return e->table->block[i / BLOCK_PAGES][i % BLOCK_PAGES];
		break;
	}
	return pte_make(PTE_NONE);
}

/* Out of address space inside a step that must not fail: there is no way to keep the program's
 * bytes right, so the process ends (ps_assert). The arena's META units make it a rare end. */
static void *table_alloc(struct extent *e, size_t size)
{
	void *p = arena_alloc(size);

	ps_assert(p);
	relaxed_add(&e->mm->ps->table_bytes, size);
	return p;
}

static void table_return(struct extent *e, void *p, size_t size)
{
	arena_free(p, size);
	relaxed_sub(&e->mm->ps->table_bytes, size);
}

/* Nothing becomes an empty table; a whole fact one whose blocks are a single piece of memory. */
static void split(struct extent *e)
{
	struct pte_table *table = table_alloc(e, sizeof(*table));
	pte_t *all = NULL;

	if (e->pmd != PMD_NONE) {
		all = table_alloc(e, PTRS_PER_PMD * sizeof(pte_t));
		for (unsigned i = 0; i < PTRS_PER_PMD; i++)
			all[i] = pte_get(e, i);
		for (unsigned b = 0; b < EXTENT_BLOCKS; b++)
			table->block[b] = all + b * BLOCK_PAGES;
	}
	e->nr_pte = all ? PTRS_PER_PMD : 0;
	e->table_whole = all != NULL;
	e->table = table;
	e->pmd = PMD_TABLE;
}

static void table_free(struct extent *e)
{
	if (e->table_whole)
		table_return(e, e->table->block[0], PTRS_PER_PMD * sizeof(pte_t));
	for (unsigned b = 0; !e->table_whole && b < EXTENT_BLOCKS; b++)
		if (e->table->block[b])
			table_return(e, e->table->block[b], BLOCK_PAGES * sizeof(pte_t));
	table_return(e, e->table, sizeof(*e->table));
}

/* extent.lock makes it the only writer. */
static void folio_count(struct extent *e, int by)
{
	relaxed_store(&e->folio.pages, relaxed_load(&e->folio.pages) + by);
}

/* Page i has that pte from now on (by > 0), or had it. */
static void count(struct extent *e, unsigned i, pte_t pte, int by)
{
	enum pte_kind kind = pte_kind(pte);

	if (kind == PTE_NONE)
		return;
	e->nr_pte += by;
	if (kind == PTE_SWAP) {
		e->nr_swap += by;
		relaxed_add(&e->mm->ps->stat->swapped_pages, (u64)(s64)by);
	} else if (kind == PTE_CACHED) {
		e->frame->nr_live += by;
		folio_count(e, by);
		if (groups_on(e->mm->ps))
			group_charge_bits(e, i & ~63U, 1ULL << (i % 64), by);
	}
}

void pte_set(struct extent *e, unsigned i, pte_t pte)
{
	pte_t **block;

	if (e->pmd == PMD_NONE && pte_kind(pte) == PTE_NONE)
		return;
	if (e->pmd != PMD_TABLE)
		split(e);
	block = &e->table->block[i / BLOCK_PAGES];
	if (!*block) {
		if (pte_kind(pte) == PTE_NONE)
			return;
		*block = table_alloc(e, BLOCK_PAGES * sizeof(pte_t));
	}
	count(e, i, (*block)[i % BLOCK_PAGES], -1);
	(*block)[i % BLOCK_PAGES] = pte;
	count(e, i, pte, 1);
	if (e->nr_pte == 0) {
		table_free(e);
		e->pmd = PMD_NONE;
	}
}

/* The bits of up to nr pages from page i on that lie in its word; *n: how many these are. */
static u64 word_bits(unsigned i, unsigned nr, unsigned *n)
{
	*n = MIN(nr, 64 - i % 64);
	return ~0ULL >> (64 - *n) << (i % 64);
}

void present_set(struct extent *e, unsigned i, unsigned nr)
{
	unsigned was = e->nr_present, n;

	for (; nr; i += n, nr -= n) {
		u64 bits = word_bits(i, nr, &n) & ~e->present[i / 64];

		e->nr_present += __builtin_popcountll(bits);
		e->present[i / 64] |= bits;
		if (groups_on(e->mm->ps) && bits)
			group_charge_bits(e, i & ~63U, bits, 1);
	}
	folio_count(e, e->nr_present - was);
	relaxed_add(&e->mm->ps->nr_resident, e->nr_present - was);
}

void present_clear(struct extent *e, unsigned i, unsigned nr)
{
	unsigned was = e->nr_present, n;

	for (; nr && e->nr_present; i += n, nr -= n) {
		u64 bits = word_bits(i, nr, &n) & e->present[i / 64];

		e->nr_present -= __builtin_popcountll(bits);
		e->present[i / 64] &= ~bits;
		if (groups_on(e->mm->ps) && bits)
			group_charge_bits(e, i & ~63U, bits, -1);
	}
	if (e->nr_present == was)
		return;
	folio_count(e, e->nr_present - was);
	relaxed_sub(&e->mm->ps->nr_resident, was - e->nr_present);
}

/* The pages of e that are in its frame are uncharged. */
static void uncharge_cached(struct extent *e)
{
	if (!e->groups && e->pmd == PMD_CACHED) {
		group_charge_all(e, -1);
		return;
	}
	for (unsigned i = 0; i < PTRS_PER_PMD; i++)
		if (pte_kind(pte_get(e, i)) == PTE_CACHED)
			group_charge_bits(e, i & ~63U, 1ULL << (i % 64), -1);
}

void pmd_clear(struct extent *e)
{
	if (groups_on(e->mm->ps) && e->frame && e->frame->nr_live)
		uncharge_cached(e);
	if (e->pmd == PMD_TABLE)
		table_free(e);
	if (e->nr_swap)
		relaxed_sub(&e->mm->ps->stat->swapped_pages, e->nr_swap);
	if (e->frame) {
		folio_count(e, -e->frame->nr_live);
		e->frame->nr_live = 0;
	}
	e->pmd = PMD_NONE;
	e->nr_pte = e->nr_swap = 0;
}

void pmd_set_swap(struct extent *e, swp_entry_t first)
{
	pmd_clear(e);
	e->pmd = PMD_SWAP;
	e->swap = first;
	e->nr_swap = PTRS_PER_PMD;
	relaxed_add(&e->mm->ps->stat->swapped_pages, PTRS_PER_PMD);
}

void pmd_set_cached(struct extent *e)
{
	pmd_clear(e);
	e->pmd = PMD_CACHED;
	e->frame->nr_live = PTRS_PER_PMD;
	folio_count(e, PTRS_PER_PMD);
	if (groups_on(e->mm->ps))
		group_charge_all(e, 1);
}
