/* SPDX-License-Identifier: MIT */
/* store_ram_segment.c - birth and end of the RAM store's segments; see store_ram_int.h. */
#include "store_ram_int.h"

/* With the lock held: a segment's number taken off one of the two lists. */
static u32 list_pop(struct ram_store *rs, u32 *list)
{
	u32 seg = *list;

	if (seg != SEG_NONE)
		*list = rs->segs[seg].next;
	return seg;
}

static void list_push(struct ram_store *rs, u32 *list, u32 seg)
{
	rs->segs[seg].next = *list;
	*list = seg;
}

int seg_open(struct ram_store *rs, struct open_seg *o, bool compactor)
{
	u64 max = (u64)rs->max_segs + (compactor ? 1 : 0);
	struct segment *s;
	u32 seg;

	ps_mutex_lock(&rs->lock);
	/* A dead one that nobody has returned yet saves both the return and the first touch. */
	seg = rs->dead != SEG_NONE && seg_shared(rs, rs->dead) ? SEG_NONE : list_pop(rs, &rs->dead);
	if (seg != SEG_NONE) {
		relaxed_sub(&rs->nr_dead, 1);
		ps_mutex_unlock(&rs->lock);
	} else {
		if (rs->nr_segs < max) {
			seg = list_pop(rs, &rs->free);
			if (seg == SEG_NONE && rs->next_seg < rs->cap_segs)
				seg = rs->next_seg++;
			if (seg != SEG_NONE)
				rs->nr_segs++;
		}
		ps_mutex_unlock(&rs->lock);
		if (seg == SEG_NONE) {
			relaxed_store(&rs->pressed, true);
			return -ENOSPC;
		}
		rs->segs[seg].mem = arena_get_unit(ARENA_POOL);
		if (!rs->segs[seg].mem) {
			ps_mutex_lock(&rs->lock);
			list_push(rs, &rs->free, seg);
			rs->nr_segs--;
			ps_mutex_unlock(&rs->lock);
			return -ENOMEM;
		}
	}
	s = &rs->segs[seg];
	s->forks = relaxed_load(&rs->forks);
	relaxed_store(&s->refs, SEG_OPEN);
	o->seg = seg;
	o->pos = 0;
	o->mem = s->mem;
	return 0;
}

void seg_seal(struct ram_store *rs, struct open_seg *o)
{
	u32 seg = o->seg;

	if (seg == SEG_NONE)
		return;
	o->seg = SEG_NONE;
	o->pos = 0;
	o->mem = NULL;
	seg_put(rs, seg, SEG_OPEN);
}

bool seg_borrow(struct ram_store *rs, struct ram_worker *w)
{
	for (unsigned i = 0; i < rs->opt.nr_workers && w->open.seg == SEG_NONE; i++) {
		struct ram_worker *other = &rs->workers[i];

		if (other == w || !ps_mutex_trylock(&other->lock))
			continue;
		if (other->open.seg != SEG_NONE && other->open.pos + OBJ_ROOM <= SEG_SIZE) {
			w->open = other->open;
			other->open = (struct open_seg){ .seg = SEG_NONE };
		}
		ps_mutex_unlock(&other->lock);
	}
	return w->open.seg != SEG_NONE;
}

/* The segment's memory back to the system, its number to the free list. */
static void seg_return(struct ram_store *rs, u32 seg)
{
	arena_put_unit(ARENA_POOL, rs->segs[seg].mem);
	rs->segs[seg].mem = NULL;
	relaxed_add(&rs->returned_bytes, SEG_SIZE);
	ps_mutex_lock(&rs->lock);
	list_push(rs, &rs->free, seg);
	rs->nr_segs--;
	ps_mutex_unlock(&rs->lock);
}

void seg_dead(struct ram_store *rs, u32 seg)
{
	if (rs->opt.purge_inline) {
		seg_return(rs, seg);
		return;
	}
	ps_mutex_lock(&rs->lock);
	list_push(rs, &rs->dead, seg);
	relaxed_add(&rs->nr_dead, 1);
	ps_mutex_unlock(&rs->lock);
}

bool seg_purge(struct ram_store *rs, unsigned nr)
{
	while (nr--) {
		u32 seg;

		ps_mutex_lock(&rs->lock);
		seg = list_pop(rs, &rs->dead);
		if (seg != SEG_NONE)
			relaxed_sub(&rs->nr_dead, 1);
		ps_mutex_unlock(&rs->lock);
		if (seg == SEG_NONE)
			return false;
		seg_return(rs, seg);
	}
	return relaxed_load(&rs->nr_dead) != 0;
}
