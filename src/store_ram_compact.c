/* SPDX-License-Identifier: MIT */
/*
 * store_ram_compact.c - housekeeping of the RAM store: dead memory back to the system, idle open
 * segments trimmed, mostly dead segments emptied.
 *
 * A compaction pass chooses victims among the sealed segments, then goes once through the records
 * of all clusters and moves what they have in a victim.  No object knows its slot and no segment
 * its clusters: the records are small enough to be read through, once for up to MAX_VICTIMS
 * segments, and a pass may stretch over many calls.  Nothing new comes into a sealed segment, so
 * one pass is enough.
 */
#include "store_ram_int.h"

#define BUDGET_NS 2000000 /* of one call */
#define PURGE_BATCH 32	  /* segments returned in one call, 25 to 50 us each */
#define PICK_BATCH 65536  /* segments looked at in one call */
#define EMPTY_BATCH 16384 /* cluster records looked at for descriptors to give back */
#define GIVE_MAX 256	  /* neighbouring descriptor pages given back by one call */
#define SLACK_PAGES 256	  /* unused descriptor pages that are left alone */

/*
 * Open segments that nobody has appended to since the last call, and that are more than half dead,
 * are sealed: an empty one goes at once, another becomes a victim.
 */
static void trim_open(struct ram_store *rs, struct open_seg *o, bool now)
{
	u32 live;

	if (o->seg == SEG_NONE)
		return;
	live = SEG_LIVE(atomic_load_explicit(&rs->segs[o->seg].refs, memory_order_relaxed));
	if ((now || o->pos == o->seen) && (!live || (!now && live < o->pos / 2)))
		seg_seal(rs, o);
	else
		o->seen = o->pos;
}

static void trim_workers(struct ram_store *rs, bool now)
{
	for (unsigned i = 0; i < rs->opt.nr_workers; i++) {
		struct ram_worker *w = &rs->workers[i];

		if (now)
			ps_mutex_lock(&w->lock);
		else if (!ps_mutex_trylock(&w->lock))
			continue;
		trim_open(rs, &w->open, now);
		ps_mutex_unlock(&w->lock);
	}
}

/* Descriptor pages of up to GIVE_MAX clusters that do not use them, from first on; returns how many
 * clusters were looked at. */
static u64 give_run(struct ram_store *rs, u64 first, u64 end)
{
	u64 n = 0;

	end = MIN(end, first + GIVE_MAX);
	for (u64 i = first; i < end; i++, n++) {
		struct ram_cluster *c = &rs->clusters[i];

		if (!descs_idle(c) || !ps_mutex_trylock(&c->lock))
			break;
		if (!descs_idle(c)) {
			ps_mutex_unlock(&c->lock);
			break;
		}
	}
	if (!n)
		return 1;
	sys_madvise((void *)&rs->descs[first << CLUSTER_SHIFT], n * CLUSTER_SLOTS * sizeof(u64),
		    MADV_DONTNEED);
	for (u64 i = first; i < first + n; i++) {
		relaxed_store(&rs->clusters[i].gen, 0);
		ps_mutex_unlock(&rs->clusters[i].lock);
	}
	relaxed_sub(&rs->desc_pages, n);
	relaxed_add(&rs->returned_bytes, n * PAGE_SIZE);
	return n;
}

static void give_descs(struct ram_store *rs, u64 max)
{
	u64 end = relaxed_load(&rs->cluster_end), left = MIN(max, end);

	/* Not one record is looked at when there is nothing to give. */
	while (left && relaxed_load(&rs->desc_pages) > relaxed_load(&rs->live_clusters)) {
		u64 n;

		if (rs->next_empty >= end)
			rs->next_empty = 0;
		n = give_run(rs, rs->next_empty, end);
		rs->next_empty += n;
		left -= MIN(n, left);
	}
}

/* Until a pass ends its victims exist twice, so a pass takes few of a small pool. */
static unsigned victims_at_once(u32 nr_segs)
{
	return MIN(MAX(nr_segs / 32, 2U), MAX_VICTIMS);
}

/* Dead space adds up to an eighth of the pool: it counts against the program's limit, and moving what
 * lives costs less than thrashing. */
static bool wasteful(struct ram_store *rs, u32 nr_segs)
{
	u64 held = (u64)nr_segs * SEG_SIZE, used = relaxed_load(&rs->used_bytes);

	return held > used && held - used > held / 8;
}

/* The emptiest sealed segments that have less live than the threshold become victims; true when there
 * are any. */
static bool pick_victims(struct ram_store *rs)
{
	struct compactor *k = &rs->comp;
	u32 seg[MAX_VICTIMS], live[MAX_VICTIMS];
	bool pressed = relaxed_load(&rs->pressed);
	unsigned nr = 0, max, i;
	u32 n, left, limit, refs;

	ps_mutex_lock(&rs->lock);
	n = rs->next_seg;
	max = victims_at_once(rs->nr_segs);
	limit = pressed || wasteful(rs, rs->nr_segs) ? SEG_SIZE / 8 * 7 : SEG_SIZE / 2;
	ps_mutex_unlock(&rs->lock);
	for (left = MIN(n, (u32)PICK_BATCH); left; left--, k->next_seg++) {
		if (k->next_seg >= n)
			k->next_seg = 0;
		/* 0: dead or free. Above SEG_OPEN: someone's open segment. */
		refs = relaxed_load(&rs->segs[k->next_seg].refs);
		if (!refs || refs >= limit || (nr == max && refs >= live[nr - 1]))
			continue;
		/* What lives in it would be there twice as long as the other process keeps the old place. */
		if (refs >= SEG_SIZE / 8 && !pressed && seg_shared(rs, k->next_seg))
			continue;
		nr += nr < max;
		for (i = nr - 1; i && live[i - 1] > refs; i--) {
			seg[i] = seg[i - 1];
			live[i] = live[i - 1];
		}
		seg[i] = k->next_seg;
		live[i] = refs;
	}
	k->nr_victims = 0;
	for (i = 0; i < nr; i++) {
		refs = relaxed_load(&rs->segs[seg[i]].refs);
		if (refs && refs < SEG_OPEN &&
		    atomic_compare_exchange_strong(&rs->segs[seg[i]].refs, &refs, refs + SEG_VICTIM))
			k->victims[k->nr_victims++] = seg[i];
	}
	if (!nr)
		relaxed_store(&rs->pressed, false);
	return k->nr_victims != 0;
}

static inline bool is_victim(struct ram_store *rs, u32 seg)
{
	return relaxed_load(&rs->segs[seg].refs) & SEG_VICTIM;
}

/* The objects of a cluster that lie in victims. Returns their number. */
static unsigned collect(struct ram_store *rs, u64 cluster)
{
	struct ram_cluster *c = &rs->clusters[cluster];
	_Atomic u64 *descs = &rs->descs[cluster << CLUSTER_SHIFT];
	struct compactor *k = &rs->comp;
	unsigned n = 0;
	bool any;
	u8 gen;

	if (!relaxed_load(&c->live))
		return 0;
	ps_mutex_lock(&c->lock);
	gen = relaxed_load(&c->gen);
	any = c->nr_parts == CLUSTER_SCATTERED;
	for (unsigned i = 0; !any && i < c->nr_parts; i++)
		any = is_victim(rs, c->part[i].seg);
	for (unsigned i = 0; any && i < CLUSTER_SLOTS; i++) {
		u64 d = relaxed_load(&descs[i]);

		if (!desc_live(d, gen) || desc_kind(d) == DESC_SAME || !is_victim(rs, desc_seg(d)))
			continue;
		k->slots[n] = i;
		k->from[n++] = d;
	}
	ps_mutex_unlock(&c->lock);
	return n;
}

/* A scattered cluster whose objects have come together again gets its record back. Lock held. */
static void regather(struct ram_cluster *c, _Atomic u64 *descs)
{
	u8 gen = relaxed_load(&c->gen);

	c->nr_parts = 0;
	for (unsigned i = 0; i < CLUSTER_SLOTS && c->nr_parts != CLUSTER_SCATTERED; i++) {
		u64 d = relaxed_load(&descs[i]);

		if (desc_live(d, gen) && desc_kind(d) != DESC_SAME)
			ram_part_add(c, desc_seg(d), desc_bytes(d));
	}
}

/* Objects [first, end) of the collected ones are copied: switches the descriptors that are still
 * as they were. The others' copies are dead space in the new segment. */
static void switch_descs(struct ram_store *rs, u64 cluster, unsigned first, unsigned end)
{
	struct ram_cluster *c = &rs->clusters[cluster];
	_Atomic u64 *descs = &rs->descs[cluster << CLUSTER_SHIFT];
	struct compactor *k = &rs->comp;
	u8 gen;

	ps_mutex_lock(&c->lock);
	gen = relaxed_load(&c->gen);
	for (unsigned i = first; i < end; i++) {
		_Atomic u64 *d = &descs[k->slots[i]];
		u32 bytes = desc_bytes(k->from[i]);

		/* The generation as well: a whole invalidated cluster keeps its descriptors. */
		if (relaxed_load(d) != k->from[i] || desc_gen(k->from[i]) != gen)
			continue;
		seg_get(rs, desc_seg(k->to[i]), bytes);
		atomic_store_explicit(d, k->to[i], memory_order_seq_cst);
		ram_part_sub(c, desc_seg(k->from[i]), bytes);
		ram_part_add(c, desc_seg(k->to[i]), bytes);
		seg_put(rs, desc_seg(k->from[i]), bytes);
	}
	if (c->nr_parts == CLUSTER_SCATTERED)
		regather(c, descs);
	ps_mutex_unlock(&c->lock);
}

/* False: no segment to move to. */
static bool move_cluster(struct ram_store *rs, u64 cluster)
{
	struct compactor *k = &rs->comp;
	unsigned n = collect(rs, cluster), done = 0;

	for (unsigned i = 0; i < n; i++) {
		u64 d = k->from[i];
		u32 bytes = desc_bytes(d);

		if (k->out.seg == SEG_NONE || k->out.pos + bytes > SEG_SIZE) {
			switch_descs(rs, cluster, done, i);
			done = i;
			seg_seal(rs, &k->out);
			if (seg_open(rs, &k->out, true))
				return false;
		}
		/* The source cannot go away (SEG_VICTIM) or change (sealed, even if dead by now). */
		memcpy(k->out.mem + k->out.pos, rs->segs[desc_seg(d)].mem + desc_pos(d), bytes);
		k->to[i] = desc_object(desc_kind(d), k->out.seg, k->out.pos, desc_len(d)) |
			   (u64)desc_gen(d) << DESC_GEN_SHIFT;
		k->out.pos += bytes;
	}
	if (done < n)
		switch_descs(rs, cluster, done, n);
	return true;
}

/* The end of a pass: from now on nobody new finds a way into the victims. */
static void start_waiting(struct ram_store *rs)
{
	rs->comp.scanning = false;
	rs->comp.waiting = true;
	for (unsigned i = 0; i < rs->opt.nr_workers; i++)
		rs->workers[i].snapshot = atomic_load_explicit(&rs->workers[i].seq,
							       memory_order_seq_cst);
}

/* Lets go of the victims, unless a worker is still in the read() that it was in at the end of the
 * pass. */
static bool finish_waiting(struct ram_store *rs)
{
	struct compactor *k = &rs->comp;

	for (unsigned i = 0; i < rs->opt.nr_workers; i++) {
		struct ram_worker *w = &rs->workers[i];

		if (w->snapshot & 1 &&
		    atomic_load_explicit(&w->seq, memory_order_acquire) == w->snapshot)
			return false;
	}
	while (k->nr_victims)
		if (seg_put(rs, k->victims[--k->nr_victims], SEG_VICTIM))
			relaxed_add(&rs->nr_compacted, 1);
	k->waiting = false;
	return true;
}

/* True: there is more to do. */
static bool compact(struct ram_store *rs, u64 deadline)
{
	struct compactor *k = &rs->comp;

	if (k->waiting && !finish_waiting(rs))
		return true;
	if (!k->scanning) {
		if (!pick_victims(rs))
			return false;
		k->scanning = true;
		k->next_cluster = 0;
	}
	for (unsigned n = 0; k->next_cluster < relaxed_load(&rs->cluster_end); n++) {
		if (n % 16 == 15 && ps_now_ns() > deadline)
			return true;
		if (!move_cluster(rs, k->next_cluster)) {
			/* What was moved is moved; the rest stays where it is. */
			start_waiting(rs);
			finish_waiting(rs);
			return false;
		}
		k->next_cluster++;
	}
	start_waiting(rs);
	finish_waiting(rs);
	return true;
}

bool ram_wasteful(struct store *st)
{
	struct ram_store *rs = to_ram(st);

	/* Without the lock: a hint. */
	return relaxed_load(&rs->nr_dead) || wasteful(rs, relaxed_load(&rs->nr_segs));
}

bool ram_housekeep(struct store *st, unsigned worker)
{
	struct ram_store *rs = to_ram(st);
	bool more;

	(void)worker; /* moving objects needs no codec */
	ps_mutex_lock(&rs->hk_lock);
	trim_workers(rs, false);
	more = seg_purge(rs, PURGE_BATCH);
	if (!more) {
		more = compact(rs, ps_now_ns() + BUDGET_NS);
		if (!more)
			trim_open(rs, &rs->comp.out, false);
		if (relaxed_load(&rs->desc_pages) >
		    2 * relaxed_load(&rs->live_clusters) + SLACK_PAGES)
			give_descs(rs, EMPTY_BATCH);
	}
	more |= relaxed_load(&rs->nr_dead) != 0;
	ps_mutex_unlock(&rs->hk_lock);
	return more;
}

void ram_purge(struct store *st)
{
	struct ram_store *rs = to_ram(st);

	ps_mutex_lock(&rs->hk_lock);
	trim_workers(rs, true);
	trim_open(rs, &rs->comp.out, true);
	/* A pass under way holds on to its victims: cut it short. Readers do not stay long, nothing
	 * in read() sleeps. */
	if (rs->comp.scanning)
		start_waiting(rs);
	for (unsigned i = 0; rs->comp.waiting && !finish_waiting(rs) && i < 1000; i++)
		sys_sleep_ns(20000);
	seg_purge(rs, UINT32_MAX);
	give_descs(rs, UINT64_MAX);
	ps_mutex_unlock(&rs->hk_lock);
}

const char *store_ram_check(struct store *st)
{
	struct ram_store *rs = to_ram(st);
	u64 live_clusters = 0, desc_pages = 0, used = 0, in_segs = 0;

	for (u64 i = 0; i < rs->nr_clusters; i++) {
		struct ram_cluster *c = &rs->clusters[i];
		_Atomic u64 *descs = &rs->descs[i << CLUSTER_SHIFT];
		u32 bytes[CLUSTER_PARTS] = { 0 };
		unsigned live = 0;
		u8 gen = relaxed_load(&c->gen);
		bool uniform = relaxed_load(&c->uniform);

		if (ps_mutex_is_locked(&c->lock))
			return "a cluster is locked";
		if (uniform && (relaxed_load(&c->live) != CLUSTER_SLOTS || c->nr_parts))
			return "a uniform cluster is not whole";
		if (!gen && !uniform && (relaxed_load(&c->live) || c->nr_parts))
			return "a cluster without descriptors has data";
		for (unsigned j = 0; gen && j < CLUSTER_SLOTS; j++) {
			u64 d = relaxed_load(&descs[j]);
			unsigned k = 0;

			if (!desc_live(d, gen))
				continue;
			if (uniform)
				return "a uniform cluster has descriptors";
			live++;
			if (desc_kind(d) == DESC_SAME)
				continue;
			if (desc_pos(d) + desc_bytes(d) > SEG_SIZE || !rs->segs[desc_seg(d)].mem)
				return "a descriptor points nowhere";
			used += desc_bytes(d);
			while (c->nr_parts != CLUSTER_SCATTERED && k < c->nr_parts &&
			       c->part[k].seg != desc_seg(d))
				k++;
			if (k < CLUSTER_PARTS && k < c->nr_parts)
				bytes[k] += desc_bytes(d);
			else if (c->nr_parts != CLUSTER_SCATTERED)
				return "a segment is missing in its cluster's record";
		}
		desc_pages += gen != 0;
		if (live != (uniform ? 0 : relaxed_load(&c->live)))
			return "the live count of a cluster is wrong";
		for (unsigned k = 0; c->nr_parts != CLUSTER_SCATTERED && k < c->nr_parts; k++)
			if (bytes[k] != c->part[k].bytes)
				return "the bytes of a segment in a cluster's record are wrong";
		live_clusters += live != 0;
	}
	for (u32 i = 0; i < rs->next_seg; i++)
		in_segs += SEG_LIVE(relaxed_load(&rs->segs[i].refs));
	if (live_clusters != relaxed_load(&rs->live_clusters))
		return "the number of live clusters is wrong";
	if (desc_pages != relaxed_load(&rs->desc_pages))
		return "the number of descriptor pages is wrong";
	if (used != relaxed_load(&rs->used_bytes))
		return "used_bytes is wrong";
	if (used != in_segs)
		return "the live bytes of the segments are wrong";
	return NULL;
}
