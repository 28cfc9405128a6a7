/* SPDX-License-Identifier: MIT */
/*
 * lock.h - mutex and reader/writer lock on raw futexes.  pthread's need TLS (owner ids, elision),
 * which engine threads have not got.  Both are zero-initialised, fair enough for short sections,
 * and spin a little before sleeping.  All futexes are process-private, which a process that
 * shares the address space (CLONE_VM) also is, as the key is the mm.
 *
 * In debug builds each lock has a rank and a thread may only take locks of a higher rank than it
 * holds (ranks in types.h, "Lock order"); rank 0 is unchecked.
 */
#ifndef PS_LOCK_H
#define PS_LOCK_H

#include "sys.h"

struct ps_mutex {
	_Atomic u32 word; /* 0 free, 1 held, 2 held with waiters */
};

void ps_mutex_lock_slow(struct ps_mutex *m);

static inline bool ps_mutex_trylock(struct ps_mutex *m)
{
	u32 zero = 0;

	return atomic_compare_exchange_strong_explicit(&m->word, &zero, 1, memory_order_acquire,
						       memory_order_relaxed);
}
static inline void ps_mutex_lock(struct ps_mutex *m)
{
	if (unlikely(!ps_mutex_trylock(m)))
		ps_mutex_lock_slow(m);
}
static inline void ps_mutex_unlock(struct ps_mutex *m)
{
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
