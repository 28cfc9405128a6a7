/* SPDX-License-Identifier: MIT */
/* swap_cache.c - see swap_cache.h. */
#include "swap_cache.h"
#include "arena.h"

struct frame *frame_alloc(struct pswap *ps, struct extent *e)
{
	struct frame *f = arena_alloc(sizeof(*f));

	if (!f)
		return NULL;
	f->mem = arena_get_unit(ARENA_FRAME);
	/* Without MOVE the frame is filled by copying: missing pages are the kernel's to fill. */
	if (!f->mem || (ps->caps.move && uffd_register(e->mm->uffd, (u64)(uintptr_t)f->mem, PMD_SIZE, false))) {
		if (f->mem)
			arena_put_unit(ARENA_FRAME, f->mem);
		arena_free(f, sizeof(*f));
		return NULL;
	}
	f->extent = e;
	relaxed_add(&ps->cache.nr_frames, 1);
	return f;
}

void frame_release(struct pswap *ps, struct frame *f)
{
	ps_assert(f->nr_live == 0);
	if (ps->caps.move)
		uffd_unregister(f->extent->mm->uffd, (u64)(uintptr_t)f->mem, PMD_SIZE);
	arena_put_unit(ARENA_FRAME, f->mem);
	relaxed_sub(&ps->cache.nr_pages, f->nr_pages);
	relaxed_sub(&ps->cache.nr_frames, 1);
	relaxed_sub(&ps->footprint, (s64)f->nr_pages << PAGE_SHIFT);
	arena_free(f, sizeof(*f));
}

/* Which of the 512 pages from addr on have one of the bits `any`, and not `without`. */
static int pagemap_bits(struct pswap *ps, u64 addr, u64 any, u64 without, u64 bits[PTRS_PER_PMD / 64])
{
	u64 map[64];

	memset(bits, 0, PTRS_PER_PMD / 8);
	for (unsigned w = 0; w < PTRS_PER_PMD / 64; w++) {
		off_t off = ((addr >> PAGE_SHIFT) + w * 64) * sizeof(u64);
		long n = sys_pread(ps->pagemap_fd, map, sizeof(map), off);

		if (n != sizeof(map))
			return n < 0 ? (int)n : -EIO;
		for (unsigned i = 0; i < 64; i++)
			if ((map[i] & any) && !(map[i] & without))
				bits[w] |= 1ULL << i;
	}
	return 0;
}

int pages_present(struct pswap *ps, u64 addr, u64 bits[PTRS_PER_PMD / 64])
{
	return pagemap_bits(ps, addr, PM_PRESENT | PM_SWAP, 0, bits);
}

int pages_shared(struct pswap *ps, u64 addr, u64 bits[PTRS_PER_PMD / 64])
{
	return pagemap_bits(ps, addr, PM_PRESENT, PM_MMAP_EXCLUSIVE, bits);
}

bool page_is_guard(struct pswap *ps, u64 addr)
{
	u64 entry = 0;

	if (sys_pread(ps->pagemap_fd, &entry, sizeof(entry), (addr >> PAGE_SHIFT) * sizeof(u64)) !=
	    sizeof(entry))
		return false;
	return entry & PM_GUARD;
}

char *thp_get(struct pswap *ps, bool *huge)
{
	char *unit = arena_get_unit(ARENA_FRAME);
	unsigned char vec = 0;

	*huge = false;
	if (!unit)
		return NULL;
	if (ps->cfg.no_thp)
		return unit;
	*(volatile char *)unit = 0;
	/* One touch brought the last page too: it is a huge page. */
	if (sys_call3(SYS_mincore, unit + PMD_SIZE - PAGE_SIZE, PAGE_SIZE, &vec) == 0 && (vec & 1))
		*huge = true;
	return unit;
}

void thp_put(struct pswap *ps, char *unit)
{
	(void)ps;
	arena_put_unit(ARENA_FRAME, unit);
}
