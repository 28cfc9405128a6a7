/* SPDX-License-Identifier: MIT */
/*
 * lock.h - mutex and reader/writer lock on raw futexes.  pthread's need TLS (owner ids, elision),
 * which engine threads have not got.  Both are zero-initialised, fair enough for short sections,
 * and spin a little before sleeping.  All futexes are process-private, which a process that
 * shares the address space (CLONE_VM) also is, as the key is the mm.
 *
 * In debug builds (-Dps_debug=true, and the sanitizers') locks have a rank, and a thread that waits
 * for one while it holds one of the same or a higher rank ends in ps_assert: that is where a deadlock
 * could be.  A lock taken by trylock is held like any other.  Rank 0 is not checked.
 */
#ifndef PS_LOCK_H
#define PS_LOCK_H

#include "sys.h"

/* The order in types.h. */
enum ps_lock_rank {
	RANK_NONE,
	RANK_FREEZE,
	RANK_IO,
	RANK_GATE,
	RANK_EXTENT,
	RANK_CLUSTER,
	RANK_AREA,
	RANK_LRU_CPU,
	RANK_LEAF,
	RANK_NR,
};

#ifdef PS_DEBUG
void ps_lock_check(u32 rank);	 /* may this thread wait for such a lock? */
void ps_lock_held(u32 rank, int by);
extern bool ps_lock_checks; /* set before any lock is taken; for threads with TLS */
#define PS_RANK_FIELD u32 rank;
#define PS_RANK(l) ((l)->rank)
#define ps_lock_set_rank(l, r) ((void)((l)->rank = (r)))
#else
static inline void ps_lock_check(u32 rank)
{
	(void)rank;
}
static inline void ps_lock_held(u32 rank, int by)
{
	(void)rank;
	(void)by;
}
#define PS_RANK_FIELD
#define PS_RANK(l) RANK_NONE
#define ps_lock_set_rank(l, r) ((void)(l))
#endif

struct ps_mutex {
	_Atomic u32 word; /* 0 free, 1 held, 2 held with waiters */
	PS_RANK_FIELD
};

void ps_mutex_lock_slow(struct ps_mutex *m);

static inline bool ps_mutex_try(struct ps_mutex *m)
{
	u32 zero = 0;

	return atomic_compare_exchange_strong_explicit(&m->word, &zero, 1, memory_order_acquire,
						       memory_order_relaxed);
}
static inline bool ps_mutex_trylock(struct ps_mutex *m)
{
	bool got = ps_mutex_try(m);

	if (got)
		ps_lock_held(PS_RANK(m), 1);
	return got;
}
static inline void ps_mutex_lock(struct ps_mutex *m)
{
	ps_lock_check(PS_RANK(m));
	if (unlikely(!ps_mutex_try(m)))
		ps_mutex_lock_slow(m);
	ps_lock_held(PS_RANK(m), 1);
}
static inline void ps_mutex_unlock(struct ps_mutex *m)
{
	ps_lock_held(PS_RANK(m), -1);
	if (unlikely(atomic_exchange_explicit(&m->word, 0, memory_order_release) == 2))
		sys_futex_wake(&m->word, 1);
}
/* Somebody sleeps for it: whoever holds it for long should make way. For the holder. */
static inline bool ps_mutex_is_contended(struct ps_mutex *m)
{
	return relaxed_load(&m->word) == 2;
}
static inline bool ps_mutex_is_locked(struct ps_mutex *m)
{
	return relaxed_load(&m->word) != 0;
}

/* Writers go first: once one waits, new readers wait behind it.  A reader must not take the same
 * lock again while it holds it. */
struct ps_rwlock {
	_Atomic u32 state;   /* readers in the low 30 bits; bit 31: a writer holds it */
	_Atomic u32 writers; /* writers that hold it or wait for it */
	_Atomic u32 wake;    /* futex both sides sleep on; bumped at release */
	_Atomic u32 sleepers; /* threads that sleep, or are about to */
	PS_RANK_FIELD
};

void ps_rwlock_read_lock(struct ps_rwlock *l);
void ps_rwlock_read_unlock(struct ps_rwlock *l);
bool ps_rwlock_write_trylock(struct ps_rwlock *l);
void ps_rwlock_write_lock(struct ps_rwlock *l);
void ps_rwlock_write_unlock(struct ps_rwlock *l);

/* A count that can be waited for: sleepers wait for `seq` to change. */
struct ps_event {
	_Atomic u32 seq;
	_Atomic u32 waiters;
};
static inline u32 ps_event_get(struct ps_event *e)
{
	return atomic_load_explicit(&e->seq, memory_order_acquire);
}
/* Returns when seq != seen or after timeout_ns (< 0: no limit). */
void ps_event_wait(struct ps_event *e, u32 seen, s64 timeout_ns);
void ps_event_wake(struct ps_event *e);

#endif
