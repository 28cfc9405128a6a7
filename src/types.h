/* SPDX-License-Identifier: MIT */
/*
 * types.h - every core structure of the engine, on one page.
 *
 *   struct pswap       an engine: swap file, stores, swap cache, LRU, limit, threads
 *   struct ps_mm       an address space it serves: a userfaultfd, regions, a page table
 *   struct region      a registered range of addresses, with the program's hints
 *   struct extent      2 MiB of addresses: its pmd entry, its pte table, its place on the LRU
 *   struct frame       2 MiB of the swap cache: pages taken out of the program's view
 *   struct lruvec      the active and inactive list of a group; struct folio: an entry of one
 *   struct pswap_group regions with a limit of their own (group.h)
 *
 * A page of a region is in one of these states; the kernel's page table is the truth about
 * *resident*, ours about the rest:
 *
 *   PTE_NONE    resident, or never touched: a fault on it is a first touch
 *   PTE_SWAP    its bytes are in a slot; the pte holds one count of it
 *   PTE_CACHED  it lies in the extent's frame, at the same index as in the extent
 *   PTE_GUARD   the program made it a guard (MADV_GUARD_INSTALL): never filled
 *   PTE_PINNED  must stay resident (thread control blocks, robust mutexes)
 *   PTE_POISON  could not be read back: the toucher gets SIGBUS
 *
 * Lock order (a thread holding one may take only those below it):
 *
 *   0 ps_groups.lock  groups come and go, and are kept from going (API calls only)
 *   1 pswap.freeze    shared: one operation of a thread of the engine; exclusive: fork
 *   2 extent.io       long operations on an extent: read back, take out, write out (folio lock)
 *   3 ps_mm.gate      shared: "look at the ptes, change the mapping, change the ptes" as one step;
 *                     exclusive: read one message from the userfaultfd and, if it is an event,
 *                     apply it to regions and ptes.  See event.c for why reads are exclusive.
 *     pswap.window    one range at a time is made writable (unwritable.h)
 *   4 extent.lock     the ptes and the pmd entry (the kernel's split page-table lock)
 *   5 swap file: cluster lock, area lock;  6 store: its own
 *   7 lru_cpu.lock (a CPU's folio batches)
 *   8 leaves: lruvec.lock, ps_mm.table_lock, arena
 */
#ifndef PS_TYPES_H
#define PS_TYPES_H

#include "codec.h"
#include "lock.h"
#include "stat.h"
#include "swapfile.h"
#include "uffd.h"

/* ---- page table ---- */

typedef u64 pte_t;

enum pte_kind {
	PTE_NONE,
	PTE_SWAP,
	PTE_CACHED,
	PTE_GUARD,
	PTE_PINNED,
	PTE_POISON,
};
#define PTE_KIND_BITS 3
static inline enum pte_kind pte_kind(pte_t p)
{
	return p & ((1U << PTE_KIND_BITS) - 1);
}
static inline pte_t pte_make(enum pte_kind kind)
{
	return kind;
}
static inline pte_t pte_swap(swp_entry_t e)
{
	return (e.val & ~SWP_VALID) << PTE_KIND_BITS | PTE_SWAP;
}
static inline swp_entry_t pte_to_swp(pte_t p)
{
	return (swp_entry_t){ p >> PTE_KIND_BITS | SWP_VALID };
}

/* What an extent's pmd entry says: nothing, one fact about all 512 pages, or "see the table". */
enum pmd_kind { PMD_NONE, PMD_SWAP, PMD_CACHED, PMD_TABLE };

#define BLOCK_PAGES 16U /* 64 KiB, the unit of order 4 */
#define EXTENT_BLOCKS (PTRS_PER_PMD / BLOCK_PAGES)

/* The ptes of an extent, block by block: where a program touches a page here and there, 4 KiB of them for
 * each would be as much as it has. */
struct pte_table {
	pte_t *block[EXTENT_BLOCKS]; /* NULL: all PTE_NONE */
};

/* ---- LRU (lru.h, folio_batch.h) ---- */

enum lru_list { LRU_NONE, LRU_ACTIVE, LRU_INACTIVE, LRU_NR };

/* What waits in a CPU's batches, in the order in which they are drained. */
enum lru_op { LRU_OP_ADD, LRU_OP_ROTATE, LRU_OP_DEACTIVATE, LRU_OP_ACTIVATE, LRU_NR_OPS };

#define FOLIO_BATCH_SIZE 31
#define LRU_MAX_CPUS 16 /* CPU numbers are taken modulo */
#define LRU_LARGE_PAGES 16 /* 64 KiB: a folio of this size does not wait in a batch */

/* An entry of an LRU list: an extent's. Up to 512 pages. What is asked when its pages go comes first,
 * and is all that is asked when it is on no list: see struct extent. */
struct folio {
	_Atomic u16 pages;   /* in memory, resident or cached; extent.lock to change */
	_Atomic u16 pending; /* batches that it waits in */
	_Atomic u8 list;     /* enum lru_list, where it is; lruvec.lock to change */
	_Atomic u8 want;     /* enum lru_list, where it belongs */
	_Atomic u8 held;     /* it has a frame, so it stays on its list without pages too */

	_Atomic u16 counted; /* of the pages, how many its list knows of; lruvec.lock to change */
	struct lruvec *_Atomic lruvec; /* its lock to change: folio_set_lruvec() */
	struct folio *prev, *next; /* lruvec.lock */
};

struct lruvec {
	struct ps_mutex lock;
	struct folio *head[LRU_NR], *tail[LRU_NR];
	_Atomic u32 nr[LRU_NR]; /* folios */
	_Atomic u64 nr_pages[LRU_NR];
	_Atomic u64 age; /* pages that reclaim wrote out of it (workingset.h) */
};

struct folio_batch {
	u8 nr;
	bool percpu_pvec_drained; /* this use of the batch has drained the CPU's batches */
	struct folio *folios[FOLIO_BATCH_SIZE];
};

struct lru_cpu {
	struct ps_mutex lock;
	_Atomic u32 nr; /* in all batches */
	struct folio_batch batch[LRU_NR_OPS];
} __attribute__((aligned(PS_CACHELINE)));

struct lru {
	struct lruvec root; /* of the root group */
	bool drain_every; /* PSWAP_DRAIN=every: a release drains each time, for comparison */
	_Atomic u64 drains; /* lru_add_drain calls */
	_Atomic u32 nr_cpus; /* cpus[] below have been used */
	struct lru_cpu cpus[LRU_MAX_CPUS];
};

/* ---- extents ---- */

struct frame {
	char *mem; /* 2 MiB, from arena; page i holds page i of the extent */
	struct extent *extent;
	u16 nr_pages; /* pages that were moved in */
	u16 nr_live;  /* ptes that are PTE_CACHED here; extent.lock */
	bool huge;   /* one huge page: read it in place */
	bool copies; /* most were copied out of memory that a fork left shared */
};

/*
 * Aligned to a cache line by its size class in the arena.  What an unmap asks of an extent that is
 * swapped out whole, or has nothing, lies in the first line, so that unmapping waits for one line
 * of each (zap_range; prefetch_next asks for it).  The rest follows in the order of who uses it.
 */
struct extent {
	struct ps_mutex lock; /* pmd, ptes, nr_*, frame */
	struct ps_mutex io;
	struct ps_mm *mm;
	u64 addr; /* of its first byte, 2 MiB aligned */
	union {
		struct pte_table *table; /* PMD_TABLE */
		swp_entry_t swap; /* PMD_SWAP: slot of page 0, the others follow */
	};
	struct frame *frame; /* its frame, or NULL; extent_set_frame() */
	u16 nr_pte;	/* PMD_TABLE: entries that are not PTE_NONE */
	u16 nr_present; /* bits in present */
	u16 nr_swap;	/* pages that are PTE_SWAP, whatever the pmd kind */
	u8 pmd;		/* enum pmd_kind */
	_Atomic bool full; /* filled or read back as a whole since it was last out; extent.io */
	_Atomic u8 fill; /* first touches: order of the next fill (learn.c); read without extent.io */
	_Atomic bool referenced; /* asked for since it came on its list; a hint, without a lock */
	_Atomic bool spare; /* workingset.h: one more second chance */
	u8 skip;  /* reclaim passes to skip it (nothing could be taken out) */
	_Atomic bool for_worker; /* has pages that are shared or pinned: not for handlers to take out */
	struct folio folio; /* its first 8 bytes end the line */

	u64 present[PTRS_PER_PMD / 64]; /* resident pages: exact for memory of the API, in run mode
					 * what we know of */

	u64 evicted; /* lruvec.age when reclaim wrote its last page, or 0; extent.io */

	/* Groups (group.c): whose its pages are. extent.lock; region.group says the same. */
	u16 group;    /* of all pages ... */
	_Atomic bool grouped; /* the three are as the regions say */
	u16 *groups;  /* ... unless they are of several: 512, or NULL */

	/* Fault-around (learn.c); extent.io. */
	_Atomic bool in_part; /* the next window will not be all of it; a hint, read without extent.io */
	u8 order;	  /* of this stay: 0, 4 or 9 */
	_Atomic u8 proven; /* enum learn_proof; read of its neighbour without extent.io */
	u8 probe_block;	  /* order 4: the block whose pages come one at a time */
	u8 run;		  /* blocks that were asked for, or proved dense, close to each other */
	u16 hits;	  /* faults served in this stay */
	u16 next_page;	  /* page after the last window: a fault there is sequential */
	u16 window;	  /* pages of the last window */
	u16 last_tick;	  /* engine's fault clock when the extent was last asked for */
	u16 run_tick;	  /* ... when run last changed */
	u32 touched;	  /* blocks asked for in this stay, a bit each */
	u32 dense;	  /* blocks that proved dense in this stay */
	u8 close[EXTENT_BLOCKS];  /* faults in a row that came close to the one before in the block */
	u16 tick[EXTENT_BLOCKS];  /* fault clock at the block's last fault */
	_Atomic u64 quiet_until; /* ns: not to be taken out before (a DONTNEED may be under way) */

	/* The last write fault that was let go (cow.h): page after it, how many pages; extent.io. */
	u16 cow_next;
	u8 cow_pages;

	_Atomic bool unsure; /* pages that were dropped may be there still (rescan.h) */
	bool table_whole; /* PMD_TABLE: its blocks are one piece of memory; extent.lock */
};
#ifndef PS_DEBUG /* where locks have a rank */
_Static_assert(offsetof(struct extent, folio.held) < PS_CACHELINE, "one line for an unmap");
#endif

static inline struct extent *folio_extent(struct folio *f)
{
	return container_of(f, struct extent, folio);
}

/* ---- address space ---- */

enum region_flags {
	REGION_HUGE = 1,     /* MADV_HUGEPAGE, or pswap_mmap's default */
	REGION_NOHUGE = 2,   /* MADV_NOHUGEPAGE */
	REGION_RANDOM = 4,   /* MADV_RANDOM: order 0 */
	REGION_SEQ = 8,	     /* MADV_SEQUENTIAL: order 9 */
	REGION_WIPEONFORK = 16,
	REGION_DONTFORK = 32,
	REGION_LOCKED = 64, /* mlock */
	REGION_FRESH = 128, /* registered before anything in it was touched */
};

struct region {
	u64 start, end;
	u32 flags;
	u16 group;
};

#define PT_LEAF_BITS 13
#define PT_ROOT_SIZE (1U << 13)
#define PT_LEAF_SIZE (1U << PT_LEAF_BITS)

struct ps_mm {
	struct pswap *ps;
	int uffd;
	bool foreign; /* a fork's child that only this engine serves: read back, never taken out */
	struct ps_rwlock gate;
	_Atomic u32 reading; /* odd: a message is being read and, if an event, applied */
	struct region *regions; /* sorted; gate */
	u32 nr_regions, cap_regions;
	struct ps_mutex table_lock; /* adding to the tree */
	struct extent **_Atomic *root; /* [PT_ROOT_SIZE] of leaves [PT_LEAF_SIZE] */
	struct ps_mm *next; /* foreign ones */
	struct {
		u64 start, end;
	} early[16]; /* emptied by a move before the UNMAP was read; gate */
	u32 nr_early;
	u32 watched;	    /* handlers that wait for it, a bit each */
};

/* ---- swap cache ---- */

struct swap_cache {
	_Atomic u32 nr_frames;
	_Atomic u64 nr_pages; /* in all frames */
};

/* ---- groups (group.h) ---- */

#define PS_MAX_GROUPS 1024 /* with the root group, which is number 0 */

struct pswap_group {
	struct pswap *ps;
	u16 id;
	_Atomic bool live; /* ps_groups.lock and the gate, exclusively, to change */
	u32 refs;	   /* API calls that use it; ps_groups.lock */
	_Atomic u64 limit; /* pages in memory; 0: none */
	_Atomic s64 resident; /* pages in memory, in view or in frames */
	_Atomic s64 swap;     /* slots; not kept for the root group */
	_Atomic s64 reserved; /* pages that faults being served may add */
	_Atomic u64 peak;     /* of resident */
	_Atomic u64 pages_out, pages_in, reclaimed, throttled_ns;
	_Atomic u64 give_up_until; /* ns: nothing could be taken from it; do not wait before that */
	_Atomic u32 warned;
	struct lruvec lruvec; /* root group: struct lru has it */
} __attribute__((aligned(PS_CACHELINE)));

struct ps_groups {
	struct ps_mutex lock;
	_Atomic bool on; /* there are others than the root group; gate exclusive to change */
	unsigned nr;	 /* how many */
	unsigned next;	 /* number to look from for a free one: the longest unused is taken */
	_Atomic unsigned top;	   /* numbers below this have been used */
	struct pswap_group *_Atomic table; /* PS_MAX_GROUPS; NULL before the first is made */
	struct lruvec mixed;	   /* folios of extents whose pages are of several groups */
};

/* ---- engine ---- */

#define PS_MAX_HANDLERS 4
#define PS_MAX_WORKERS 4
#define PS_NR_CTX (PS_MAX_HANDLERS + PS_MAX_WORKERS + 2) /* + control, + caller of the API */

/* With a small limit 2 MiB is a big step, and every writer has 2 MiB of its own. */
#define PS_SMALL_LIMIT MiB(64)

#define PS_BUF_PAGES 64U /* 256 KiB at a time, so that small limits are not eaten by buffers */

/* One for each thread of the engine; `id` is the worker number for stores and allocation. */
struct ps_ctx {
	struct pswap *ps;
	unsigned id;
	struct ps_mutex busy;		   /* signal mode: whose it is right now */
	void (*main)(struct ps_ctx *ctx); /* body of its thread */
	char *stack;			   /* run mode */
	_Atomic s32 tid;
	pid_t run_tid; /* handlers: a run of faults, for handoff.c */
	u32 run;
	bool run_mixed; /* of several threads */
	u64 run_ns;
	char *buf;	/* PS_BUF_PAGES: pages read back, or copied out of a frame */
	u64 slots[PTRS_PER_PMD];
	swp_entry_t entries[PTRS_PER_PMD];
	void *pages[PTRS_PER_PMD];
	u16 index[PTRS_PER_PMD];
	u32 rng;
	u16 only; /* reclaim for the group of this number: pages of others stay; 0: any */
	struct codec probe;	   /* to ask whether a page compresses at all */
	char probe_out[CODEC_BOUND];
	/* faults put off until a waiting event has been read */
	struct {
		struct ps_mm *mm;
		u64 addr;
		bool wp;
	} deferred[64];
	unsigned nr_deferred;
	pid_t fault_tid; /* handlers: whose fault is being served, or 0 */
	u64 stuck_ns; /* since when an event waits that cannot be read, or 0 */
};

/* Ranges in which a system call of the program may be dropping pages right now: nothing in them is
 * taken out.  Written by hooks without any lock. */
#define PS_INFLIGHT 64
struct ps_inflight {
	_Atomic u64 start, end; /* start == 0: free */
	_Atomic u32 keep;	/* resident pages stay (MADV_FREE) */
	_Atomic u32 uses;	/* calls that had it */
	u32 uses_seen;		/* by event_age_inflight(), at since_ns */
	u64 since_ns;
};

/* A range that is writable for a moment though the program does not want it to be (unwritable.h). */
struct ps_window {
	struct ps_mutex lock;
	_Atomic u64 start, end; /* start == 0: none */
};

/*
 * Events that were read while a fork may have been copying us, to be applied when it is over: by us, and by the child,
 * whose copy has those that came before it.  In one page, so that the child's copy is of one moment.
 */
#define PS_PUT_OFF 63
struct ps_put_off {
	_Alignas(2048) _Atomic u32 nr;
	struct uffd_msg msg[PS_PUT_OFF];
};
_Static_assert(sizeof(struct ps_put_off) == 2048, "in one page");

struct ps_tuning {
	u64 limit;
	enum ps_count count;
	unsigned nr_handlers, nr_workers;
	unsigned uffd_want;
	bool foreign_program; /* run mode: anything may happen to the memory behind our back */
	bool no_thp;	      /* never use huge pages */
	bool clone_copy;      /* clones get slots of their own, for comparison and tests */
	bool handoff;	      /* handoff.c may bind threads of the program to CPUs */
	unsigned around;      /* 0: fault-around is learned; else 1 + its fixed order */
};

#define PS_CPU_WORDS 16 /* affinity masks: 1024 CPUs */

#define PS_BOUND_MAX 8

/* Threads of the program and one handler share a CPU (handoff.c). */
struct ps_handoff {
	struct ps_mutex lock; /* to begin and end */
	_Atomic u32 bound; /* CPU + 1; 0: no binding */
	_Atomic u32 owner; /* id of the handler */
	_Atomic u32 nr;	   /* of the program's threads */
	pid_t tid[PS_BOUND_MAX];
	u64 mask[PS_BOUND_MAX][PS_CPU_WORDS]; /* what theirs were */
	unsigned nr_cpus;  /* that the engine may use */
	bool off;	   /* not possible here */
	_Atomic u32 faults; /* since the last tick */
	u64 started_ns, tick_ns, hold_ns;
	_Atomic u64 not_before_ns;
	u64 own[PS_CPU_WORDS];	/* the engine's */
};

/* Copies of pages that a fork left shared (cow.h). */
struct ps_cow {
	_Atomic u32 registered; /* for write faults; what comes later is to be, too */
	_Atomic u32 on;		/* something may be write-protected */
	_Atomic u32 again;	/* there was a fork since all of it was */
	_Atomic u64 unshared;	/* pages that we made the program's own, to take them out */
	_Atomic u64 served;	/* write faults: the kernel counts each as one of the program's own */
	_Atomic u64 faults, faults_at_fork; /* minor faults that were not ours: now, at the last fork */
	_Atomic u64 fork_ns; /* when that was */
};

/* A range being paged out on request: the caller and the workers take extents from it. */
struct ps_job {
	struct ps_mutex lock; /* one job at a time */
	struct ps_mm *mm;
	_Atomic u64 start, end;
	_Atomic bool write;
	_Atomic u64 next; /* address of the next extent to take; >= end: nothing left */
	_Atomic u32 running; /* threads at work on it */
	_Atomic s32 error;
	struct ps_event done_ev;
};

struct pswap {
	struct ps_tuning cfg;
	struct uffd_caps caps;
	struct ps_rwlock freeze;
	struct ps_mm mm;
	struct ps_mm *foreign; /* list; freeze exclusive to change */
	struct swapfile swap;
	struct store *stores[PS_MAX_STORES];
	unsigned nr_stores;
	unsigned ram_area; /* index of the RAM store's area, or nr_stores */
	struct swap_cache cache;
	struct lru lru;
	struct ps_groups groups;
	struct ps_member *stat; /* counters; own or in the tree's shared area */
	struct ps_shm *shm;	/* or NULL */

	/* the limit (account.c) */
	int proc_fd; /* /proc: opened early, for a program that changes its root */
	int statm_fd, maps_fd, pagemap_fd, mem_fd, rollup_fd;
	_Atomic u32 forked;	     /* pages may be shared with another process: ask for PSS */
	_Atomic s64 shared_discount; /* bytes resident here that others pay for, */
	_Atomic s64 shared_rss;	     /* of so many */
	_Atomic u64 shared_faults; /* faults of the program, and pages unshared, when that was asked for */
	_Atomic u64 shifted_ours, shifted_seen; /* of ps_shm.shifted: ours; the others', at that time */
	_Atomic s64 shifted_since; /* what we told since then */
	_Atomic u32 nr_others;	   /* living members, about, that may share memory with us */
	_Atomic u32 shared_epoch, rollup_busy;
	_Atomic u64 rollup_due_ns, rollup_soon_ns, shared_unsure_ns;
	int stat_fd;		     /* /proc/PID/stat of the program, or -1 */
	pid_t program_pid;	     /* or 0: not run mode */
	pid_t proc_pid;		     /* the same process in proc_fd's numbers; 0: not known */
	int empty_fd;	   /* an empty file, or -1: to poison where the kernel cannot */
	const char *zeros; /* 2 MiB of zeros that use no memory */
	_Atomic s64 footprint;	    /* bytes: last sample plus what happened since */
	_Atomic u64 sampled_ns;
	_Atomic s64 nr_resident;    /* pages known to be resident in regions */
	_Atomic u64 pool_bytes, metadata_bytes; /* as of the last refresh */
	_Atomic u32 nr_extents;
	_Atomic u64 table_bytes; /* of ptes */
	_Atomic u64 limit_now;	    /* limit less what other members of the tree use */
	_Atomic u32 reap;	    /* a frame lost its last page to an unmap */
	struct ps_cow cow;
	struct ps_event reclaim_ev; /* wake the workers */
	struct ps_event freed_ev;   /* memory was freed: wake the throttled */
	struct ps_job job;
	_Atomic s64 reserved;	    /* bytes that faults being served may add */
	_Atomic u32 empty_passes;   /* times a worker found nothing to take out or write */
	_Atomic u64 give_up_until;  /* ns: nothing could be freed; do not wait before that */
	_Atomic u64 writeback_at, writeback_not_before; /* writeback.c: an address; ns */
	_Atomic u64 full_until;	    /* ns: every store was full; do not try before that */
	_Atomic u32 warned; /* bit set of warnings given once */
	_Atomic u64 pages_cloned; /* pages that got a slot by sharing it (clone.c) */
	_Atomic u32 files_held; /* a child is to take descriptors of file stores: close none */
	_Atomic u32 locked_all; /* mlockall: take nothing out */
	_Atomic u32 swapoff;	/* somebody looks at the memory: the same */

	/* learning (learn.c) */
	_Atomic u32 density; /* 0 .. 1024: how often probes were dense lately */
	_Atomic u32 fault_clock; /* faults that were asked for a window */

	/* threads */
	_Atomic u32 stop;
	_Atomic u32 nr_threads;
	struct ps_ctx *ctx[PS_NR_CTX];
	struct ps_mutex ctx_lock; /* the API callers' context */
	struct ps_inflight inflight[PS_INFLIGHT];
	struct ps_window window;
	struct ps_put_off put_off;
	_Atomic u32 raw_calls; /* events of calls that no hook announced */
	_Atomic u64 rescan_ns; /* when extents that are unsure are looked at; 0: none is */
	_Atomic u32 pending_events; /* a COPY or MOVE met EAGAIN */
	struct ps_handoff handoff;
	pid_t pid; /* a process id to name this address space by */
	/* What to do about a fork that was not announced: owns the child's userfaultfd. */
	void (*foreign_fork)(struct ps_mm *parent, int uffd);
	int (*inherit_proc)(void); /* a descriptor of /proc where it cannot be opened, or NULL */
	int kick_fd; /* eventfd: the list of foreign address spaces changed */
};

enum ps_warning { WARN_EXCEED = 1, WARN_POISON = 2, WARN_NO_STORE = 4, WARN_IO = 8, WARN_VMA = 16,
		  WARN_FOREIGN = 32 };

/* True the first time it is asked for w. */
static inline bool ps_warn_once(struct pswap *ps, enum ps_warning w)
{
	return !(atomic_fetch_or(&ps->warned, w) & w);
}

/* A system call of the program is at work on some of [start, end). */
static inline bool ps_is_inflight(struct pswap *ps, u64 start, u64 end)
{
	for (unsigned i = 0; i < PS_INFLIGHT; i++) {
		u64 s = atomic_load(&ps->inflight[i].start);

		if (s && s < end && atomic_load(&ps->inflight[i].end) > start)
			return true;
	}
	return false;
}

#endif
