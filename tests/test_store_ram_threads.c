/* SPDX-License-Identifier: MIT */
/* The compressed RAM store under eight threads, while a compactor moves objects about. */
#include "store_ram_util.h"

/*
 * Eight threads and a housekeeper.  Clusters 0 to 15 are shared: thread t owns the slots that are t
 * modulo 8, and all are uniform at first; 16 to 31 belong to one thread each two, which frees them
 * whole, and fills them with one word now and then.
 */
#define THREADS 8U
#define SHARED 16U
#define CLUSTERS 32U
#define OPS (SANITIZED ? 500 : 1200)

struct shared {
	struct store *st;
	u32 version[CLUSTERS * CLUSTER];
	_Atomic bool stop;
	_Atomic unsigned errors;
};

struct thread {
	pthread_t id;
	struct shared *s;
	unsigned nr;
	u64 rng;
	u8 *pages, *want;
};

static unsigned next(struct thread *t)
{
	t->rng ^= t->rng << 13;
	t->rng ^= t->rng >> 7;
	t->rng ^= t->rng << 17;
	return (unsigned)(t->rng >> 20) & 0xffffff;
}

static unsigned pick(struct thread *t, u64 *slots)
{
	unsigned n = 1 + next(t) % 32, c = next(t) % SHARED;
	unsigned first = next(t) % (CLUSTER / THREADS), i;

	if (next(t) & 1) {
		c = SHARED + t->nr * 2 + next(t) % 2;
		n = 1 + next(t) % CLUSTER;
		for (i = 0; i < n; i++)
			slots[i] = c * CLUSTER + i;
		return n;
	}
	for (i = 0; i < n && first + i < CLUSTER / THREADS; i++)
		slots[i] = c * CLUSTER + (first + i) * THREADS + t->nr;
	return i;
}

static enum kind kind_of(u32 version)
{
	return (enum kind)(version % 7 < NR_KINDS ? version % 7 : MIXED);
}

static void *worker_main(void *arg)
{
	struct thread *t = arg;
	struct store *st = t->s->st;
	u64 slots[CLUSTER];
	void *p[CLUSTER];
	u32 version = t->nr;

	for (unsigned i = 0; i < CLUSTER; i++)
		p[i] = t->pages + i * PAGE_SIZE;
	for (unsigned op = 0; op < OPS; op++) {
		unsigned n = pick(t, slots), what = next(t) % 8;
		int ret, err = 0;

		if (what == 0 && slots[0] >= SHARED * CLUSTER) {
			version += 7 - version % 7;
			for (unsigned i = 0; i < CLUSTER; i++) {
				slots[i] = slots[0] + i;
				fill(p[i], slots[i], version, ZERO);
				t->s->version[slots[i]] = version;
			}
			ret = st->ops->write(st, t->nr, slots, (const void *const *)p, CLUSTER);
			if (ret != (int)CLUSTER)
				t->s->errors++;
			version++;
		} else if (what < 3) {
			for (unsigned i = 0; i < n; i++) {
				fill(p[i], slots[i], version + i, kind_of(version + i));
				t->s->version[slots[i]] = version + i;
			}
			ret = st->ops->write(st, t->nr, slots, (const void *const *)p, n);
			if (ret != (int)n)
				t->s->errors++;
			version += n;
		} else if (what < 6) {
			while (n && !t->s->version[slots[n - 1]])
				n--;
			for (unsigned i = 0; i < n; i++)
				if (!t->s->version[slots[i]])
					n = i;
			ret = st->ops->read(st, t->nr, slots, p, n, &err);
			if (ret != (int)n)
				t->s->errors++;
			for (int i = 0; i < ret; i++) {
				u32 v = t->s->version[slots[i]];

				fill(t->want, slots[i], v, kind_of(v));
				if (memcmp(t->want, p[i], PAGE_SIZE))
					t->s->errors++;
			}
		} else if (slots[0] >= SHARED * CLUSTER && what == 7) {
			st->ops->invalidate_cluster(st, slots[0] / CLUSTER);
			memset(&t->s->version[slots[0]], 0, CLUSTER * sizeof(u32));
		} else {
			for (unsigned i = 0; i < n; i++) {
				st->ops->invalidate(st, slots[i], 1);
				t->s->version[slots[i]] = 0;
			}
		}
	}
	return NULL;
}

static void *housekeeper_main(void *arg)
{
	struct thread *t = arg;
	struct store *st = t->s->st;
	struct store_stat s;

	while (!t->s->stop) {
		for (unsigned i = 0; i < 20; i++)
			st->ops->housekeep(st, t->nr);
		if (next(t) % 8 == 0)
			st->ops->purge(st);
		st->ops->stat(st, &s);
		usleep(200);
	}
	return NULL;
}

static void stress(struct store_ram_options o)
{
	static struct thread t[THREADS + 1];
	static struct shared s;
	u64 pool = arena_bytes(ARENA_POOL);
	struct store_stat stat;

	o.nr_slots = CLUSTERS * CLUSTER;
	o.nr_workers = THREADS + 1;
	o.verify = true;
	memset(&s, 0, sizeof(s));
	s.st = open_ram(o);
	for (u64 c = 0; c < SHARED; c++)
		write_cluster(s.st, 0, c, 7, ZERO);
	for (unsigned i = 0; i < SHARED * CLUSTER; i++)
		s.version[i] = 7;
	for (unsigned i = 0; i <= THREADS; i++) {
		t[i] = (struct thread){ .s = &s, .nr = i, .rng = 88172645463325252ULL + i * 77777 };
		t[i].pages = arena_map(CLUSTER * PAGE_SIZE);
		t[i].want = arena_map(PAGE_SIZE);
		pthread_create(&t[i].id, NULL, i < THREADS ? worker_main : housekeeper_main, &t[i]);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i].id, NULL);
	s.stop = true;
	pthread_join(t[THREADS].id, NULL);
	assert_int_equal(s.errors, 0);
	check(s.st);
	for (u64 slot = 0; slot < CLUSTERS * CLUSTER; slot++) {
		if (s.version[slot])
			expect(s.st, slot, s.version[slot], kind_of(s.version[slot]));
		else
			assert_int_equal(read_one(s.st, slot), -ENODATA);
	}
	assert_true(stat_of(s.st).segments_compacted > 0);
	s.st->ops->invalidate(s.st, 0, CLUSTERS * CLUSTER);
	check(s.st);
	s.st->ops->purge(s.st);
	s.st->ops->stat(s.st, &stat);
	assert_int_equal(stat.memory_bytes, 0);
	assert_int_equal(stat.io_errors, 0);
	assert_true(arena_bytes(ARENA_POOL) == pool);
	store_close(s.st);
	for (unsigned i = 0; i <= THREADS; i++) {
		arena_unmap(t[i].pages, CLUSTER * PAGE_SIZE);
		arena_unmap(t[i].want, PAGE_SIZE);
	}
}

static void test_threads(void **state)
{
	stress((struct store_ram_options){ 0 });
}

static void test_threads_inline(void **state)
{
	stress((struct store_ram_options){ .purge_inline = true });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_threads_inline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
