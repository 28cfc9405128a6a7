/* SPDX-License-Identifier: MIT */
/*
 * store_ram_int.h - the compressed RAM store inside: one page of explained types.
 *
 * Bytes live in *segments* of 2 MiB, each one huge page.  A worker appends the compressed pages it
 * writes to its own *open* segment, so that the bytes of a cluster written by one worker lie next
 * to each other; a full segment is *sealed*.  A segment whose last live byte is dropped goes back
 * to the system as a whole.  Sealed segments that are mostly dead are emptied by the compactor,
 * which copies what lives into a segment of its own.
 *
 * An *object* is a 32-bit checksum followed by the stored bytes, at a multiple of 8 in its segment.
 * It knows nothing of its slot; the *descriptor* of the slot, 8 bytes, says where it is:
 *
 *	63        40 39     27 26      9 8   2 1  0
 *	| segment  | length  | offset  | gen | kind |      DESC_OBJ, DESC_SAME_OBJ
 *	| the 32-bit word    |         | gen | kind |      DESC_SAME (no object)
 *
 * A descriptor counts only while its generation is the one of its cluster.  So a whole cluster is
 * invalidated by stepping the generation: its 512 descriptors are not walked.
 *
 * A *cluster record*, one cache line for 512 slots, says which segments hold how many live bytes of
 * the cluster, so that their counts can be dropped in one step as well.  When more segments than
 * fit have a part in it, the record is *scattered*, and the descriptors are walked after all.
 *
 * A cluster whose 512 pages are written in one go, all filled with the same 32-bit word, is
 * *uniform*: the word is in its record, and its descriptors, with the page of memory that they
 * take, are not used at all.  They are written when a part of the cluster is to change.
 *
 * Who keeps whom from what:
 *  - The owner of a slot (see store.h) is the only one who reads, writes or invalidates it.  So the
 *    store needs locks only where different slots meet (cluster records, segments), and against
 *    the compactor, which moves objects whoever owns them.
 *  - ram_cluster.lock: the descriptors of the cluster (for writing) and its record.
 *  - Readers take no lock.  The compactor replaces a descriptor by one compare under the cluster
 *    lock, and an emptied segment is kept until every worker that may have seen an old descriptor
 *    has left read() (ram_worker.seq: odd while inside).
 *  - segment.refs counts live bytes, plus SEG_OPEN and SEG_VICTIM: whoever brings it to 0 owns the
 *    segment's end, nobody else touches it then.
 *  - ram_worker.lock: the open segment, between the worker and housekeeping.
 *  - Lock order: hk_lock, ram_worker.lock, ram_cluster.lock (several only under hk_lock,
 *    ascending), ram_store.lock.  The arena's locks come last.
 */
#ifndef PS_STORE_RAM_INT_H
#define PS_STORE_RAM_INT_H

#include "arena.h"
#include "codec.h"
#include "lock.h"
#include "log.h"
#include "store.h"
#include "store_ram.h"

#define CLUSTER_SLOTS 512U
#define CLUSTER_SHIFT 9

#define SEG_SIZE ((u32)ARENA_UNIT)
#define SEG_OPEN (1U << 24)   /* a worker or the compactor appends to it */
#define SEG_VICTIM (1U << 25) /* the compactor empties it */
#define SEG_LIVE(refs) ((refs) & (SEG_OPEN - 1))
#define SEG_NONE UINT32_MAX
#define SEG_MAX (1U << 24)

#define OBJ_HEADER sizeof(u32)
#define OBJ_SIZE(len) ALIGN_UP((u32)(len) + (u32)OBJ_HEADER, 8U)
/* While so much is left in the open segment, the next page can be compressed straight into it. */
#define OBJ_ROOM OBJ_SIZE(CODEC_BOUND)

enum desc_kind { DESC_NONE, DESC_SAME, DESC_OBJ, DESC_SAME_OBJ };

#define DESC_GEN_SHIFT 2
#define DESC_GEN_MASK 0x7fULL
#define DESC_OFF_SHIFT 9
#define DESC_OFF_MASK 0x3ffffULL
#define DESC_LEN_SHIFT 27
#define DESC_LEN_MASK 0x1fffULL
#define DESC_SEG_SHIFT 40
#define GEN_LAST 127 /* 0: the cluster's descriptors were never touched, or given back */

_Static_assert(SEG_SIZE / 8 - 1 <= DESC_OFF_MASK, "offset field");
_Static_assert(PAGE_SIZE <= DESC_LEN_MASK, "length field");

static inline u64 desc_object(enum desc_kind kind, u32 seg, u32 pos, u32 len)
{
	return (u64)seg << DESC_SEG_SHIFT | (u64)len << DESC_LEN_SHIFT |
	       (u64)(pos / 8) << DESC_OFF_SHIFT | kind;
}
static inline u64 desc_same(u32 word)
{
	return (u64)word << 32 | DESC_SAME;
}
static inline enum desc_kind desc_kind(u64 d)
{
	return (enum desc_kind)(d & 3);
}
static inline u8 desc_gen(u64 d)
{
	return d >> DESC_GEN_SHIFT & DESC_GEN_MASK;
}
static inline u32 desc_seg(u64 d)
{
	return (u32)(d >> DESC_SEG_SHIFT);
}
static inline u32 desc_pos(u64 d)
{
	return (u32)(d >> DESC_OFF_SHIFT & DESC_OFF_MASK) * 8;
}
static inline u32 desc_len(u64 d)
{
	return d >> DESC_LEN_SHIFT & DESC_LEN_MASK;
}
/* A zeroed descriptor has generation 0, which is never that of a cluster with live slots. */
static inline bool desc_live(u64 d, u8 gen)
{
	return desc_kind(d) != DESC_NONE && desc_gen(d) == gen;
}
/* Bytes the slot has in a segment. */
static inline u32 desc_bytes(u64 d)
{
	return desc_kind(d) == DESC_SAME ? 0 : OBJ_SIZE(desc_len(d));
}

#define CLUSTER_PARTS 6
#define CLUSTER_SCATTERED 0xff /* in nr_parts */
#define CLUSTER_UNIFORM (1ULL << 32) /* in uniform, over the word */

struct ram_cluster {
	struct ps_mutex lock;
	_Atomic u8 gen;	 /* changed under the lock, or by the owner of all slots */
	u8 nr_parts;	 /* entries of part[], or CLUSTER_SCATTERED */
	_Atomic u16 live; /* slots that hold data; changed under the lock */
	struct {
		u32 seg, bytes;
	} part[CLUSTER_PARTS];
	_Atomic u64 uniform; /* CLUSTER_UNIFORM and the word of all its pages, or 0; set by the owner
			      * of all slots, both changed under the lock */
};
#ifndef PS_DEBUG /* where locks have a rank */
_Static_assert(sizeof(struct ram_cluster) == PS_CACHELINE, "one line for a cluster");
#endif

struct segment {
	u8 *mem;	  /* set while in use or dead */
	_Atomic u32 refs; /* live bytes, SEG_OPEN, SEG_VICTIM */
	u32 next;	  /* link of the dead and free lists */
	u32 forks;	  /* ram_store.forks when it was opened */
};

/* Where someone appends. */
struct open_seg {
	u32 seg; /* SEG_NONE: none open */
	u32 pos;
	u8 *mem;
	u32 seen; /* pos at the last housekeeping: no change means idle */
};

struct ram_worker {
	struct ps_mutex lock; /* held through write(), tried by housekeeping */
	_Atomic u32 seq;      /* odd: inside read() */
	u32 snapshot;	      /* seq at the end of the compaction pass */
	struct open_seg open;
	struct codec codec;
	_Atomic u64 same_filled, incompressible, io_errors;
	u64 descs[CLUSTER_SLOTS]; /* of pages written, not yet published */
} __attribute__((aligned(PS_CACHELINE)));

#define MAX_VICTIMS 32

struct compactor {
	struct open_seg out;
	u32 victims[MAX_VICTIMS];
	unsigned nr_victims;
	bool scanning;	  /* victims chosen, clusters are being gone through */
	bool waiting;	  /* all moved, readers may still be inside */
	u64 next_cluster; /* of the pass */
	u32 next_seg;	  /* where to look for victims */
	u32 slots[CLUSTER_SLOTS];
	u64 from[CLUSTER_SLOTS], to[CLUSTER_SLOTS];
};

struct ram_store {
	struct store st;
	struct store_ram_options opt;
	_Atomic u64 *descs;	      /* by slot */
	struct ram_cluster *clusters; /* by slot / 512 */
	struct segment *segs;
	struct ram_worker *workers;
	_Atomic u64 *touched; /* a bit for each page of clusters[] that was written */
	u64 nr_clusters;
	u32 max_segs; /* by max_bytes; UINT32_MAX: none */
	u32 cap_segs; /* entries of segs[] */

	struct ps_mutex lock; /* the four below */
	u32 dead;	      /* segments without a live byte, memory still held */
	u32 free;	      /* numbers without memory */
	u32 next_seg;	      /* numbers never used */
	_Atomic u32 nr_segs;  /* with memory: open, sealed, dead */

	_Atomic u32 nr_dead;
	_Atomic u64 used_bytes, returned_bytes;
	_Atomic u64 desc_pages, record_pages; /* touched */
	_Atomic u64 live_clusters; /* with data that has descriptors */
	_Atomic u64 cluster_end; /* beyond the highest that ever had descriptors */
	_Atomic u64 nr_compacted;
	_Atomic u32 forks;    /* of the process: segments from before one are another's too, */
	_Atomic bool sharing; /* while this is set */
	_Atomic bool pressed; /* a write met max_bytes since the last housekeeping */

	struct ps_mutex hk_lock; /* compactor, and the giving back of descriptor pages */
	struct compactor comp;
	u64 next_empty; /* where to look for descriptor pages to give back */
};

/* Nothing is in the cluster's descriptors, but they have memory. Lock held, or for a guess. */
static inline bool descs_idle(struct ram_cluster *c)
{
	return relaxed_load(&c->gen) && (!relaxed_load(&c->live) || relaxed_load(&c->uniform));
}

static inline struct ram_store *to_ram(struct store *st)
{
	return container_of(st, struct ram_store, st);
}

/* Another process has it too: writing into it takes a copy, and its memory goes when both have let go of it. */
static inline bool seg_shared(struct ram_store *rs, u32 seg)
{
	return relaxed_load(&rs->sharing) && rs->segs[seg].forks != relaxed_load(&rs->forks);
}

/* store_ram_segment.c */
/* Opens a segment for `o`. 0, -ENOSPC (max_bytes) or -ENOMEM. The compactor may go one over. */
int seg_open(struct ram_store *rs, struct open_seg *o, bool compactor);
/* When there are no more: another worker's open segment with room for a page. False: none. w's lock
 * is held, the others' are only tried. */
bool seg_borrow(struct ram_store *rs, struct ram_worker *w);
/* Gives up the open segment; its memory goes when nothing lives in it. */
void seg_seal(struct ram_store *rs, struct open_seg *o);
static inline void seg_get(struct ram_store *rs, u32 seg, u32 refs)
{
	atomic_fetch_add_explicit(&rs->segs[seg].refs, refs, memory_order_relaxed);
}
void seg_dead(struct ram_store *rs, u32 seg);
/* True when it was the last reference. */
static inline bool seg_put(struct ram_store *rs, u32 seg, u32 refs)
{
	u32 old = atomic_fetch_sub_explicit(&rs->segs[seg].refs, refs, memory_order_acq_rel);

	ps_debug_assert(SEG_LIVE(old) >= SEG_LIVE(refs));
	if (old != refs)
		return false;
	seg_dead(rs, seg);
	return true;
}
/* Returns up to nr dead segments to the system; true when there are more. */
bool seg_purge(struct ram_store *rs, unsigned nr);

/* store_ram.c; with the cluster's lock held */
void ram_part_add(struct ram_cluster *c, u32 seg, u32 bytes);
void ram_part_sub(struct ram_cluster *c, u32 seg, u32 bytes);

/* store_ram_compact.c */
bool ram_housekeep(struct store *st, unsigned worker);
bool ram_wasteful(struct store *st);
void ram_purge(struct store *st);

#endif
