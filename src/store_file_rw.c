/* SPDX-License-Identifier: MIT */
/* store_file_rw.c - writing and reading runs of records; see store_file_int.h. */
#include "store_file_int.h"

static struct store_fd *file_of(struct file_store *fs, u64 seq)
{
	return &fs->files[SEQ_FILE(seq)];
}

static u64 block_down(u64 off)
{
	return off & ~(u64)(BLOCK - 1);
}

/*
 * Writing.  A batch is written in portions of up to MAX_RUNS runs and CLUSTER_SLOTS slots:
 *  plan     cut into runs, lock their clusters, read the edges that must be kept
 *  encode   run after run into the halves of the staging memory; a full half is sent off, up to the
 *           last whole block, and what is left over begins the next half
 *  commit   when all is written: the seqs, and the locks go
 */
struct portion {
	struct file_store *fs;
	struct file_worker *w;
	struct store_fd *file;
	u32 file_nr;
	const u64 *slots;
	const void *const *pages;
	unsigned nr, nr_runs, nr_edges;
	u64 top; /* highest slot planned */
	u32 fail_at; /* slots from here on are not on disk */
	int err;
	/* encoding */
	unsigned half;
	u32 fill;  /* bytes of the half that are taken */
	u32 begin; /* where in the half the piece under construction begins */
	u64 off;   /* its place in the file */
	u32 first; /* the first slot with bytes in it */
};

static bool holds(struct file_worker *w, u64 cluster)
{
	for (unsigned i = w->nr_held; i-- > 0;)
		if (w->held[i] == cluster)
			return true;
	return false;
}

/* May this cluster be written in this portion? Only the first lock is waited for, so that two
 * workers never wait for each other. */
static bool hold(struct portion *p, u64 cluster)
{
	struct file_worker *w = p->w;
	struct ps_mutex *m = &p->fs->clusters[cluster].lock;

	if (!w->nr_held)
		ps_mutex_lock(m);
	else if (!ps_mutex_trylock(m))
		return false;
	w->held[w->nr_held++] = cluster;
	return true;
}

static bool in_file(struct portion *p, u64 slot)
{
	u64 seq = relaxed_load(&p->fs->seqs[slot]);

	return seq_live(&p->fs->clusters[slot >> CLUSTER_SHIFT], seq) && SEQ_FILE(seq) == p->file_nr;
}

/* A block for the neighbour's bytes, remembered or to be read. */
static u8 *get_edge(struct portion *p, u64 off, struct file_cluster *c, u32 first)
{
	struct file_worker *w = p->w;
	u8 *block = w->edges + p->nr_edges++ * BLOCK;
	struct io io = { .off = off, .buf = block, .len = BLOCK, .file = p->file, .first = first };

	if (w->edge.valid && w->edge.off == off && w->edge.file == p->file_nr &&
	    w->edge.writes == c->writes)
		memcpy(block, w->edge_block, BLOCK);
	else
		file_io_add(p->fs, w, EDGES, &io);
	return block;
}

static void plan_run(struct portion *p, unsigned first, unsigned nr)
{
	struct file_run *r = &p->w->runs[p->nr_runs++];
	u64 slot = p->slots[first], last = slot + nr - 1;
	struct file_cluster *c = &p->fs->clusters[slot >> CLUSTER_SHIFT];
	u64 off = slot * RECORD_SIZE, end = (last + 1) * RECORD_SIZE;

	*r = (struct file_run){ .first = first, .nr = nr };
	/* Records are longer than blocks: only the next neighbour has bytes in an edge. Where there
	 * are any, the neighbour is of the same cluster. */
	if (off % BLOCK && in_file(p, slot - 1))
		r->head = get_edge(p, block_down(off), c, first);
	if (end % BLOCK && in_file(p, last + 1))
		r->tail = get_edge(p, block_down(end), c, first);
}

static void plan(struct portion *p, unsigned nr)
{
	unsigned i = 0;

	while (i < nr && i < CLUSTER_SLOTS && p->nr_runs < MAX_RUNS) {
		u64 cluster = p->slots[i] >> CLUSTER_SHIFT;
		unsigned n = 1;

		ps_assert(p->slots[i] < p->fs->st.nr_slots);
		while (i + n < nr && i + n < CLUSTER_SLOTS && p->slots[i + n] == p->slots[i] + n &&
		       p->slots[i + n] >> CLUSTER_SHIFT == cluster)
			n++;
		/* Runs of one cluster must not share blocks: they do not when they ascend and do not
		 * touch, as in every sane batch. */
		if (holds(p->w, cluster) ? p->slots[i] <= p->top + 1 : !hold(p, cluster))
			break;
		plan_run(p, i, n);
		p->top = MAX(p->top, p->slots[i] + n - 1);
		i += n;
	}
	p->nr = p->fail_at = i;
}

static void failed(struct portion *p, u32 first, int err)
{
	if (first >= p->fail_at)
		return;
	p->fail_at = first;
	p->err = err;
}

static void check_group(struct portion *p, unsigned group)
{
	struct io_group *g = &p->w->groups[group];

	file_io_wait(p->fs, p->w, group);
	for (unsigned i = 0; i < g->nr; i++)
		if (g->io[i].res)
			failed(p, g->io[i].first, g->io[i].res);
	file_io_reset(p->w, group);
}

static u8 *half_mem(struct portion *p)
{
	return p->w->staging + p->half * HALF_SIZE;
}

/* Sends bytes [begin, end) of the half off. */
static void send_piece(struct portion *p, u32 end)
{
	struct io io = { .off = p->off,
			 .buf = half_mem(p) + p->begin,
			 .len = end - p->begin,
			 .file = p->file,
			 .first = p->first,
			 .write = true };

	if (!io.len)
		return;
	file_io_add(p->fs, p->w, p->half, &io);
	file_io_submit(p->fs, p->w);
}

/* To the other half, which may still be on its way to the disk. */
static void next_half(struct portion *p)
{
	p->half ^= 1;
	check_group(p, p->half);
	p->fill = 0;
}

static void begin_run(struct portion *p, struct file_run *r)
{
	u64 off = p->slots[r->first] * RECORD_SIZE;
	u32 head = off % BLOCK;

	if (p->fill + head + RECORD_SIZE > HALF_SIZE || p->w->groups[p->half].nr >= HALF_IOS)
		next_half(p);
	p->begin = p->fill;
	p->off = off - head;
	p->first = r->first;
	if (r->head)
		memcpy(half_mem(p) + p->begin, r->head, head);
	else
		memset(half_mem(p) + p->begin, 0, head);
	p->fill += head;
}

static void encode_run(struct portion *p, struct file_run *r)
{
	u32 end, gap;

	begin_run(p, r);
	for (unsigned i = r->first; i < r->first + r->nr; i++) {
		if (p->fill + RECORD_SIZE > HALF_SIZE) {
			u8 *old = half_mem(p);
			u32 whole = (u32)block_down(p->fill), left = p->fill - whole;

			send_piece(p, whole);
			p->off += whole - p->begin;
			next_half(p);
			memcpy(half_mem(p), old + whole, left);
			p->begin = 0;
			p->fill = left;
			/* With bytes left over, the slot before has its end in this piece. */
			p->first = left ? i - 1 : i;
		}
		p->w->seqs[i] = atomic_fetch_add(&p->fs->next_seq, 1) |
				(u64)p->file_nr << SEQ_FILE_SHIFT;
		record_encode(p->fs, p->file, p->slots[i], p->w->seqs[i], p->pages[i],
			      half_mem(p) + p->fill);
		p->fill += RECORD_SIZE;
	}
	end = ALIGN_UP(p->fill, (u32)BLOCK);
	gap = end - p->fill;
	if (gap && r->tail)
		memcpy(half_mem(p) + p->fill, r->tail + BLOCK - gap, gap);
	else
		memset(half_mem(p) + p->fill, 0, gap);
	send_piece(p, end);
	p->w->edge.valid = gap && !r->tail;
	if (p->w->edge.valid) {
		memcpy(p->w->edge_block, half_mem(p) + end - BLOCK, BLOCK);
		p->w->edge.off = p->off + (end - p->begin) - BLOCK;
	}
	p->fill = end;
}

static void touch(struct file_store *fs, struct file_cluster *c, u64 cluster)
{
	u64 end = relaxed_load(&fs->cluster_end);

	relaxed_store(&c->touched, true);
	relaxed_add(&fs->touched_pages, 1);
	while (end < cluster + 1 &&
	       !atomic_compare_exchange_weak(&fs->cluster_end, &end, cluster + 1))
		;
}

/* Slots before fail_at have their new data, the others of the run none. */
static void commit_run(struct portion *p, struct file_run *r)
{
	struct file_store *fs = p->fs;
	u64 cluster = p->slots[r->first] >> CLUSTER_SHIFT;
	struct file_cluster *c = &fs->clusters[cluster];
	int more = 0;

	if (!relaxed_load(&c->touched))
		touch(fs, c, cluster);
	for (unsigned i = r->first; i < r->first + r->nr; i++) {
		_Atomic u64 *seq = &fs->seqs[p->slots[i]];
		u64 old = relaxed_load(seq);

		if (seq_live(c, old)) {
			atomic_fetch_sub_explicit(&file_of(fs, old)->live, 1, memory_order_release);
			more--;
		}
		if (i < p->fail_at) {
			relaxed_add(&p->file->live, 1);
			more++;
		}
		relaxed_store(seq, i < p->fail_at ? p->w->seqs[i] : 0);
	}
	atomic_fetch_add_explicit(&c->live, (u16)more, memory_order_release);
	relaxed_add(&fs->live, (u64)(s64)more);
	relaxed_store(&c->dirty, true);
	relaxed_store(&c->idle, false);
	c->writes++;
}

static void commit(struct portion *p)
{
	struct file_worker *w = p->w;
	struct file_run *last = &w->runs[p->nr_runs - 1];

	for (unsigned i = 0; i < p->nr_runs; i++)
		commit_run(p, &w->runs[i]);
	w->edge.valid &= p->fail_at == p->nr;
	w->edge.file = p->file_nr;
	w->edge.writes = p->fs->clusters[p->slots[last->first] >> CLUSTER_SHIFT].writes;
	while (w->nr_held)
		ps_mutex_unlock(&p->fs->clusters[w->held[--w->nr_held]].lock);
	if (p->err && p->err != -ENOSPC && p->err != -EDQUOT)
		relaxed_add(&w->io_errors, 1);
}

/* Writes as many of the slots as make a portion; returns how many are on disk from the first on. */
static unsigned write_portion(struct file_store *fs, struct file_worker *w, const u64 *slots,
			      const void *const *pages, unsigned nr, int *err)
{
	struct portion p = { .fs = fs, .w = w, .slots = slots, .pages = pages };

	p.file = file_current(fs, err);
	if (!p.file)
		return 0;
	p.file_nr = (u32)(p.file - fs->files);
	plan(&p, nr);
	file_io_submit(fs, w);
	check_group(&p, EDGES);
	for (unsigned i = 0; i < p.nr_runs && w->runs[i].first < p.fail_at; i++)
		encode_run(&p, &w->runs[i]);
	check_group(&p, 0);
	check_group(&p, 1);
	commit(&p);
	*err = p.err;
	return p.fail_at;
}

int file_write(struct store *st, unsigned worker, const u64 *slots, const void *const *pages,
	       unsigned nr)
{
	struct file_store *fs = to_file(st);
	struct file_worker *w = &fs->workers[worker];
	unsigned done = 0;
	int err = 0;

	while (done < nr && !err)
		done += write_portion(fs, w, slots + done, pages + done, nr - done, &err);
	if (done || !nr)
		return (int)done;
	switch (err) {
	case -ENOSPC:
	case -EDQUOT:
	case -EFBIG:
		return -ENOSPC;
	case -ENOMEM:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

/* Reading: one half of the staging memory is decoded while the other is on its way. */
struct reading {
	struct file_store *fs;
	struct file_worker *w;
	const u64 *slots;
	void *const *pages;
	unsigned nr, next;
	int err;		   /* why slots[next] stops the reading */
	unsigned begin[2], end[2]; /* slots of each half */
};

/* Queues reads for slots[next...] until the half is full. */
static void read_half(struct reading *r, unsigned half)
{
	struct file_worker *w = r->w;
	struct file_store *fs = r->fs;
	u32 fill = 0;

	file_io_reset(w, half);
	r->begin[half] = r->next;
	while (r->next < r->nr && !r->err && w->groups[half].nr < HALF_IOS) {
		u64 slot = r->slots[r->next], off = slot * RECORD_SIZE;
		u32 pos = fill + off % BLOCK;
		struct io io = { .off = block_down(off),
				 .buf = w->staging + half * HALF_SIZE + fill,
				 .first = r->next };
		unsigned n;

		if (pos + RECORD_SIZE > HALF_SIZE)
			break;
		for (n = 0; r->next + n < r->nr && pos + RECORD_SIZE <= HALF_SIZE; n++) {
			u64 s = r->slots[r->next + n], seq;
			unsigned at = r->next + n - r->begin[half];

			ps_assert(s < fs->st.nr_slots);
			if (s != slot + n)
				break;
			seq = relaxed_load(&fs->seqs[s]);
			if (!seq_live(&fs->clusters[s >> CLUSTER_SHIFT], seq)) {
				r->err = -ENODATA;
				break;
			}
			if (n && file_of(fs, seq) != io.file)
				break;
			io.file = file_of(fs, seq);
			w->at[half][at] = pos;
			w->io_of[half][at] = (u8)w->groups[half].nr;
			w->seq_of[half][at] = seq;
			pos += RECORD_SIZE;
		}
		if (!n)
			break;
		io.len = ALIGN_UP(pos, (u32)BLOCK) - fill;
		file_io_add(fs, w, half, &io);
		r->next += n;
		fill += io.len;
	}
	r->end[half] = r->next;
	file_io_submit(fs, w);
}

/* Decodes what came; false: *done is the slot that is not right. */
static bool decode_half(struct reading *r, unsigned half, unsigned *done)
{
	struct file_worker *w = r->w;

	file_io_wait(r->fs, w, half);
	for (unsigned i = r->begin[half]; i < r->end[half]; i++) {
		unsigned at = i - r->begin[half];
		u64 seq = w->seq_of[half][at];
		u8 *record = w->staging + half * HALF_SIZE + w->at[half][at];

		*done = i;
		if (w->groups[half].io[w->io_of[half][at]].res ||
		    record_decode(r->fs, file_of(r->fs, seq), r->slots[i], seq, record, r->pages[i]))
			return false;
	}
	*done = r->end[half];
	return true;
}

int file_read(struct store *st, unsigned worker, const u64 *slots, void *const *pages, unsigned nr,
	      int *err)
{
	struct file_store *fs = to_file(st);
	struct file_worker *w = &fs->workers[worker];
	struct reading r = { .fs = fs, .w = w, .slots = slots, .pages = pages, .nr = nr };
	unsigned done = 0, half = 0;
	bool good = true;

	read_half(&r, 0);
	while (good && r.begin[half] < r.end[half]) {
		read_half(&r, half ^ 1);
		good = decode_half(&r, half, &done);
		half ^= 1;
	}
	for (half = 0; half < 2; half++) {
		file_io_wait(fs, w, half);
		file_io_reset(w, half);
	}
	if (!good) {
		relaxed_add(&w->io_errors, 1);
		*err = -EIO;
	} else if (done < nr) {
		*err = r.err;
	}
	return (int)done;
}
