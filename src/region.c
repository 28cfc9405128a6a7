/* SPDX-License-Identifier: MIT */
/* region.c - see region.h. */
#include "region.h"
#include "arena.h"
#include "vma.h"

struct region *region_after(struct ps_mm *mm, u64 addr)
{
	u32 lo = 0, hi = mm->nr_regions;

	while (lo < hi) {
		u32 mid = (lo + hi) / 2;

		if (mm->regions[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < mm->nr_regions ? &mm->regions[lo] : NULL;
}

bool region_next(struct ps_mm *mm, u64 addr, u64 *start, u64 *end)
{
	struct region *r;

	ps_rwlock_read_lock(&mm->gate);
	r = region_after(mm, addr);
	if (r) {
		*start = MAX(r->start, addr);
		*end = r->end;
	}
	ps_rwlock_read_unlock(&mm->gate);
	return r != NULL;
}

struct region *region_find(struct ps_mm *mm, u64 addr)
{
	struct region *r = region_after(mm, addr);

	return r && r->start <= addr ? r : NULL;
}

/* Room for n more. */
static int reserve(struct ps_mm *mm, u32 n)
{
	u32 cap = mm->cap_regions ? mm->cap_regions : PAGE_SIZE / sizeof(struct region);
	struct region *grown;

	if (mm->nr_regions + n <= mm->cap_regions)
		return 0;
	while (cap < mm->nr_regions + n)
		cap *= 2;
	grown = arena_map(cap * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	if (mm->regions) {
		memcpy(grown, mm->regions, mm->nr_regions * sizeof(*grown));
		arena_unmap(mm->regions, mm->cap_regions * sizeof(*grown));
	}
	mm->regions = grown;
	mm->cap_regions = cap;
	return 0;
}

static void insert_at(struct ps_mm *mm, u32 i, struct region r)
{
	memmove(&mm->regions[i + 1], &mm->regions[i], (mm->nr_regions - i) * sizeof(r));
	mm->regions[i] = r;
	mm->nr_regions++;
}

static void remove_at(struct ps_mm *mm, u32 i, u32 n)
{
	mm->nr_regions -= n;
	memmove(&mm->regions[i], &mm->regions[i + n], (mm->nr_regions - i) * sizeof(struct region));
}

/* Makes addr a border if it lies inside a region. Room for one more must be there. */
static void cut(struct ps_mm *mm, u64 addr)
{
	struct region *r = region_find(mm, addr), tail;

	if (!r || r->start == addr)
		return;
	tail = *r;
	tail.start = addr;
	r->end = addr;
	insert_at(mm, r - mm->regions + 1, tail);
}

static void merge_around(struct ps_mm *mm, u64 start, u64 end)
{
	struct region *r = region_after(mm, start ? start - 1 : 0);
	u32 i = r ? r - mm->regions : mm->nr_regions, k = i + 1;

	for (; k < mm->nr_regions && mm->regions[i].start <= end; k++) {
		struct region *a = &mm->regions[i], *b = &mm->regions[k];

		if (a->end == b->start && a->flags == b->flags && a->group == b->group)
			a->end = b->end;
		else
			mm->regions[++i] = *b;
	}
	if (k > i + 1)
		remove_at(mm, i + 1, k - (i + 1));
}

void region_del(struct ps_mm *mm, u64 start, u64 end)
{
	struct region *r;
	u32 i, n = 0;

	/* A cut in the middle of one region needs a slot; without it, forget the tail as well: its
	 * pages then are merely never taken out again, and faults there still are first touches or
	 * read-backs, as the page table says. */
	if (reserve(mm, 2) == 0) {
		cut(mm, start);
		cut(mm, end);
	}
	r = region_after(mm, start);
	i = r ? r - mm->regions : mm->nr_regions;
	if (r && r->start < start) {
		r->end = start;
		i++;
	}
	/* At once: groups can cut a range into as many regions as it has pages. */
	while (i + n < mm->nr_regions && mm->regions[i + n].start < end)
		n++;
	if (n)
		remove_at(mm, i, n);
}

int region_add(struct ps_mm *mm, u64 start, u64 end, u32 flags)
{
	struct region *r;

	if (reserve(mm, 3))
		return -ENOMEM;
	region_del(mm, start, end);
	r = region_after(mm, start);
	insert_at(mm, r ? r - mm->regions : mm->nr_regions,
		  (struct region){ .start = start, .end = end, .flags = flags });
	merge_around(mm, start, end);
	return 0;
}

/* What is said of regions: flags to set and clear, or a group. */
struct change {
	u32 set, clear;
	const u16 *group; /* NULL: stays */
};

static int change(struct ps_mm *mm, u64 start, u64 end, struct change c)
{
	struct region *r;

	if (reserve(mm, 2))
		return -ENOMEM;
	cut(mm, start);
	cut(mm, end);
	for (r = region_after(mm, start); r && r < mm->regions + mm->nr_regions && r->start < end;
	     r++) {
		r->flags = (r->flags & ~c.clear) | c.set;
		if (c.group)
			r->group = *c.group;
	}
	merge_around(mm, start, end);
	return 0;
}

int region_flags(struct ps_mm *mm, u64 start, u64 end, u32 set, u32 clear)
{
	return change(mm, start, end, (struct change){ .set = set, .clear = clear });
}

int region_set_group(struct ps_mm *mm, u64 start, u64 end, u16 group)
{
	return change(mm, start, end, (struct change){ .group = &group });
}

void region_replace_group(struct ps_mm *mm, u16 from, u16 to)
{
	for (u32 i = 0; i < mm->nr_regions; i++)
		if (mm->regions[i].group == from)
			mm->regions[i].group = to;
	if (mm->nr_regions)
		merge_around(mm, mm->regions[0].start, mm->regions[mm->nr_regions - 1].end);
}

bool region_covers(struct ps_mm *mm, u64 start, u64 end)
{
	while (start < end) {
		struct region *r = region_find(mm, start);

		if (!r)
			return false;
		start = r->end;
	}
	return true;
}

void region_free(struct ps_mm *mm)
{
	arena_unmap(mm->regions, mm->cap_regions * sizeof(struct region));
	mm->regions = NULL;
	mm->nr_regions = mm->cap_regions = 0;
}

void region_let_go_shared(struct ps_mm *mm, u64 start, u64 end)
{
	struct vma v;

	for (u64 a = start; a < end && vma_query(mm->ps->maps_fd, a, &v) == 0 && v.start < end; a = v.end)
		if (v.shared || v.inode)
			uffd_unregister(mm->uffd, MAX(v.start, start), MIN(v.end, end) - MAX(v.start, start));
}

int region_register(struct ps_mm *mm, u64 start, u64 end)
{
	uintptr_t own = start, own_end;
	int ret;

	arena_freeze();
	ret = uffd_register(mm->uffd, start, end - start, relaxed_load(&mm->ps->cow.registered));
	while (arena_next_range_frozen(own, &own, &own_end) && own < end) {
		u64 lo = MAX(own, start), hi = MIN(own_end, end);

		uffd_unregister(mm->uffd, lo, hi - lo);
		own = own_end;
	}
	arena_thaw();
	return ret;
}
