/* SPDX-License-Identifier: MIT */
/*
 * store.h - where the bytes of swapped pages are kept.  A store backs one swap area and is
 * addressed by slot number, 0 .. nr_slots - 1; it knows nothing of page tables or counts.
 *
 * Who may call what, when:
 *  - write and read of a slot are made by whoever holds SWAP_HAS_CACHE on it, so a slot is never
 *    written and read, or invalidated and used, at the same time.  Different slots, also of one
 *    cluster, are used by many threads at once; the store has its own locks.
 *  - invalidate comes from the swap file with the cluster's lock held: it must not sleep on I/O.
 *  - `worker` (0 .. nr_workers - 1) names preallocated contexts: two threads never use the same
 *    number at the same time.  Nothing on these paths allocates with malloc.
 */
#ifndef PS_STORE_H
#define PS_STORE_H

#include "codec.h"
#include "util.h"

struct store;

struct store_stat {
	u64 used_bytes;        /* bytes of live objects (with their headers) */
	u64 memory_bytes;      /* memory or file space held: segments, buffers; >= used_bytes */
	u64 capacity_bytes;    /* 0: no limit of its own */
	u64 metadata_bytes;    /* tables of the store, as touched */
	u64 pages_same_filled; /* pages written as one word since the start */
	u64 pages_incompressible;
	u64 io_errors;
	u64 segments, segments_compacted;
	u64 returned_bytes; /* memory given back to the system since the start */
};

struct store_ops {
	/*
	 * Writes nr pages (each PAGE_SIZE, at pages[i]) to slots[i]; ascending slots that follow each
	 * other are kept contiguous.  Returns how many, from the first, were written, or -ENOSPC /
	 * -ENOMEM / -EIO when none was.  A slot that still has data is overwritten; of the slots that
	 * were not written, those that had data still have it, or none.
	 */
	int (*write)(struct store *st, unsigned worker, const u64 *slots, const void *const *pages,
		     unsigned nr);
	/*
	 * Reads nr slots to pages[i].  Returns how many, from the first, are right; 0 .. nr.  When it
	 * is less than nr, *err says why slot [ret] could not be had: -EIO (device, or checksum
	 * wrong) or -ENODATA (nothing was ever written there).
	 */
	int (*read)(struct store *st, unsigned worker, const u64 *slots, void *const *pages,
		    unsigned nr, int *err);
	/* Drops the data of nr slots (any of which may be empty). Never fails. */
	void (*invalidate)(struct store *st, u64 slot, unsigned nr);
	/* The same for all 512 slots of a cluster, in time that does not depend on how many are
	 * filled. */
	void (*invalidate_cluster)(struct store *st, u64 cluster);
	/* The cluster's invalidate comes soon: asks for what it will read. May be NULL. */
	void (*prefetch)(struct store *st, u64 cluster);
	/*
	 * Work for the background: return dead memory, compact.  Does at most a few milliseconds'
	 * worth, returns true when there is more to do.  One caller at a time.
	 */
	bool (*housekeep)(struct store *st, unsigned worker);
	/* So much dead memory is held that housekeeping gains more than page-out. A guess, no lock. May be
	 * NULL. */
	bool (*wasteful)(struct store *st);
	/* Returns dead memory to the system now, all of it. */
	void (*purge)(struct store *st);
	void (*stat)(struct store *st, struct store_stat *out);
	void (*close)(struct store *st);
	/*
	 * Fork. Both may be NULL.  before_fork is called in the parent, after_fork in the child's copy
	 * of the memory, while no other operation runs, here or half done in another thread.
	 * before_fork returns 0, or -errno when the two sides could not be kept apart: then the
	 * program must not fork with slots in this store.
	 */
	int (*before_fork)(struct store *st);
	void (*after_fork)(struct store *st);
	/* Or NULL. Another process has, by a fork that is about to be made, or has no more, what the store holds in
	 * memory now. */
	void (*share)(struct store *st, bool shared);
};

struct store {
	const struct store_ops *ops;
	char name[24]; /* "ram", "file" */
	u64 nr_slots;
	bool counts_as_memory; /* its memory_bytes are part of the footprint */
};

struct store_ram_options {
	u64 nr_slots;    /* multiple of 512 */
	u64 max_bytes;   /* most memory for segments; 0: no limit of its own */
	enum codec_id codec;
	int level;       /* zstd: 1 .. 19 (default 1); lz4: ignored */
	unsigned nr_workers;
	bool purge_inline; /* give dead segments back in invalidate, not in the background */
	bool verify;       /* check the checksum on read; on unless a benchmark turns it off */
};
/* NULL and *err = -ENOMEM / -EINVAL on failure. */
struct store *store_ram_open(const struct store_ram_options *opt, int *err);

struct store_file_options {
	u64 nr_slots;      /* multiple of 512 */
	const char *path;  /* a directory, or a file to create; NULL: $TMPDIR or /var/tmp is the
			    * caller's business, so NULL is -EINVAL */
	bool encrypt;
	unsigned nr_workers;
	unsigned flags; /* STORE_FILE_*: switch features off, so that the fallbacks are tested */
};
#define STORE_FILE_NO_URING 1  /* pread and pwrite */
#define STORE_FILE_NO_DIRECT 2 /* through the page cache */
#define STORE_FILE_NO_AES 4    /* ChaCha20-Poly1305 also where the CPU has AES */
#define STORE_FILE_KEEP_DIR 8  /* hold the directory open, for files made when its path is gone */
struct store *store_file_open(const struct store_file_options *opt, int *err);

static inline void store_close(struct store *st)
{
	if (st)
		st->ops->close(st);
}

#endif
