/* SPDX-License-Identifier: MIT */
/*
 * threads - what the kernel writes when a thread starts and ends, and what threads share, in
 * swapped memory (FACTS trap 6: with PF_EXITING the kernel does not wait on userfaultfd; the thread
 * id word stays, pthread_join hangs, a robust mutex is never marked).
 *
 *     threads join|detached|stacks|robust|cleartid|cancel|tls|sync
 */
#include "pt.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <semaphore.h>

static char *mem;
static const size_t size = 32 * PT_MIB;
static __thread u64 tls_words[2000];

static long futex(void *w, int op, u32 val, const struct timespec *ts)
{
	return syscall(SYS_futex, w, op, val, ts, NULL, 0);
}

static void *short_thread(void *arg)
{
	u64 me = (uintptr_t)arg;
	char frame[20000], *p = malloc(3000 + me % 5000);

	CHECK(p);
	for (int i = 0; i < 2000; i++) {
		CHECK(tls_words[i] == 0); /* a cached stack's TLS is cleared */
		tls_words[i] = me + i;
	}
	memset(frame, me, sizeof(frame));
	memset(p, me, 3000);
	if (me % 16 == 0)
		pt_verify_at(mem + me % 1000 * PT_PAGE, PT_PAGE, 1, me % 1000);
	if (me % 64 == 0)
		usleep(2000);
	for (int i = 0; i < 2000; i++)
		CHECK(tls_words[i] == me + i);
	for (int i = 0; i < 3000; i++)
		CHECK(p[i] == (char)me && frame[i * 6] == (char)me);
	free(p);
	return (void *)(me * 2);
}

static void join(void)
{
	pthread_t th[16];
	struct pt_churn c;
	void *ret;

	pt_churn_start(&c, size);
	for (u64 i = 0; i < 1600; i += 16) {
		for (u64 k = 0; k < 16; k++)
			PCHECK(pthread_create(&th[k], NULL, short_thread, (void *)(i + k)));
		if (i % 160 == 0)
			usleep(5000);
		for (u64 k = 0; k < 16; k++) {
			PCHECK(pthread_join(th[k], &ret));
			CHECK((u64)ret == 2 * (i + k));
		}
	}
	pt_churn_stop(&c);
}

static sem_t *slots; /* in memory that is swapped */
static void *detached_thread(void *arg)
{
	short_thread(arg);
	CHECK(sem_post(slots) == 0);
	return NULL;
}

static void detached(void)
{
	struct pt_churn c;
	pthread_t th;

	slots = (sem_t *)(mem + 1500 * PT_PAGE);
	CHECK(sem_init(slots, 0, 32) == 0);
	pt_churn_start(&c, size);
	for (u64 i = 1; i < 2500; i++) {
		CHECK(sem_wait(slots) == 0);
		PCHECK(pthread_create(&th, NULL, detached_thread, (void *)i));
		PCHECK(pthread_detach(th));
	}
	for (int i = 0; i < 32; i++)
		CHECK(sem_wait(slots) == 0);
	pt_churn_stop(&c);
	pt_fill_at(mem + 1500 * PT_PAGE, PT_PAGE, 1, 1500);
}

/* Stacks (so thread control blocks, TLS and the tid word, too) in the program's own memory. */
#define STACKS 24
static u32 go;
static void *stack_thread(void *arg)
{
	char frame[100000];
	u64 me = (uintptr_t)arg;

	for (int i = 0; i < 2000; i++)
		tls_words[i] = me + i;
	for (size_t i = 0; i < sizeof(frame); i++)
		frame[i] = i * me;
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		futex(&go, FUTEX_WAIT, 0, NULL);
	for (size_t i = 0; i < sizeof(frame); i++)
		CHECK(frame[i] == (char)(i * me));
	for (int i = 0; i < 2000; i++)
		CHECK(tls_words[i] == me + i);
	if (me & 1)
		pthread_exit((void *)me);
	return (void *)me;
}

static void stacks(void)
{
	size_t n = 512 * 1024;

	for (int round = 0; round < 3; round++) {
		pthread_t th[STACKS];
		char *st[STACKS];
		void *ret;

		go = 0;
		for (u64 i = 0; i < STACKS; i++) {
			pthread_attr_t at;

			PCHECK(pthread_attr_init(&at));
			if (round == 1)
				st[i] = mem + i * n; /* swapped, with other contents */
			else
				CHECK(posix_memalign((void **)&st[i], 64, n) == 0);
			PCHECK(pthread_attr_setstack(&at, st[i], n));
			PCHECK(pthread_create(&th[i], &at, stack_thread, (void *)(i + 1)));
			PCHECK(pthread_attr_destroy(&at));
		}
		pt_evict(mem + STACKS * n, size - STACKS * n); /* sleeping threads' stacks may go */
		pt_press();
		__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
		futex(&go, FUTEX_WAKE, INT_MAX, NULL);
		for (u64 i = 0; i < STACKS; i++) {
			PCHECK(pthread_join(th[i], &ret));
			CHECK((u64)ret == i + 1);
			if (round == 1)
				memset(st[i], 7, n);
			else
				free(st[i]);
		}
	}
	pt_fill(mem, STACKS * n, 1);
}

/* Robust mutexes on the heap, each on a page of its own, held when their owner ends. */
#define ROBUST 64
static pthread_mutex_t *robust_at(int i)
{
	return (pthread_mutex_t *)(mem + (size_t)i * 37 * PT_PAGE + 512);
}

static pthread_barrier_t held;
static void *robust_thread(void *arg)
{
	int first = (uintptr_t)arg;

	for (int i = first; i < ROBUST; i += 4)
		PCHECK(pthread_mutex_lock(robust_at(i)));
	pthread_barrier_wait(&held);
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		futex(&go, FUTEX_WAIT, 0, NULL);
	if (first == 1)
		pthread_exit(NULL);
	return NULL;
}

static void *waiter_thread(void *arg)
{
	int r = pthread_mutex_lock(robust_at((uintptr_t)arg)); /* asleep when the owner ends */

	CHECKF(r == EOWNERDEAD, "waiter %d: %d", (int)(uintptr_t)arg, r);
	PCHECK(pthread_mutex_consistent(robust_at((uintptr_t)arg)));
	PCHECK(pthread_mutex_unlock(robust_at((uintptr_t)arg)));
	return NULL;
}

static void robust(void)
{
	for (int round = 0; round < 4; round++) {
		pthread_t th[4], waiter[4];
		pthread_mutexattr_t at;
		struct timespec ts;

		go = 0;
		PCHECK(pthread_barrier_init(&held, NULL, 5));
		PCHECK(pthread_mutexattr_init(&at));
		PCHECK(pthread_mutexattr_setrobust(&at, PTHREAD_MUTEX_ROBUST));
		if (round == 2)
			PCHECK(pthread_mutexattr_setprotocol(&at, PTHREAD_PRIO_INHERIT));
		pt_fill(mem, size, 4);
		for (int i = 0; i < ROBUST; i++)
			PCHECK(pthread_mutex_init(robust_at(i), &at));
		for (uintptr_t t = 0; t < 4; t++)
			PCHECK(pthread_create(&th[t], NULL, robust_thread, (void *)t));
		pthread_barrier_wait(&held);
		for (uintptr_t t = 0; t < 4; t++)
			PCHECK(pthread_create(&waiter[t], NULL, waiter_thread,
					      (void *)(t + ROBUST - 4)));
		usleep(20000);
		pt_press();
		pt_evict_share(mem + 20 * PT_MIB, size - 20 * PT_MIB, 40);
		__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
		futex(&go, FUTEX_WAKE, INT_MAX, NULL);
		for (int t = 0; t < 4; t++)
			PCHECK(pthread_join(th[t], NULL));
		for (int t = 0; t < 4; t++)
			PCHECK(pthread_join(waiter[t], NULL));
		for (int i = 0; i < ROBUST - 4; i++) {
			int r;

			clock_gettime(CLOCK_REALTIME, &ts);
			ts.tv_sec += 3;
			r = pthread_mutex_timedlock(robust_at(i), &ts);
			CHECKF(r == EOWNERDEAD, "round %d mutex %d: %d (%s)", round, i, r,
			       strerror(r));
			PCHECK(pthread_mutex_consistent(robust_at(i)));
			PCHECK(pthread_mutex_unlock(robust_at(i)));
		}
		for (int i = 0; i < ROBUST; i++)
			PCHECK(pthread_mutex_destroy(robust_at(i)));
	}
	pt_fill(mem, size, 1);
}

/* Threads made by hand: the words for PARENT_SETTID, CHILD_SETTID, CHILD_CLEARTID in swapped
 * memory. */
struct byhand {
	_Atomic u32 parent_tid, child_tid, ready, go;
};
static int byhand_main(void *arg)
{
	struct byhand *b = arg; /* no libc here: this thread has no TLS of its own */

	b->ready = 1;
	pt_sys6(SYS_futex, (long)&b->ready, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
	while (!go)
		pt_sys6(SYS_futex, (long)&go, FUTEX_WAIT, 0, 0, 0, 0);
	return 0;
}

__attribute__((noreturn)) static int byhand_asm(void *arg)
{
	byhand_main(arg);
	for (;;)
		pt_sys6(SYS_exit, 0, 0, 0, 0, 0, 0); /* not at a site of libc's */
}

static void cleartid(void)
{
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
		    CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
	size_t n = 64 * 1024;

	for (int round = 0; round < 2; round++) {
		struct byhand *b[16];
		char *st[16];

		go = 0;
		pt_fill(mem, size, 4);
		pt_evict(mem, size);
		for (int i = 0; i < 16; i++) {
			struct timespec ts = { 5, 0 };
			int tid;

			st[i] = mem + i * n;
			b[i] = (struct byhand *)(mem + 8 * PT_MIB + i * PT_MIB + 64);
			b[i]->ready = 0;
			tid = clone(round ? byhand_asm : byhand_main, st[i] + n, flags, b[i],
				    &b[i]->parent_tid, NULL, &b[i]->child_tid);
			CHECK(tid > 0);
			while (!b[i]->ready)
				CHECK(futex(&b[i]->ready, FUTEX_WAIT_PRIVATE, 0, &ts) == 0 ||
				      errno != ETIMEDOUT);
			CHECK((int)b[i]->parent_tid == tid && (int)b[i]->child_tid == tid);
		}
		pt_press();
		pt_evict_share(mem + 8 * PT_MIB, size - 8 * PT_MIB, 40);
		__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
		futex(&go, FUTEX_WAKE, INT_MAX, NULL);
		for (int i = 0; i < 16; i++) {
			struct timespec ts = { 5, 0 };
			u32 tid;

			/* the kernel clears the word and wakes, without FUTEX_PRIVATE */
			while ((tid = b[i]->child_tid))
				CHECKF(futex(&b[i]->child_tid, FUTEX_WAIT, tid, &ts) == 0 ||
					       errno != ETIMEDOUT,
				       "thread %d of round %d: tid word still %u", i, round, tid);
		}
	}
	usleep(20000); /* until they are off their stacks for sure */
	pt_fill(mem, size, 1);
}

static _Atomic int cleaned;
static void cleanup(void *arg)
{
	pt_verify_at(mem + (uintptr_t)arg * PT_PAGE, PT_PAGE, 1, (uintptr_t)arg);
	cleaned++;
}

static void *cancel_thread(void *arg)
{
	u64 me = (uintptr_t)arg;

	pthread_cleanup_push(cleanup, arg);
	if (me & 1) {
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
		for (;;)
			;
	}
	for (;;) {
		int fd = open("/dev/zero", O_RDONLY);
		char buf[10000];

		if (fd >= 0) {
			pthread_cleanup_push((void (*)(void *))(void *)close,
					     (void *)(uintptr_t)fd);
			if (read(fd, buf, sizeof(buf)) < 0)
				DIE("read");
			usleep(500);
			pthread_cleanup_pop(1);
		}
	}
	pthread_cleanup_pop(1);
	return NULL;
}

static void cancel(void)
{
	pthread_t th[16];
	struct pt_churn c;
	void *ret;

	pt_churn_start(&c, size);
	for (int round = 0; round < 10; round++) {
		for (uintptr_t i = 0; i < 16; i++)
			PCHECK(pthread_create(&th[i], NULL, cancel_thread, (void *)i));
		usleep(30000);
		for (int i = 0; i < 16; i++)
			PCHECK(pthread_cancel(th[i]));
		for (int i = 0; i < 16; i++) {
			PCHECK(pthread_join(th[i], &ret));
			CHECK(ret == PTHREAD_CANCELED);
		}
	}
	CHECKF(cleaned == 160, "%d", cleaned);
	pt_churn_stop(&c);
}

static __thread u64 big_tls[16 * 1024]; /* 128 KiB */
static pthread_key_t key;
static _Atomic int destroyed;
static void destroy(void *p)
{
	u64 *w = p;

	for (int i = 0; i < 10000; i++)
		CHECK(w[i] == w[0] + i);
	free(w);
	destroyed++;
}

static void *tls_thread(void *arg)
{
	u64 me = (uintptr_t)arg, *w = malloc(80000);

	CHECK(w);
	for (u64 i = 0; i < 10000; i++)
		w[i] = me * 7 + i;
	PCHECK(pthread_setspecific(key, w));
	for (u64 i = 0; i < 16 * 1024; i++)
		big_tls[i] = me * 1000000 + i;
	pthread_barrier_wait(&held);
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		futex(&go, FUTEX_WAIT, 0, NULL);
	for (u64 i = 0; i < 16 * 1024; i++)
		CHECK(big_tls[i] == me * 1000000 + i);
	return NULL;
}

static void tls(void)
{
	PCHECK(pthread_key_create(&key, destroy));
	for (int round = 0; round < 3; round++) {
		pthread_t th[8];

		go = 0;
		PCHECK(pthread_barrier_init(&held, NULL, 9));
		for (uintptr_t i = 0; i < 8; i++)
			PCHECK(pthread_create(&th[i], NULL, tls_thread, (void *)(i + 1)));
		pthread_barrier_wait(&held);
		pt_evict(mem, size);
		__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
		futex(&go, FUTEX_WAKE, INT_MAX, NULL);
		for (int i = 0; i < 8; i++)
			PCHECK(pthread_join(th[i], NULL));
	}
	CHECKF(destroyed == 24, "%d", destroyed);
}

/* Locks, conditions and barriers that lie in swapped memory. */
struct shared {
	pthread_mutex_t m;
	pthread_cond_t c;
	char pad[PT_PAGE];
	pthread_rwlock_t rw;
	char pad2[PT_PAGE];
	sem_t sem;
	char pad3[PT_PAGE];
	u64 turn, sum;
};
static struct shared *sh;
static void *sync_thread(void *arg)
{
	u64 me = (uintptr_t)arg;

	for (int i = 0; i < 300; i++) {
		PCHECK(pthread_mutex_lock(&sh->m));
		while (sh->turn % 4 != me)
			PCHECK(pthread_cond_wait(&sh->c, &sh->m));
		sh->turn++;
		PCHECK(pthread_cond_broadcast(&sh->c));
		PCHECK(pthread_mutex_unlock(&sh->m));
		PCHECK(pthread_rwlock_wrlock(&sh->rw));
		sh->sum += i;
		PCHECK(pthread_rwlock_unlock(&sh->rw));
		PCHECK(pthread_rwlock_rdlock(&sh->rw));
		PCHECK(pthread_rwlock_unlock(&sh->rw));
		CHECK(sem_wait(&sh->sem) == 0);
		if (i % 50 == (int)me)
			usleep(1000);
		CHECK(sem_post(&sh->sem) == 0);
	}
	return NULL;
}

static void sync_objects(void)
{
	struct pt_churn c;

	sh = (struct shared *)(mem + 5 * PT_MIB);
	memset(sh, 0, sizeof(*sh));
	PCHECK(pthread_mutex_init(&sh->m, NULL));
	PCHECK(pthread_cond_init(&sh->c, NULL));
	PCHECK(pthread_rwlock_init(&sh->rw, NULL));
	CHECK(sem_init(&sh->sem, 0, 2) == 0);
	pt_churn_start(&c, size);
	for (int round = 0; round < 3; round++) {
		pthread_t th[4];

		pt_press_n(16 * PT_MIB);
		for (uintptr_t i = 0; i < 4; i++)
			PCHECK(pthread_create(&th[i], NULL, sync_thread, (void *)i));
		for (int i = 0; i < 4; i++)
			PCHECK(pthread_join(th[i], NULL));
	}
	pt_churn_stop(&c);
	CHECK(sh->turn == 3 * 1200 && sh->sum == 3 * 4 * (299 * 300 / 2));
	pt_fill(mem, 6 * PT_MIB, 1);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
		{ "join", join },     { "detached", detached }, { "stacks", stacks },
		{ "robust", robust }, { "cleartid", cleartid }, { "cancel", cancel },
		{ "tls", tls },	      { "sync", sync_objects },
	};

	mem = pt_map(size);
	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	for (size_t i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (argc > 1 && !strcmp(argv[1], tests[i].name)) {
			tests[i].run();
			pt_verify(mem, size, 1);
			pt_say("threads %s done", argv[1]);
			return 0;
		}
	}
	return 2;
}
