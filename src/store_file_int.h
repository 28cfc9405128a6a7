/* SPDX-License-Identifier: MIT */
/*
 * store_file_int.h - the file store inside: one page of explained types.
 *
 * A *record* is one page (4096 bytes, encrypted or plain) and a tag of 16.  Records lie packed,
 * slot after slot; 512 of them are exactly 514 blocks of 4 KiB, so clusters do not share blocks and
 * a run of slots is one contiguous write.  Files are opened with O_DIRECT where the file system
 * has it: all I/O is in whole blocks, through aligned staging memory of the worker.
 *
 * A block holds the end of one record and the beginning of the next, so a write that does not begin
 * or end on a block border must keep its neighbour's bytes: it reads those blocks first (edges).
 * The cluster's lock, held from that read to the end of the write, keeps other writers of the
 * cluster away.  Readers need no lock: a neighbour's bytes are rewritten as they were.  An edge
 * whose neighbour is empty need not be read; that of the run before, the usual case while a cluster
 * is filled, is remembered by the worker.
 *
 * *seq*, 8 bytes for each slot, in memory: 0 when empty, else the file the slot is in (12 bits) and
 * a number (52 bits) that every write of a slot takes anew.  The number is the nonce of the
 * encryption, so none is used twice, and it is authenticated with the slot number: a record that
 * was changed, moved or replaced by an older one is found out.  Without encryption a 64-bit
 * checksum and the number stand in the tag: accidents are found out, intent is not.
 *
 * A seq counts only if it is not below its cluster's min_seq, so a whole cluster is emptied by
 * raising that.
 *
 * *Fork.*  Parent and child share the file but not the tables.  After a fork neither may overwrite
 * what the other may still read, so both leave the file as it is and write to a new one (own key,
 * unlinked, created at the first write).  Old files are closed when their last slot goes.  At most
 * MAX_FILES of them are alive at a time; beyond that writes fail with -ENOSPC.
 *
 * Locks: file_cluster.lock (sleeps on I/O; several are held only if all but the first were had by
 * trylock), file_store.lock.  invalidate takes none: it must not sleep on I/O.
 */
#ifndef PS_STORE_FILE_INT_H
#define PS_STORE_FILE_INT_H

#include <liburing.h>
#include <sodium.h>

#include "arena.h"
#include "lock.h"
#include "log.h"
#include "store.h"
#include "store_file.h"

#define CLUSTER_SLOTS 512U
#define CLUSTER_SHIFT 9

#define BLOCK PAGE_SIZE
#define TAG_SIZE 16U
#define RECORD_SIZE (PAGE_SIZE + TAG_SIZE)
#define CLUSTER_BYTES (CLUSTER_SLOTS * RECORD_SIZE)
_Static_assert(CLUSTER_BYTES % BLOCK == 0, "clusters must not share blocks");
_Static_assert(crypto_aead_aes256gcm_ABYTES == TAG_SIZE, "tag of AES-GCM");
_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == TAG_SIZE, "tag of ChaCha20-Poly1305");

#define SEQ_FILE_SHIFT 52
#define SEQ_NUMBER(s) ((s) & ((1ULL << SEQ_FILE_SHIFT) - 1))
#define SEQ_FILE(s) ((unsigned)((s) >> SEQ_FILE_SHIFT))
#define MAX_FILES 4096U
#define NO_FILE UINT32_MAX

struct store_fd { /* one file */
	int fd;
	bool used;	  /* the entry is taken; fd may be -1 in a child that has not been given it */
	_Atomic bool direct;
	_Atomic u64 live; /* slots that are in it */
	u8 key[32];
	crypto_aead_aes256gcm_state aes; /* the key, expanded */
} __attribute__((aligned(PS_CACHELINE)));

struct file_cluster {
	struct ps_mutex lock;
	_Atomic u16 live;    /* slots that hold data */
	_Atomic bool dirty;  /* may have blocks in the file written now. Under the lock */
	_Atomic u64 min_seq; /* lower numbers are void */
	u32 writes;	     /* runs written, for struct edge. Under the lock */
	_Atomic bool touched; /* its page of seqs was. Under the lock */
	_Atomic bool idle;   /* was found empty by housekeeping before */
};

#define HALF_SIZE KiB(64) /* staging is two of these: one is on its way while one is worked on */
#define HALF_IOS 40
#define HALF_SLOTS (HALF_SIZE / RECORD_SIZE + 1)
#define MAX_RUNS 32 /* written together */
#define EDGES 2	    /* group number: the first two are the halves */

struct io {
	u64 off;
	u8 *buf;
	u32 len;
	int res; /* 0 or -errno when done */
	struct store_fd *file;
	u32 first; /* index in the batch of the first slot with bytes in it */
	u8 group;
	bool write;
};

struct io_group {
	struct io io[2 * MAX_RUNS];
	unsigned nr, in_flight;
};

/* The last block of the last run written, when the slot after it was empty. */
struct edge {
	u64 off;
	u32 file, writes;
	bool valid;
};

struct file_run {
	u32 first, nr;	 /* in the batch */
	u8 *head, *tail; /* blocks to take the neighbours' bytes from, or NULL */
};

enum ring_state { RING_UNTRIED, RING_OK, RING_NONE };

struct file_worker {
	struct io_uring ring;
	enum ring_state ring_state;
	_Atomic bool used; /* staging was touched */
	u8 *staging;	/* two halves */
	u8 *edges;	/* 2 * MAX_RUNS blocks */
	u8 *edge_block; /* of edge */
	struct edge edge;
	struct io_group groups[3];
	struct file_run runs[MAX_RUNS];
	u64 held[MAX_RUNS]; /* clusters locked */
	unsigned nr_held;
	u64 seqs[CLUSTER_SLOTS];     /* of the slots being written */
	u32 at[2][HALF_SLOTS];	     /* reading: where in its half a slot's record begins */
	u8 io_of[2][HALF_SLOTS];     /* and the io that brings it */
	u64 seq_of[2][HALF_SLOTS];
	_Atomic u64 io_errors;
} __attribute__((aligned(PS_CACHELINE)));

struct file_store {
	struct store st;
	struct store_file_options opt;
	bool aes; /* else ChaCha20-Poly1305 */
	char *dir;  /* absolute, where files are created */
	int dir_fd; /* the same, held open; or -1 */
	char *name; /* of the first file, if one was asked for; the others have none */
	_Atomic u64 *seqs;
	struct file_cluster *clusters;
	u64 nr_clusters;
	struct store_fd *files;
	struct file_worker *workers;
	struct ps_mutex lock; /* files: creating, closing */
	_Atomic u32 cur;      /* where writes go; NO_FILE: to be created */
	_Atomic u32 nr_files;
	u32 file_end; /* entries of files[] ever used */
	_Atomic u64 next_seq;
	_Atomic u64 live, touched_pages, cluster_end, returned_bytes, cached_bytes;
	_Atomic u64 next_punch;
	bool told; /* that no file can be created; said once. Under the lock */
};

static inline struct file_store *to_file(struct store *st)
{
	return container_of(st, struct file_store, st);
}

static inline bool seq_live(const struct file_cluster *c, u64 seq)
{
	return seq && SEQ_NUMBER(seq) >= relaxed_load(&c->min_seq);
}

#define STORE_FILE_PATH_MAX 4096UL

/* store_file_rw.c */
int file_write(struct store *st, unsigned worker, const u64 *slots, const void *const *pages,
	       unsigned nr);
int file_read(struct store *st, unsigned worker, const u64 *slots, void *const *pages, unsigned nr,
	      int *err);

/* store_file_open.c */
/* Creates an unlinked file in the store's directory. 0 or -errno, with a log line. */
int file_create(struct file_store *fs, struct store_fd *f);
/* Settles dir and name from opt.path, refuses file systems in memory. */
int file_settle_path(struct file_store *fs);
/* The file that writes go to; NULL and *err when there is none and none can be created. */
struct store_fd *file_current(struct file_store *fs, int *err);
/* Closes old files in which nothing lives. */
void file_close_old(struct file_store *fs);

/* store_file_io.c */
/* Queues one transfer (or makes it at once when there is no ring). The group has room. */
void file_io_add(struct file_store *fs, struct file_worker *w, unsigned group, const struct io *io);
/* Hands what is queued to the kernel, without waiting. */
void file_io_submit(struct file_store *fs, struct file_worker *w);
/* Waits until all of the group is done; the results are in its entries. */
void file_io_wait(struct file_store *fs, struct file_worker *w, unsigned group);
static inline void file_io_reset(struct file_worker *w, unsigned group)
{
	w->groups[group].nr = 0;
}
void file_io_close(struct file_worker *w);

/* store_file_record.c */
void record_encode(struct file_store *fs, struct store_fd *f, u64 slot, u64 seq, const void *page,
		   u8 *record);
/* 0, or -EIO when the record is not what was written last. */
int record_decode(struct file_store *fs, struct store_fd *f, u64 slot, u64 seq, const u8 *record,
		  void *page);

#endif
