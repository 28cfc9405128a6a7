/* SPDX-License-Identifier: MIT */
/* lock.c - see lock.h.  The mutex is the three-state futex mutex of Drepper's "Futexes Are
 * Tricky"; the reader/writer lock keeps readers in one word and sleeps on another. */
#include "lock.h"

#define SPIN_ROUNDS 100
#define RW_WRITER (1U << 31)

#ifdef PS_DEBUG
/* Only in the library: the engine's threads in run mode have no thread-local storage of ours. */
bool ps_lock_checks;
static __thread int held[RANK_NR];

void ps_lock_check(u32 rank)
{
	if (!ps_lock_checks)
		return;
	for (u32 r = rank; rank && r < RANK_NR; r++)
		ps_assert(!held[r]);
}

void ps_lock_held(u32 rank, int by)
{
	if (!ps_lock_checks || rank == RANK_NONE)
		return;
	held[rank] += by;
	ps_assert(held[rank] >= 0);
}
#endif

void ps_mutex_lock_slow(struct ps_mutex *m)
{
	for (int i = 0; i < SPIN_ROUNDS; i++) {
		if (relaxed_load(&m->word) == 0 && ps_mutex_try(m))
			return;
		cpu_relax();
	}
	while (atomic_exchange_explicit(&m->word, 2, memory_order_acquire) != 0)
		sys_futex_wait(&m->word, 2, -1);
}

/* seen was read before the state that made the caller wait; a release in between has changed
 * wake, or sees the sleeper and changes it. */
static void rw_sleep(struct ps_rwlock *l, int *spins, u32 seen, bool writer)
{
	if ((*spins)++ < SPIN_ROUNDS) {
		cpu_relax();
		return;
	}
	atomic_fetch_add(&l->sleepers, 1);
	/* Look once more now that we are counted. */
	if (writer ? atomic_load(&l->state) != 0 :
		     (atomic_load(&l->state) & RW_WRITER) || atomic_load(&l->writers))
		sys_futex_wait(&l->wake, seen, -1);
	atomic_fetch_sub(&l->sleepers, 1);
}

static void rw_wake(struct ps_rwlock *l)
{
	if (!atomic_load(&l->sleepers))
		return;
	atomic_fetch_add(&l->wake, 1);
	sys_futex_wake(&l->wake, INT32_MAX);
}

void ps_rwlock_read_lock(struct ps_rwlock *l)
{
	int spins = 0;

	ps_lock_check(PS_RANK(l));
	for (;;) {
		u32 seen = atomic_load(&l->wake);
		u32 s = atomic_load(&l->state);

		if (!(s & RW_WRITER) && relaxed_load(&l->writers) == 0) {
			if (!atomic_compare_exchange_weak(&l->state, &s, s + 1))
				continue;
			ps_lock_held(PS_RANK(l), 1);
			return;
		}
		rw_sleep(l, &spins, seen, false);
	}
}

void ps_rwlock_read_unlock(struct ps_rwlock *l)
{
	ps_lock_held(PS_RANK(l), -1);
	/* Only the last reader out, and only when a writer waits, has someone to wake. */
	if (atomic_fetch_sub(&l->state, 1) == 1 && atomic_load(&l->writers))
		rw_wake(l);
}

bool ps_rwlock_write_trylock(struct ps_rwlock *l)
{
	u32 zero = 0;

	if (!atomic_compare_exchange_strong(&l->state, &zero, RW_WRITER))
		return false;
	atomic_fetch_add(&l->writers, 1);
	ps_lock_held(PS_RANK(l), 1);
	return true;
}

void ps_rwlock_write_lock(struct ps_rwlock *l)
{
	int spins = 0;

	ps_lock_check(PS_RANK(l));
	atomic_fetch_add(&l->writers, 1);
	for (;;) {
		u32 seen = atomic_load(&l->wake);
		u32 zero = 0;

		if (atomic_compare_exchange_strong(&l->state, &zero, RW_WRITER)) {
			ps_lock_held(PS_RANK(l), 1);
			return;
		}
		rw_sleep(l, &spins, seen, true);
	}
}

void ps_rwlock_write_unlock(struct ps_rwlock *l)
{
	ps_lock_held(PS_RANK(l), -1);
	atomic_fetch_sub(&l->writers, 1);
	atomic_store(&l->state, 0);
	rw_wake(l);
}

void ps_event_wait(struct ps_event *e, u32 seen, s64 timeout_ns)
{
	atomic_fetch_add(&e->waiters, 1);
	if (ps_event_get(e) == seen)
		sys_futex_wait(&e->seq, seen, timeout_ns);
	atomic_fetch_sub(&e->waiters, 1);
}

void ps_event_wake(struct ps_event *e)
{
	atomic_fetch_add(&e->seq, 1);
	if (atomic_load(&e->waiters))
		sys_futex_wake(&e->seq, INT32_MAX);
}
