/* SPDX-License-Identifier: MIT */
/*
 * pswap.h - private swap for a process, as a library.
 *
 * A struct pswap is an engine of its own: memory mapped with pswap_mmap() may grow past memory_limit;
 * what does not fit is compressed, or written to the stores, and comes back when it is touched.
 * Calls return 0, a pointer, or -1 / MAP_FAILED with errno set.  All calls are thread-safe unless
 * said otherwise; none may be made from a signal handler.
 *
 * Memory of a struct pswap belongs to the process that mapped it: it is not inherited by fork()
 * (MADV_DONTFORK), and the engine does not run in the child.
 */
#ifndef PSWAP_H
#define PSWAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PSWAP_API __attribute__((visibility("default")))
#else
#define PSWAP_API
#endif

struct pswap;
struct pswap_group;

/* pswap_options.flags */
#define PSWAP_COUNT_RESIDENT 0x1u /* the limit bounds resident pages only, not the pool */
#define PSWAP_FAULT_SIGNAL   0x2u /* faults are served by the faulting thread (SIGBUS); see below */
#define PSWAP_FAULT_THREAD   0x4u /* faults are served by engine threads (the default) */

struct pswap_options {
	size_t size;		   /* sizeof(struct pswap_options) */
	uint64_t memory_limit;	   /* bytes: resident pages, frames, pool and metadata; at least 16 MiB */
	const char *const *stores; /* as `pswap run -s`, in order of preference; NULL: {"ram", "file"} */
	unsigned n_stores;	   /* 0 with stores == NULL */
	unsigned workers;	   /* page-out threads; 0: one for each CPU, at most 4 */
	unsigned flags;
};

/*
 * Starts an engine.  In signal mode a SIGBUS handler is installed (the old one is called for
 * addresses that are not pswap's) and system calls given swapped memory fail with EFAULT.
 *
 * EINVAL: opt->size unknown, limit under 16 MiB or over the address space, unknown store, codec or
 * flag (the reason is one line in pswap_strerror()); ENOMEM; EPERM or ENOSYS: no userfaultfd here
 * (pswap doctor says why).
 */
PSWAP_API int pswap_open(struct pswap **ps, const struct pswap_options *opt);

/* Unmaps every region, stops the threads, frees everything. EINVAL: not open (a second close). No
 * other call on ps may be running or made later. */
PSWAP_API int pswap_close(struct pswap *ps);

/*
 * Maps length bytes (a multiple of 4096, not 0) of zeroed private memory, 2 MiB aligned when length
 * is at least 2 MiB.  group: NULL for the root group.  flags: 0, or PSWAP_MAP_NOHUGE to use 4 KiB
 * pages only.  EINVAL (a group that is not one of ps is that, too), ENOMEM.
 */
#define PSWAP_MAP_NOHUGE 0x1u
PSWAP_API void *pswap_mmap(struct pswap *ps, size_t length, struct pswap_group *group,
			   unsigned flags);

/* Unmaps any page-aligned part of memory mapped by pswap_mmap. EINVAL: unaligned, length 0, or a part
 * is not pswap's (nothing was unmapped). */
PSWAP_API int pswap_munmap(struct pswap *ps, void *addr, size_t length);

/*
 * MADV_PAGEOUT (write out now; returns when done), MADV_COLD (take out first), MADV_WILLNEED (read
 * back in the background), MADV_DONTNEED (contents become zero), MADV_POPULATE_READ and _WRITE
 * (read back now), and the hints MADV_NORMAL, RANDOM, SEQUENTIAL, HUGEPAGE, NOHUGEPAGE.
 * EINVAL: unaligned, not pswap's, or another advice.  ENOMEM: PAGEOUT found no room in any store.
 */
PSWAP_API int pswap_madvise(struct pswap *ps, void *addr, size_t length, int advice);

/*
 * Drops the bytes [addr + new_length, addr + old_length) of an object at addr, which is a multiple of
 * 4096: they become zero, the mapping stays.  Lengths need not be multiples; the bytes of the last
 * page up to old_length are zeroed by writing.  Whatever is dropped of it in memory is released with
 * one drain of this CPU's folio batches (lru_drains; PSWAP_DRAIN=every in the environment of
 * pswap_open: one for each 31 folios).  EINVAL: new_length larger than old_length, addr unaligned, or
 * a part not pswap's.
 */
PSWAP_API int pswap_truncate(struct pswap *ps, void *addr, size_t old_length, size_t new_length);

/*
 * *copy becomes new memory with what [addr, addr + length) holds now, page-aligned; later writes to
 * either side are not seen by the other, and either may be unmapped first.  All of the original is
 * written out, and the two share its slots until they read them back: a clone costs no memory of its
 * own before.  Groups and hints are those of the original; *copy lies at the same place in its 2 MiB.
 *
 * Each page is copied as it is at one moment, but not all pages at the same one: a thread that writes
 * to several meanwhile may be seen in some of them only.  Pages that the kernel cannot move (mlock, a
 * device transfer under way) are read in place, and a write at that moment may be seen in part.
 *
 * EINVAL: unaligned, length 0, no place for the result, or a part is not pswap's; ENOMEM: no memory, or
 * no room in any store; EIO: a page of the original cannot be read back.  There is no copy then.
 */
PSWAP_API int pswap_clone(struct pswap *ps, void *addr, size_t length, void **copy);

/*
 * Groups: memory that has a limit of its own within the engine's.  Each page belongs to one group, the
 * root group unless said otherwise, and is charged to it while it is in memory (limit bounds that sum;
 * compressed memory and metadata are the engine's) and, once written, for its slot.  A group that
 * is full makes room by taking out its own pages only; when the engine is full all groups give.
 */

/* A new, empty group. limit: bytes, rounded down to pages, 4 MiB to 128 TiB. EINVAL: another limit, or
 * no place for the result; ENOMEM; ENOSPC: there are 1023 already. */
PSWAP_API int pswap_group_create(struct pswap *ps, uint64_t limit, struct pswap_group **group);

/* What is in it, in memory or swapped, goes to the root group with its charges; the handle must not be
 * used any more. EINVAL: no such group (deleted already, or its engine is closed); EBUSY: another
 * call uses it right now. Nothing was changed then. */
PSWAP_API int pswap_group_delete(struct pswap_group *group);

/*
 * [addr, addr + length), page-aligned, belongs to group (NULL: the root group) from now on, its charges
 * included.  If the group is over its limit then, pages of it are taken out before the call returns.
 * EINVAL: a part is not pswap's, or the group is not one of ps; EBUSY: what is locked (mlock) would be
 * more than the limit; ENOMEM.  Nothing was changed then.
 */
PSWAP_API int pswap_group_move(struct pswap *ps, void *addr, size_t length,
			       struct pswap_group *group);

struct pswap_group_stat {
	size_t size; /* set by the caller: sizeof(struct pswap_group_stat) */
	uint64_t limit_bytes;
	uint64_t mapped_bytes; /* of its regions */
	uint64_t resident_bytes, peak_resident_bytes; /* charged: in view, or taken out and not written */
	uint64_t swapped_pages; /* charged slots; what clones share is charged once */
	uint64_t pages_out, pages_in; /* since it was made */
	uint64_t pages_reclaimed; /* of pages_out: because the group was full */
	uint64_t throttled_ns; /* time that faults waited for room in it */
};

/* Fills st. EINVAL: no such group, or st->size unknown. */
PSWAP_API int pswap_group_stat(struct pswap_group *group, struct pswap_group_stat *st);

struct pswap_stat {
	size_t size; /* set by the caller: sizeof(struct pswap_stat) */
	/* bytes */
	uint64_t limit_bytes, footprint_bytes, peak_footprint_bytes, resident_bytes;
	uint64_t pool_bytes, peak_pool_bytes, metadata_bytes;
	/* pages of 4096 bytes, or counts */
	uint64_t swapped_pages, pages_out, pages_in, pages_same_filled, pages_clean_dropped;
	uint64_t faults, faults_zero;
	uint64_t fault_ns_p50, fault_ns_p99; /* nanoseconds */
	uint64_t batch_frees, entry_frees, cluster_frees;
	uint64_t lru_drains; /* one for each range dropped or unmapped that had pages in memory */
	uint64_t pages_cache_in, pages_poisoned, pages_pinned;
	uint64_t slots_used, frames_used, segments_used; /* 0 again when every region is unmapped */
	uint64_t store_used_bytes[8], store_io_errors[8];
	uint64_t returned_bytes; /* pool memory given back to the system since the start */
	uint64_t refaults;    /* 2 MiB extents read back after reclaim had written them out */
	uint64_t activations; /* of these: soon enough to belong to a working set that is being thrashed */
	uint64_t pages_cloned; /* pages that clones took over by sharing a slot */
	uint64_t owner_lookups; /* look-ups of a slot's group; none while there is the root group only */
};

/* Fills st up to st->size. EINVAL: size 0 or not a known version's. */
PSWAP_API int pswap_stat(struct pswap *ps, struct pswap_stat *st);

/* Waits until pool memory freed so far has been returned to the system; for measuring. */
PSWAP_API int pswap_purge(struct pswap *ps);

/* Why the last failing call of this thread failed, in one line; never NULL. */
PSWAP_API const char *pswap_strerror(void);

#ifdef __cplusplus
}
#endif
#endif
