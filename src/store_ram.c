/* SPDX-License-Identifier: MIT */
/*
 * store_ram.c - the compressed RAM store: write, read, invalidate.  store_ram_int.h explains the
 * structures and who keeps whom from what.
 */
#include "store_ram_int.h"

static inline u8 cluster_gen(struct ram_cluster *c)
{
	return atomic_load_explicit(&c->gen, memory_order_relaxed);
}

/* The slot's descriptor. Sequentially consistent against the compactor: either we see its new
 * value or it sees that we are inside read(). */
static inline u64 desc_load(struct ram_store *rs, u64 slot)
{
	return atomic_load_explicit(&rs->descs[slot], memory_order_seq_cst);
}

static void record_touch(struct ram_store *rs, u64 cluster)
{
	u64 page = cluster / (PAGE_SIZE / sizeof(struct ram_cluster)), bit = 1ULL << page % 64;
	_Atomic u64 *word = &rs->touched[page / 64];

	if (!(relaxed_load(word) & bit) && !(atomic_fetch_or(word, bit) & bit))
		relaxed_add(&rs->record_pages, 1);
}

/* Descriptors of a cluster are to be written for the first time, or for the first since they were
 * given back. Lock held. */
static void cluster_touch(struct ram_store *rs, u64 cluster)
{
	u64 end = relaxed_load(&rs->cluster_end);

	relaxed_store(&rs->clusters[cluster].gen, 1);
	relaxed_add(&rs->desc_pages, 1);
	record_touch(rs, cluster);
	while (end < cluster + 1 &&
	       !atomic_compare_exchange_weak(&rs->cluster_end, &end, cluster + 1))
		;
}

void ram_part_add(struct ram_cluster *c, u32 seg, u32 bytes)
{
	if (c->nr_parts == CLUSTER_SCATTERED || !bytes)
		return;
	for (unsigned i = 0; i < c->nr_parts; i++) {
		if (c->part[i].seg == seg) {
			c->part[i].bytes += bytes;
			return;
		}
	}
	if (c->nr_parts == CLUSTER_PARTS) {
		c->nr_parts = CLUSTER_SCATTERED;
		return;
	}
	c->part[c->nr_parts].seg = seg;
	c->part[c->nr_parts++].bytes = bytes;
}

void ram_part_sub(struct ram_cluster *c, u32 seg, u32 bytes)
{
	if (c->nr_parts == CLUSTER_SCATTERED || !bytes)
		return;
	for (unsigned i = 0; i < c->nr_parts; i++) {
		if (c->part[i].seg != seg)
			continue;
		ps_assert(c->part[i].bytes >= bytes);
		c->part[i].bytes -= bytes;
		if (!c->part[i].bytes)
			c->part[i] = c->part[--c->nr_parts];
		return;
	}
	ps_assert(!"store: cluster record without its segment");
}

/* Objects dropped one after the other are mostly neighbours in one segment: add up, then drop. */
struct tally {
	u32 seg, bytes;
	u64 total;
};

static void tally_flush(struct ram_store *rs, struct ram_cluster *c, struct tally *t)
{
	if (!t->bytes)
		return;
	ram_part_sub(c, t->seg, t->bytes);
	seg_put(rs, t->seg, t->bytes);
	t->total += t->bytes;
	t->bytes = 0;
}

static inline void tally_drop(struct ram_store *rs, struct ram_cluster *c, struct tally *t, u64 d)
{
	if (desc_kind(d) == DESC_SAME)
		return;
	if (t->bytes && t->seg != desc_seg(d))
		tally_flush(rs, c, t);
	t->seg = desc_seg(d);
	t->bytes += desc_bytes(d);
}

static void cluster_set_live(struct ram_store *rs, struct ram_cluster *c, unsigned live)
{
	unsigned was = relaxed_load(&c->live);

	relaxed_store(&c->live, (u16)live);
	if (!live && was) {
		relaxed_sub(&rs->live_clusters, 1);
		c->nr_parts = 0; /* also the end of being scattered */
	} else if (live && !was) {
		relaxed_add(&rs->live_clusters, 1);
	}
}

/* The n descriptors of what was written to one cluster: its whole, filled with one word? */
static bool is_uniform(const u64 *descs, unsigned n)
{
	if (n < CLUSTER_SLOTS || desc_kind(descs[0]) != DESC_SAME)
		return false;
	for (unsigned i = 1; i < n; i++)
		if (descs[i] != descs[0])
			return false;
	return true;
}

/* False: the cluster has data, which is to be overwritten slot by slot. */
static bool publish_uniform(struct ram_store *rs, u64 cluster, u32 word)
{
	struct ram_cluster *c = &rs->clusters[cluster];

	ps_mutex_lock(&c->lock);
	if (relaxed_load(&c->live)) {
		ps_mutex_unlock(&c->lock);
		return false;
	}
	record_touch(rs, cluster);
	relaxed_store(&c->live, CLUSTER_SLOTS);
	/* Whoever reads a slot of it is told of the slot later than this. */
	relaxed_store(&c->uniform, CLUSTER_UNIFORM | word);
	ps_mutex_unlock(&c->lock);
	return true;
}

/* A uniform cluster gets descriptors. Lock held. */
static void uniform_end(struct ram_store *rs, u64 cluster)
{
	struct ram_cluster *c = &rs->clusters[cluster];
	u64 uniform = relaxed_load(&c->uniform), desc;

	if (likely(!uniform))
		return;
	if (!cluster_gen(c))
		cluster_touch(rs, cluster);
	desc = desc_same((u32)uniform) | (u64)cluster_gen(c) << DESC_GEN_SHIFT;
	for (unsigned i = 0; i < CLUSTER_SLOTS; i++)
		relaxed_store(&rs->descs[(cluster << CLUSTER_SHIFT) + i], desc);
	relaxed_add(&rs->live_clusters, 1);
	/* A reader that finds the word gone finds the descriptors. */
	atomic_store_explicit(&c->uniform, 0, memory_order_release);
}

/* Makes n freshly written slots of one cluster visible; their `bytes` are in segment seg. */
static void publish(struct ram_store *rs, const u64 *slots, const u64 *descs, unsigned n, u32 seg,
		    u32 bytes)
{
	u64 cluster = slots[0] >> CLUSTER_SHIFT;
	struct ram_cluster *c = &rs->clusters[cluster];
	struct tally t = { 0 };
	unsigned live;
	u64 gen;

	if (!n)
		return;
	if (is_uniform(descs, n) && publish_uniform(rs, cluster, (u32)(descs[0] >> 32)))
		return;
	if (bytes)
		seg_get(rs, seg, bytes);
	ps_mutex_lock(&c->lock);
	uniform_end(rs, cluster);
	if (unlikely(!cluster_gen(c)))
		cluster_touch(rs, cluster);
	gen = cluster_gen(c);
	live = relaxed_load(&c->live);
	for (unsigned i = 0; i < n; i++) {
		u64 old = relaxed_load(&rs->descs[slots[i]]);

		if (unlikely(desc_live(old, (u8)gen)))
			tally_drop(rs, c, &t, old);
		else
			live++;
		atomic_store_explicit(&rs->descs[slots[i]], descs[i] | gen << DESC_GEN_SHIFT,
				      memory_order_release);
	}
	tally_flush(rs, c, &t);
	ram_part_add(c, seg, bytes);
	cluster_set_live(rs, c, live);
	ps_mutex_unlock(&c->lock);
	if (bytes != t.total)
		relaxed_add(&rs->used_bytes, bytes - t.total);
}

/* Appends one page to the open segment, which has OBJ_ROOM; returns its descriptor. */
static u64 pack(struct ram_worker *w, u64 slot, const void *page)
{
	struct open_seg *o = &w->open;
	u8 *obj = o->mem + o->pos, *data = obj + OBJ_HEADER;
	unsigned len = codec_compress(&w->codec, page, data);
	u32 sum;
	u64 d;

	if (!len) {
		len = PAGE_SIZE;
		memcpy(data, page, PAGE_SIZE);
		relaxed_store(&w->incompressible, relaxed_load(&w->incompressible) + 1);
	}
	sum = codec_checksum(data, len, slot);
	memcpy(obj, &sum, sizeof(sum));
	d = desc_object(DESC_OBJ, o->seg, o->pos, len);
	o->pos += OBJ_SIZE(len);
	return d;
}

static u64 pack_same(struct ram_worker *w, u64 slot, u64 word)
{
	struct open_seg *o = &w->open;
	u8 *obj = o->mem + o->pos;
	u32 sum = codec_checksum(&word, sizeof(word), slot);
	u64 d = desc_object(DESC_SAME_OBJ, o->seg, o->pos, sizeof(word));

	memcpy(obj, &sum, sizeof(sum));
	memcpy(obj + OBJ_HEADER, &word, sizeof(word));
	o->pos += OBJ_SIZE(sizeof(word));
	return d;
}

static int ram_write(struct store *st, unsigned worker, const u64 *slots, const void *const *pages,
		     unsigned nr)
{
	struct ram_store *rs = to_ram(st);
	struct ram_worker *w = &rs->workers[worker];
	struct open_seg *o = &w->open;
	unsigned done = 0, n = 0; /* published; packed since */
	int err = 0;
	u32 start;

	ps_mutex_lock(&w->lock);
	/* All that was written here is dead already: start over, in memory that is warm. */
	if (o->pos && atomic_load_explicit(&rs->segs[o->seg].refs, memory_order_acquire) == SEG_OPEN)
		o->pos = 0;
	start = o->pos;
	while (done + n < nr) {
		u64 slot = slots[done + n], word;
		bool same = codec_same_filled(pages[done + n], &word);
		bool inline_same = same && (u32)word == word >> 32;

		ps_assert(slot < st->nr_slots);
		if ((slot ^ slots[done]) >> CLUSTER_SHIFT || n == CLUSTER_SLOTS ||
		    (!inline_same && o->pos + OBJ_ROOM > SEG_SIZE)) {
			publish(rs, &slots[done], w->descs, n, o->seg, o->pos - start);
			done += n;
			n = 0;
			start = o->pos;
		}
		if (inline_same) {
			w->descs[n++] = desc_same((u32)word);
			relaxed_store(&w->same_filled, relaxed_load(&w->same_filled) + 1);
			continue;
		}
		if (o->seg == SEG_NONE || o->pos + OBJ_ROOM > SEG_SIZE) {
			seg_seal(rs, o);
			err = seg_open(rs, o, false);
			/* With a small limit, what is left is in the others' open segments. */
			if (err == -ENOSPC && seg_borrow(rs, w))
				err = 0;
			if (err)
				break;
			start = o->pos;
		}
		if (same) {
			w->descs[n] = pack_same(w, slot, word);
			relaxed_store(&w->same_filled, relaxed_load(&w->same_filled) + 1);
		} else {
			w->descs[n] = pack(w, slot, pages[done + n]);
		}
		n++;
	}
	if (n)
		publish(rs, &slots[done], w->descs, n, o->seg, o->pos - start);
	ps_mutex_unlock(&w->lock);
	done += n;
	return done || !nr ? (int)done : err;
}

static int unpack(struct ram_store *rs, struct ram_worker *w, u64 slot, u64 d, void *page)
{
	const u8 *obj = rs->segs[desc_seg(d)].mem + desc_pos(d), *data = obj + OBJ_HEADER;
	u32 len = desc_len(d), sum;

	memcpy(&sum, obj, sizeof(sum));
	if (rs->opt.verify && unlikely(sum != codec_checksum(data, len, slot)))
		return -EIO;
	if (desc_kind(d) == DESC_SAME_OBJ) {
		u64 word;

		memcpy(&word, data, sizeof(word));
		codec_fill(page, word);
		return 0;
	}
	if (len == PAGE_SIZE) {
		memcpy(page, data, PAGE_SIZE);
		return 0;
	}
	return codec_decompress(&w->codec, data, len, page);
}

static int ram_read(struct store *st, unsigned worker, const u64 *slots, void *const *pages,
		    unsigned nr, int *err)
{
	struct ram_store *rs = to_ram(st);
	struct ram_worker *w = &rs->workers[worker];
	u32 seq = relaxed_load(&w->seq);
	unsigned i;
	int e = 0;

	atomic_store_explicit(&w->seq, seq + 1, memory_order_seq_cst);
	for (i = 0; i < nr && !e; i++) {
		struct ram_cluster *c = &rs->clusters[slots[i] >> CLUSTER_SHIFT];
		u64 uniform, d;

		ps_assert(slots[i] < st->nr_slots);
		uniform = atomic_load_explicit(&c->uniform, memory_order_acquire);
		if (uniform) {
			codec_fill(pages[i], (u32)uniform * 0x100000001ULL);
			continue;
		}
		d = desc_load(rs, slots[i]);
		if (!desc_live(d, cluster_gen(c))) {
			e = -ENODATA;
		} else if (desc_kind(d) == DESC_SAME) {
			codec_fill(pages[i], (d >> 32) * 0x100000001ULL);
		} else {
			e = unpack(rs, w, slots[i], d, pages[i]);
			if (e)
				relaxed_add(&w->io_errors, 1);
		}
	}
	atomic_store_explicit(&w->seq, seq + 2, memory_order_release);
	if (!e)
		return (int)nr;
	*err = e;
	return (int)i - 1;
}

static void ram_invalidate_cluster(struct store *st, u64 cluster)
{
	struct ram_store *rs = to_ram(st);
	struct ram_cluster *c = &rs->clusters[cluster];
	_Atomic u64 *descs = &rs->descs[cluster << CLUSTER_SHIFT];
	struct ram_cluster was;
	struct tally t = { 0 };
	u64 total = 0;
	u8 gen;

	ps_assert(cluster < rs->nr_clusters);
	/* Nothing can become live here meanwhile: all slots are the caller's. */
	if (!relaxed_load(&c->live))
		return;
	ps_mutex_lock(&c->lock);
	if (relaxed_load(&c->uniform)) {
		relaxed_store(&c->uniform, 0);
		relaxed_store(&c->live, 0);
		ps_mutex_unlock(&c->lock);
		return;
	}
	gen = cluster_gen(c);
	was.nr_parts = 0;
	if (unlikely(c->nr_parts == CLUSTER_SCATTERED)) {
		for (unsigned i = 0; i < CLUSTER_SLOTS; i++) {
			u64 d = relaxed_load(&descs[i]);

			if (desc_live(d, gen))
				tally_drop(rs, c, &t, d);
		}
		tally_flush(rs, c, &t);
		total = t.total;
	} else {
		was.nr_parts = c->nr_parts;
		memcpy(was.part, c->part, c->nr_parts * sizeof(c->part[0]));
	}
	cluster_set_live(rs, c, 0);
	c->nr_parts = 0;
	if (unlikely(gen == GEN_LAST)) {
		/* Generation 1 comes round again: what has it must go now. */
		for (unsigned i = 0; i < CLUSTER_SLOTS; i++)
			relaxed_store(&descs[i], 0);
		gen = 0;
	}
	relaxed_store(&c->gen, gen + 1);
	ps_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < was.nr_parts; i++) {
		total += was.part[i].bytes;
		seg_put(rs, was.part[i].seg, was.part[i].bytes);
	}
	if (total)
		relaxed_sub(&rs->used_bytes, total);
}

static void ram_prefetch(struct store *st, u64 cluster)
{
	__builtin_prefetch(&to_ram(st)->clusters[cluster], 1);
}

/* Slots of one cluster. */
static void invalidate_some(struct ram_store *rs, u64 slot, unsigned nr)
{
	struct ram_cluster *c = &rs->clusters[slot >> CLUSTER_SHIFT];
	struct tally t = { 0 };
	unsigned live;
	u8 gen;

	if (!relaxed_load(&c->live))
		return;
	ps_mutex_lock(&c->lock);
	uniform_end(rs, slot >> CLUSTER_SHIFT);
	gen = cluster_gen(c);
	live = relaxed_load(&c->live);
	for (unsigned i = 0; i < nr; i++) {
		u64 d = relaxed_load(&rs->descs[slot + i]);

		if (!desc_live(d, gen))
			continue;
		relaxed_store(&rs->descs[slot + i], 0);
		tally_drop(rs, c, &t, d);
		live--;
	}
	tally_flush(rs, c, &t);
	cluster_set_live(rs, c, live);
	ps_mutex_unlock(&c->lock);
	if (t.total)
		relaxed_sub(&rs->used_bytes, t.total);
}

static void ram_invalidate(struct store *st, u64 slot, unsigned nr)
{
	struct ram_store *rs = to_ram(st);

	ps_assert(slot + nr <= st->nr_slots);
	while (nr) {
		unsigned n = CLUSTER_SLOTS - (unsigned)(slot & (CLUSTER_SLOTS - 1));

		n = MIN(n, nr);
		if (n == CLUSTER_SLOTS)
			ram_invalidate_cluster(st, slot >> CLUSTER_SHIFT);
		else
			invalidate_some(rs, slot, n);
		slot += n;
		nr -= n;
	}
}

static void ram_stat(struct store *st, struct store_stat *out)
{
	struct ram_store *rs = to_ram(st);
	u64 segs;

	memset(out, 0, sizeof(*out));
	ps_mutex_lock(&rs->lock);
	segs = rs->nr_segs;
	out->metadata_bytes = ALIGN_UP(rs->next_seg * sizeof(struct segment), PAGE_SIZE);
	ps_mutex_unlock(&rs->lock);
	out->segments = segs;
	out->memory_bytes = segs * SEG_SIZE;
	out->used_bytes = relaxed_load(&rs->used_bytes);
	out->capacity_bytes = rs->opt.max_bytes;
	out->segments_compacted = relaxed_load(&rs->nr_compacted);
	out->returned_bytes = relaxed_load(&rs->returned_bytes);
	out->metadata_bytes += sizeof(*rs) + (relaxed_load(&rs->desc_pages) +
					      relaxed_load(&rs->record_pages)) * PAGE_SIZE;
	for (unsigned i = 0; i < rs->opt.nr_workers; i++) {
		struct ram_worker *w = &rs->workers[i];

		out->pages_same_filled += relaxed_load(&w->same_filled);
		out->pages_incompressible += relaxed_load(&w->incompressible);
		out->io_errors += relaxed_load(&w->io_errors);
		out->metadata_bytes += sizeof(*w) + w->codec.mem_size;
	}
}

static size_t touched_size(struct ram_store *rs)
{
	u64 pages = rs->nr_clusters / (PAGE_SIZE / sizeof(struct ram_cluster)) + 1;

	return (pages / 64 + 1) * sizeof(u64);
}

static void ram_close(struct store *st)
{
	struct ram_store *rs = to_ram(st);

	for (u32 i = 0; rs->segs && i < rs->next_seg; i++)
		if (rs->segs[i].mem)
			arena_put_unit(ARENA_POOL, rs->segs[i].mem);
	for (unsigned i = 0; rs->workers && i < rs->opt.nr_workers; i++)
		codec_fini(&rs->workers[i].codec);
	arena_unmap((void *)rs->descs, st->nr_slots * sizeof(u64));
	arena_unmap(rs->clusters, rs->nr_clusters * sizeof(struct ram_cluster));
	arena_unmap(rs->segs, rs->cap_segs * sizeof(struct segment));
	arena_unmap(rs->workers, rs->opt.nr_workers * sizeof(struct ram_worker));
	arena_unmap((void *)rs->touched, touched_size(rs));
	arena_unmap(rs, sizeof(*rs));
}

/* The child has its own copy of everything, and no thread of the parent but the one that forked:
 * nothing is half done, but a lock that another thread held in passing would stay held. Cluster
 * locks need no look: they are held inside operations only. */
static void ram_after_fork(struct store *st)
{
	struct ram_store *rs = to_ram(st);

	memset(&rs->lock, 0, sizeof(rs->lock));
	memset(&rs->hk_lock, 0, sizeof(rs->hk_lock));
	for (unsigned i = 0; i < rs->opt.nr_workers; i++) {
		struct ram_worker *w = &rs->workers[i];

		memset(&w->lock, 0, sizeof(w->lock));
		relaxed_store(&w->seq, ALIGN_UP(relaxed_load(&w->seq), 2U));
	}
}

static void ram_share(struct store *st, bool shared)
{
	struct ram_store *rs = to_ram(st);

	if (shared)
		relaxed_add(&rs->forks, 1);
	relaxed_store(&rs->sharing, shared);
}

static const struct store_ops ram_ops = {
	.write = ram_write,
	.read = ram_read,
	.invalidate = ram_invalidate,
	.invalidate_cluster = ram_invalidate_cluster,
	.prefetch = ram_prefetch,
	.housekeep = ram_housekeep,
	.wasteful = ram_wasteful,
	.purge = ram_purge,
	.stat = ram_stat,
	.close = ram_close,
	.after_fork = ram_after_fork,
	.share = ram_share,
};

static int setup(struct ram_store *rs)
{
	const struct store_ram_options *o = &rs->opt;
	u64 cap;

	rs->nr_clusters = o->nr_slots >> CLUSTER_SHIFT;
	rs->max_segs = UINT32_MAX;
	/* Address space only. Four times what incompressible pages need: half dead segments and
	 * one open segment a worker fit as well. */
	cap = o->nr_slots * OBJ_SIZE(PAGE_SIZE) / SEG_SIZE * 4 + 64 + 2 * o->nr_workers;
	if (o->max_bytes) {
		rs->max_segs = (u32)MIN(o->max_bytes / SEG_SIZE, SEG_MAX);
		cap = MIN(cap, (u64)rs->max_segs + 1);
	}
	rs->cap_segs = (u32)MIN(cap, (u64)SEG_MAX);
	rs->dead = rs->free = SEG_NONE;
	rs->comp.out.seg = SEG_NONE;

	rs->descs = arena_map(o->nr_slots * sizeof(u64));
	rs->clusters = arena_map(rs->nr_clusters * sizeof(struct ram_cluster));
	rs->segs = arena_map(rs->cap_segs * sizeof(struct segment));
	rs->workers = arena_map(o->nr_workers * sizeof(struct ram_worker));
	rs->touched = arena_map(touched_size(rs));
	if (!rs->descs || !rs->clusters || !rs->segs || !rs->workers || !rs->touched)
		return -ENOMEM;
	/* With huge pages always on, one descriptor would cost 2 MiB. */
	sys_madvise((void *)rs->descs, o->nr_slots * sizeof(u64), MADV_NOHUGEPAGE);
	sys_madvise(rs->clusters, rs->nr_clusters * sizeof(struct ram_cluster), MADV_NOHUGEPAGE);
	for (unsigned i = 0; i < o->nr_workers; i++) {
		int err = codec_init(&rs->workers[i].codec, o->codec, o->level);

		if (err)
			return err;
		rs->workers[i].open.seg = SEG_NONE;
	}
	return 0;
}

struct store *store_ram_open(const struct store_ram_options *opt, int *err)
{
	struct ram_store *rs;

	*err = -EINVAL;
	if (!opt->nr_slots || opt->nr_slots % CLUSTER_SLOTS || opt->nr_slots >> 40 ||
	    !opt->nr_workers || (opt->max_bytes && opt->max_bytes < SEG_SIZE))
		return NULL;
	*err = -ENOMEM;
	rs = arena_map(sizeof(*rs));
	if (!rs)
		return NULL;
	rs->opt = *opt;
	rs->st.ops = &ram_ops;
	ps_format(rs->st.name, sizeof(rs->st.name), "ram");
	rs->st.nr_slots = opt->nr_slots;
	rs->st.counts_as_memory = true;
	*err = setup(rs);
	if (*err) {
		ram_close(&rs->st);
		return NULL;
	}
	return &rs->st;
}

bool store_ram_flip(struct store *st, u64 slot)
{
	struct ram_store *rs = to_ram(st);
	struct ram_cluster *c = &rs->clusters[slot >> CLUSTER_SHIFT];
	bool done = false;
	u64 d;

	ps_mutex_lock(&c->lock);
	d = relaxed_load(&rs->descs[slot]);
	if (desc_live(d, cluster_gen(c)) && desc_kind(d) != DESC_SAME) {
		rs->segs[desc_seg(d)].mem[desc_pos(d) + OBJ_HEADER + desc_len(d) / 2] ^= 0x10;
		done = true;
	}
	ps_mutex_unlock(&c->lock);
	return done;
}
