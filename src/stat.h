/* SPDX-License-Identifier: MIT */
/*
 * stat.h - counters, and the memory that the members of a process tree share with `pswap run`.
 *
 * Counters live in a struct ps_member: inside the tree's shared area in run mode (so that they
 * outlive a member that is killed, and `pswap stat` and -o can read them at any time), in the
 * engine's own memory in API mode.  Everything is a relaxed atomic; a reader gets figures that
 * may be some microseconds apart.
 */
#ifndef PS_STAT_H
#define PS_STAT_H

#include "util.h"

/* Fault latencies: 8 buckets an octave of nanoseconds, 2^6 (64 ns) to 2^37 (137 s). */
#define PS_HIST_MIN_SHIFT 6
#define PS_HIST_OCTAVES 31
#define PS_HIST_BUCKETS (PS_HIST_OCTAVES * 8)

#define PS_MAX_STORES 8

struct ps_store_stat {
	char name[24];
	_Atomic u64 used_bytes, capacity_bytes, io_errors;
};

/* The keys of the stats JSON, where they are sums. */
#define PS_COUNTERS(X)                                                                           \
	X(pages_out)           /* pages whose bytes went to a store */                           \
	X(pages_in)            /* pages read back from a store */                                \
	X(pages_cache_in)      /* pages returned from the swap cache, no store involved */       \
	X(pages_same_filled)   /* of pages_out: one repeated word */                             \
	X(pages_clean_dropped) /* dropped because an equal copy was still in its slot */         \
	X(faults)              /* fault messages served */                                       \
	X(faults_zero)         /* of these: first touches */                                     \
	X(batch_frees)         /* runs of slots freed in one step */                             \
	X(entry_frees)         /* slots freed one by one */                                      \
	X(cluster_frees)       /* whole clusters freed in one step */                            \
	X(lru_drains)          /* lru_add_drain calls */                                         \
	X(refaults)            /* extents read back after reclaim had written them out */        \
	X(activations)         /* of these: soon enough to be a working set's (workingset.h) */  \
	X(owner_lookups)       /* group owner look-ups */                                        \
	X(pages_poisoned)      /* pages that could not be read back */                           \
	X(pages_written_back)  /* pages that went from memory on to another store */             \
	X(throttled_ns)        /* time touchers waited for reclaim */                            \
	X(forks)               /* forks followed */                                              \
	X(pages_pinned)        /* pages left alone because they were pinned */                   \
	X(events)              /* VM events handled */                                           \
	X(handoffs)            /* times a thread and a handler were bound to one CPU */

struct ps_member {
	_Atomic u32 pid; /* as it sees itself; 0: slot is free */
	_Atomic u32 pid_ns;    /* inode of its pid namespace; 0: not known */
	_Atomic u32 outer_pid; /* as `pswap run` sees it, if that is another namespace's; 0: not known */
	_Atomic u32 state; /* enum ps_member_state */
	_Atomic u32 engine_pid, guard_pid; /* processes that share this one's memory */
	_Atomic u64 starttime; /* field 22 of /proc/PID/stat, to tell pids apart */
	_Atomic u32 swapoff; /* enum ps_swapoff, written by `pswap swapoff` and by the engine */
	_Atomic u32 handoff_bound; /* CPU + 1 that a thread is bound to, or 0 */
	char comm[16];
	/* gauges, bytes unless said */
	_Atomic u64 footprint_bytes, peak_footprint_bytes, resident_bytes;
	/* Of footprint_bytes, as the kernel said it last.  Between two looks at memory that a fork left shared
	 * footprint_bytes is what there may be at most (account_fork.c). */
	_Atomic u64 measured_bytes;
	_Atomic u64 pool_bytes, peak_pool_bytes, metadata_bytes;
	_Atomic u64 swapped_pages; /* pages whose only copy is in a store */
	_Atomic u64 limit_bytes;   /* what this member allows itself now */
	_Atomic u64 updated_ns;	   /* CLOCK_MONOTONIC of the last refresh of the gauges */
#define X(name) _Atomic u64 name;
	PS_COUNTERS(X)
#undef X
	struct ps_store_stat stores[PS_MAX_STORES];
	_Atomic u32 nr_stores;
	_Atomic u32 fault_hist[PS_HIST_BUCKETS];
};

enum ps_member_state {
	PS_MEMBER_NEW,	     /* entered, no engine yet (far from the limit) */
	PS_MEMBER_ENGINE,    /* engine runs */
	PS_MEMBER_ARMED,     /* memory adopted */
	PS_MEMBER_UNSWAPPED, /* could not be adopted */
	PS_MEMBER_ENDED,
};

enum ps_swapoff {
	PS_SWAPOFF_NO,
	PS_SWAPOFF_ASKED,  /* bring everything in, take nothing out */
	PS_SWAPOFF_DONE,
	PS_SWAPOFF_PARTLY, /* done, but for what cannot be read back */
};

#define PS_SHM_MAGIC 0x70617773702d3100ULL
#define PS_SHM_MEMBERS 512
#define PS_LOG_LINES 64
#define PS_LOG_LEN 248

enum ps_count { PS_COUNT_ALL, PS_COUNT_RESIDENT };

/* The area is a memfd made by `pswap run`, mapped by every member. */
struct ps_shm {
	u64 magic;
	u64 size; /* sizeof, as a version check */
	u64 limit_bytes;
	u32 count;	 /* enum ps_count */
	u32 per_process; /* limit is of each process */
	u32 verbose;
	_Atomic u32 has_reaper; /* a member adopts orphans: PR_SET_CHILD_SUBREAPER, or process 1 */
	u32 pid_ns;		/* of `pswap run` */
	_Atomic u64 others_bytes; /* of processes of the tree that are no members */
	_Atomic u32 epoch; /* members that ended: who shared pages with them counts more now */
	_Atomic u64 shifted; /* bytes of shared memory that members have left to the others, since a fork */
	_Atomic u32 nr_members; /* slots ever used; scan this many */
	_Atomic u64 peak_footprint_bytes; /* largest sum, as measured, seen by any member or the parent */
	_Atomic u64 peak_pool_bytes;
	/* Lines for standard error, written by engines (which have no descriptors of the program) and
	 * printed by `pswap run`.  A writer takes ticket = log_head++, sets the line's seq to ticket, fills
	 * it, then sets seq to ticket + 1. */
	_Atomic u32 log_head;
	struct {
		_Atomic u32 seq;
		u32 len;
		char text[PS_LOG_LEN];
	} log[PS_LOG_LINES];
	/* What members that ended and whose slot was taken over had counted. */
	struct ps_member ended;
	struct ps_member members[PS_SHM_MEMBERS];
};

static inline unsigned ps_hist_bucket(u64 ns)
{
	unsigned msb, b;

	if (ns < (1ULL << PS_HIST_MIN_SHIFT))
		return 0;
	msb = 63 - __builtin_clzll(ns);
	b = (msb - PS_HIST_MIN_SHIFT) * 8 + ((ns >> (msb - 3)) & 7);
	return b < PS_HIST_BUCKETS ? b : PS_HIST_BUCKETS - 1;
}
/* Lowest nanoseconds of bucket b. */
static inline u64 ps_hist_value(unsigned b)
{
	unsigned msb = b / 8 + PS_HIST_MIN_SHIFT;

	return (1ULL << msb) + ((u64)(b & 7) << (msb - 3));
}

#define stat_add(m, field, n) relaxed_add(&(m)->field, (n))
#define stat_inc(m, field) relaxed_add(&(m)->field, 1)

/* Raises *peak to v. */
static inline void stat_peak(_Atomic u64 *peak, u64 v)
{
	u64 old = relaxed_load(peak);

	while (v > old && !atomic_compare_exchange_weak_explicit(peak, &old, v, memory_order_relaxed,
								 memory_order_relaxed))
		;
}

#endif
