/* SPDX-License-Identifier: MIT */
/*
 * store_file.c - the file store: tables, opening, invalidate, housekeeping, fork.  Reading and
 * writing are in store_file_rw.c.  store_file_int.h explains the layout and the rules.
 */
#include "store_file_int.h"

#include <sys/stat.h>

#define PUNCH_SCAN 2048	       /* clusters looked at in one call */
#define PUNCH_RUN 64	       /* neighbours punched by one call */
#define BUDGET_NS 2000000
#define CACHED_MAX MiB(64)     /* through the page cache before it is dropped */
#define STAGING_SIZE (2 * HALF_SIZE + (2 * MAX_RUNS + 1) * BLOCK)

static void cluster_lost(struct file_store *fs, struct file_cluster *c, unsigned n)
{
	if (!n)
		return;
	atomic_fetch_sub_explicit(&c->live, (u16)n, memory_order_release);
	relaxed_sub(&fs->live, n);
}

static void file_lost(struct file_store *fs, unsigned file, u64 n)
{
	atomic_fetch_sub_explicit(&fs->files[file].live, n, memory_order_release);
}

static void file_invalidate_cluster(struct store *st, u64 cluster)
{
	struct file_store *fs = to_file(st);
	struct file_cluster *c = &fs->clusters[cluster];
	_Atomic u64 *seqs = &fs->seqs[cluster << CLUSTER_SHIFT];
	unsigned live = relaxed_load(&c->live);
	u32 cur = relaxed_load(&fs->cur);

	if (!live)
		return;
	if (likely(relaxed_load(&fs->nr_files) == 1 && cur != NO_FILE)) {
		file_lost(fs, cur, live);
	} else {
		for (unsigned i = 0; i < CLUSTER_SLOTS; i++) {
			u64 seq = relaxed_load(&seqs[i]);

			if (seq_live(c, seq))
				file_lost(fs, SEQ_FILE(seq), 1);
		}
	}
	/* All numbers given out so far are below the next. */
	relaxed_store(&c->min_seq, relaxed_load(&fs->next_seq));
	cluster_lost(fs, c, live);
}

static void file_invalidate(struct store *st, u64 slot, unsigned nr)
{
	struct file_store *fs = to_file(st);

	ps_assert(slot + nr <= st->nr_slots);
	while (nr) {
		struct file_cluster *c = &fs->clusters[slot >> CLUSTER_SHIFT];
		unsigned n = CLUSTER_SLOTS - (unsigned)(slot & (CLUSTER_SLOTS - 1)), lost = 0;

		n = MIN(n, nr);
		if (n == CLUSTER_SLOTS) {
			file_invalidate_cluster(st, slot >> CLUSTER_SHIFT);
		} else if (relaxed_load(&c->live)) {
			for (unsigned i = 0; i < n; i++) {
				u64 seq = relaxed_load(&fs->seqs[slot + i]);

				if (!seq_live(c, seq))
					continue;
				relaxed_store(&fs->seqs[slot + i], 0);
				file_lost(fs, SEQ_FILE(seq), 1);
				lost++;
			}
			cluster_lost(fs, c, lost);
		}
		slot += n;
		nr -= n;
	}
}

/* May the blocks of the cluster go, now or (aging) at the next visit? Takes its lock if so. */
static bool take_empty(struct file_cluster *c, bool now)
{
	if (relaxed_load(&c->live) || !(relaxed_load(&c->dirty) || relaxed_load(&c->touched)))
		return false;
	if (!now && !relaxed_load(&c->idle)) {
		/* It may be about to be filled again. */
		relaxed_store(&c->idle, true);
		return false;
	}
	if (!ps_mutex_trylock(&c->lock))
		return false;
	if (!atomic_load_explicit(&c->live, memory_order_acquire))
		return true;
	ps_mutex_unlock(&c->lock);
	return false;
}

/* Gives back file space and seqs of a run of empty clusters; returns how many were looked at. */
static u64 punch_run(struct file_store *fs, u64 first, u64 end, bool now)
{
	u32 cur = relaxed_load(&fs->cur);
	u64 n = 0, touched = 0;

	end = MIN(end, first + PUNCH_RUN);
	while (first + n < end && take_empty(&fs->clusters[first + n], now))
		n++;
	if (!n)
		return 1;
	/* Blocks in an older file are not ours to punch: a fork may read them. */
	if (cur != NO_FILE &&
	    !sys_call4(SYS_fallocate, fs->files[cur].fd,
		       0x02 | 0x01 /* FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE */,
		       first * CLUSTER_BYTES, n * CLUSTER_BYTES))
		relaxed_add(&fs->returned_bytes, n * CLUSTER_BYTES);
	sys_madvise((void *)&fs->seqs[first << CLUSTER_SHIFT], n * CLUSTER_SLOTS * sizeof(u64),
		    MADV_DONTNEED);
	for (u64 i = first; i < first + n; i++) {
		touched += relaxed_load(&fs->clusters[i].touched);
		relaxed_store(&fs->clusters[i].touched, false);
		relaxed_store(&fs->clusters[i].dirty, false);
		ps_mutex_unlock(&fs->clusters[i].lock);
	}
	relaxed_sub(&fs->touched_pages, touched);
	return n;
}

/* True: the budget ran out before all clusters were seen. */
static bool punch(struct file_store *fs, u64 max, bool now)
{
	u64 end = relaxed_load(&fs->cluster_end), left = MIN(max, end);
	u64 deadline = ps_now_ns() + BUDGET_NS;

	while (left) {
		u64 at = relaxed_load(&fs->next_punch), n;

		if (at >= end)
			at = 0;
		n = punch_run(fs, at, end, now);
		relaxed_store(&fs->next_punch, at + n);
		left -= MIN(n, left);
		if (!now && n > 1 && ps_now_ns() > deadline)
			return true;
	}
	return false;
}

static bool file_housekeep(struct store *st, unsigned worker)
{
	struct file_store *fs = to_file(st);
	u32 cur = relaxed_load(&fs->cur);

	(void)worker;
	file_close_old(fs);
	/* Without direct I/O the kernel keeps a second copy of everything. */
	if (relaxed_load(&fs->cached_bytes) > CACHED_MAX && cur != NO_FILE) {
		relaxed_store(&fs->cached_bytes, 0);
		sys_call4(SYS_fadvise64, fs->files[cur].fd, 0, 0, 4 /* POSIX_FADV_DONTNEED */);
	}
	return punch(fs, PUNCH_SCAN, false);
}

static void file_purge(struct store *st)
{
	struct file_store *fs = to_file(st);

	file_close_old(fs);
	punch(fs, UINT64_MAX, true);
}

static void file_stat(struct store *st, struct store_stat *out)
{
	struct file_store *fs = to_file(st);

	memset(out, 0, sizeof(*out));
	out->used_bytes = relaxed_load(&fs->live) * RECORD_SIZE;
	ps_mutex_lock(&fs->lock);
	for (u32 i = 0; i < fs->file_end; i++) {
		struct stat sb;

		if (fs->files[i].used && !sys_call2(SYS_fstat, fs->files[i].fd, &sb))
			out->memory_bytes += (u64)sb.st_blocks * 512;
	}
	out->metadata_bytes = fs->file_end * sizeof(struct store_fd);
	ps_mutex_unlock(&fs->lock);
	/* Blocks still in the page cache may not be allocated yet. */
	out->memory_bytes = MAX(out->memory_bytes, out->used_bytes);
	out->capacity_bytes = st->nr_slots * PAGE_SIZE;
	out->returned_bytes = relaxed_load(&fs->returned_bytes);
	out->metadata_bytes += sizeof(*fs) + relaxed_load(&fs->touched_pages) * PAGE_SIZE +
			      relaxed_load(&fs->cluster_end) * sizeof(struct file_cluster);
	for (unsigned i = 0; i < fs->opt.nr_workers; i++) {
		struct file_worker *w = &fs->workers[i];

		out->io_errors += relaxed_load(&w->io_errors);
		out->metadata_bytes += sizeof(*w) + (relaxed_load(&w->used) ? STAGING_SIZE : 0);
	}
}

static void file_close(struct store *st)
{
	struct file_store *fs = to_file(st);

	for (unsigned i = 0; fs->workers && i < fs->opt.nr_workers; i++) {
		file_io_close(&fs->workers[i]);
		arena_unmap(fs->workers[i].staging, STAGING_SIZE);
	}
	for (u32 i = 0; fs->files && i < fs->file_end; i++) {
		if (fs->files[i].used && fs->files[i].fd >= 0)
			sys_close(fs->files[i].fd);
		sodium_memzero(&fs->files[i], sizeof(fs->files[i]));
	}
	arena_unmap((void *)fs->seqs, st->nr_slots * sizeof(u64));
	arena_unmap(fs->clusters, fs->nr_clusters * sizeof(struct file_cluster));
	arena_unmap(fs->files, MAX_FILES * sizeof(struct store_fd));
	arena_unmap(fs->workers, fs->opt.nr_workers * sizeof(struct file_worker));
	if (fs->dir_fd >= 0)
		sys_close(fs->dir_fd);
	arena_unmap(fs->dir, STORE_FILE_PATH_MAX);
	arena_unmap(fs->name, STORE_FILE_PATH_MAX);
	arena_unmap(fs, sizeof(*fs));
}

static int file_before_fork(struct store *st)
{
	struct file_store *fs = to_file(st);
	u32 cur = relaxed_load(&fs->cur);

	/* A file in which nothing lives has nothing that the child could read: we keep it. */
	if (cur == NO_FILE || !relaxed_load(&fs->files[cur].live))
		return 0;
	/* Clusters stay marked dirty: at worst a hole is punched where the new file has one. */
	relaxed_store(&fs->cur, NO_FILE);
	for (unsigned i = 0; i < fs->opt.nr_workers; i++)
		fs->workers[i].edge.valid = false;
	return 0;
}

static void file_after_fork(struct store *st)
{
	struct file_store *fs = to_file(st);

	memset(&fs->lock, 0, sizeof(fs->lock));
	fs->dir_fd = -1;
	relaxed_store(&fs->cur, NO_FILE);
	for (unsigned i = 0; i < fs->opt.nr_workers; i++) {
		struct file_worker *w = &fs->workers[i];

		/* The ring's memory stayed with the parent (MADV_DONTFORK). Its descriptor number may
		 * mean something else in this process: not closed. */
		memset(&w->ring, 0, sizeof(w->ring));
		w->ring_state = RING_UNTRIED;
		w->edge.valid = false;
	}
}

int store_file_fds(struct store *st, int *fds, int max)
{
	struct file_store *fs = to_file(st);
	int n = 0;

	ps_mutex_lock(&fs->lock);
	for (u32 i = 0; i < fs->file_end; i++) {
		if (!fs->files[i].used)
			continue;
		if (n < max)
			fds[n] = fs->files[i].fd;
		n++;
	}
	ps_mutex_unlock(&fs->lock);
	return n;
}

void store_file_set_fds(struct store *st, const int *fds, int n)
{
	struct file_store *fs = to_file(st);
	int at = 0;

	ps_mutex_lock(&fs->lock);
	for (u32 i = 0; i < fs->file_end; i++)
		if (fs->files[i].used)
			fs->files[i].fd = at < n ? fds[at++] : -1;
	ps_mutex_unlock(&fs->lock);
}

int store_file_dir(struct store *st)
{
	return to_file(st)->dir_fd;
}

void store_file_set_dir(struct store *st, int fd)
{
	to_file(st)->dir_fd = fd;
}

bool store_file_missing(struct store *st)
{
	struct file_store *fs = to_file(st);
	bool missing = false;

	file_close_old(fs);
	for (u32 i = 0; i < fs->file_end; i++)
		missing |= fs->files[i].used && fs->files[i].fd < 0;
	return missing;
}

u64 store_file_offset(u64 slot)
{
	return slot * RECORD_SIZE;
}

const char *store_file_check(struct store *st)
{
	struct file_store *fs = to_file(st);
	u64 live = 0, in_files = 0;

	for (u64 i = 0; i < fs->nr_clusters; i++) {
		struct file_cluster *c = &fs->clusters[i];
		unsigned n = 0;

		if (ps_mutex_is_locked(&c->lock))
			return "a cluster is locked";
		for (unsigned j = 0; relaxed_load(&c->touched) && j < CLUSTER_SLOTS; j++) {
			u64 seq = relaxed_load(&fs->seqs[(i << CLUSTER_SHIFT) + j]);

			if (!seq_live(c, seq))
				continue;
			n++;
			if (!fs->files[SEQ_FILE(seq)].used)
				return "a slot is in a file that is closed";
		}
		if (n != relaxed_load(&c->live))
			return "the live count of a cluster is wrong";
		live += n;
	}
	for (u32 i = 0; i < fs->file_end; i++)
		in_files += relaxed_load(&fs->files[i].live);
	if (live != relaxed_load(&fs->live) || live != in_files)
		return "the number of live slots is wrong";
	return NULL;
}

static const struct store_ops file_ops = {
	.write = file_write,
	.read = file_read,
	.invalidate = file_invalidate,
	.invalidate_cluster = file_invalidate_cluster,
	.housekeep = file_housekeep,
	.purge = file_purge,
	.stat = file_stat,
	.close = file_close,
	.before_fork = file_before_fork,
	.after_fork = file_after_fork,
};

static int setup(struct file_store *fs)
{
	const struct store_file_options *o = &fs->opt;
	int err = 0;

	fs->seqs = arena_map(o->nr_slots * sizeof(u64));
	fs->clusters = arena_map(fs->nr_clusters * sizeof(struct file_cluster));
	fs->files = arena_map(MAX_FILES * sizeof(struct store_fd));
	fs->workers = arena_map(o->nr_workers * sizeof(struct file_worker));
	fs->dir = arena_map(STORE_FILE_PATH_MAX);
	fs->name = arena_map(STORE_FILE_PATH_MAX);
	if (!fs->seqs || !fs->clusters || !fs->files || !fs->workers || !fs->dir || !fs->name)
		return -ENOMEM;
	sys_madvise((void *)fs->seqs, o->nr_slots * sizeof(u64), MADV_NOHUGEPAGE);
	for (unsigned i = 0; i < o->nr_workers; i++) {
		struct file_worker *w = &fs->workers[i];

		w->staging = arena_map(STAGING_SIZE);
		if (!w->staging)
			return -ENOMEM;
		w->edges = w->staging + 2 * HALF_SIZE;
		w->edge_block = w->edges + 2 * MAX_RUNS * BLOCK;
	}
	err = file_settle_path(fs);
	if (err)
		return err;
	/* Now rather than at the first write: what cannot be had is said at the start. */
	ps_mutex_lock(&fs->lock);
	err = file_create(fs, &fs->files[0]);
	if (!err) {
		fs->file_end = 1;
		relaxed_store(&fs->cur, 0);
	}
	ps_mutex_unlock(&fs->lock);
	return err;
}

/* libsodium chooses its implementations once a process; the second call would take a pthread lock. */
static bool sodium_ready(void)
{
	static struct ps_mutex lock;
	static bool ready;

	ps_mutex_lock(&lock);
	if (!ready)
		ready = sodium_init() >= 0;
	ps_mutex_unlock(&lock);
	return ready;
}

struct store *store_file_open(const struct store_file_options *opt, int *err)
{
	struct file_store *fs;

	*err = -EINVAL;
	if (!opt->nr_slots || opt->nr_slots % CLUSTER_SLOTS || opt->nr_slots >> 40 ||
	    !opt->nr_workers || !opt->path || !*opt->path || !sodium_ready())
		return NULL;
	*err = -ENOMEM;
	fs = arena_map(sizeof(*fs));
	if (!fs)
		return NULL;
	fs->opt = *opt;
	fs->st.ops = &file_ops;
	ps_format(fs->st.name, sizeof(fs->st.name), "file");
	fs->st.nr_slots = opt->nr_slots;
	fs->nr_clusters = opt->nr_slots >> CLUSTER_SHIFT;
	fs->cur = NO_FILE;
	fs->dir_fd = -1;
	fs->next_seq = 1;
	fs->aes = crypto_aead_aes256gcm_is_available() && !(opt->flags & STORE_FILE_NO_AES);
	*err = setup(fs);
	fs->opt.path = NULL; /* the caller's */
	if (*err) {
		file_close(&fs->st);
		return NULL;
	}
	return &fs->st;
}
