/* SPDX-License-Identifier: MIT */
/* The file store: the two sides of a fork do not disturb each other, nor do threads. */
#include "store_file_util.h"

/* Parent and child write and free the same slots, and both still read what was there before. */
static void run_fork(const struct mode *m, bool renumber)
{
	struct store *st = open_mode(m, 1);
	int status, fds[4], n, number;
	pid_t pid;

	write_run(st, 0, CLUSTER, 1);
	write_run(st, CLUSTER, 100, 1);
	assert_int_equal(st->ops->before_fork(st), 0);
	n = store_file_fds(st, fds, 4);
	assert_int_equal(n, 1);
	number = fds[0];
	pid = fork();
	if (!pid) {
		arena_after_fork();
		st->ops->after_fork(st);
		if (renumber) {
			/* Handed over under another number; the old one is something else here. */
			int fd = dup(number), other = open("/dev/null", O_RDWR);

			dup2(other, number);
			store_file_set_fds(st, &fd, 1);
		}
		expect_run(st, 0, CLUSTER, 1);
		assert_int_equal(write_run(st, 50, 100, 2), 100);
		assert_int_equal(store_file_fds(st, fds, 4), 2);
		st->ops->invalidate(st, 200, 10);
		for (unsigned i = 0; i < 300; i++) {
			if (i >= 200 && i < 210)
				assert_int_equal(read_one(st, i), -ENODATA);
			else
				expect(st, i, i >= 50 && i < 150 ? 2 : 1);
		}
		check(st);
		/* With its last slot the old file goes. */
		st->ops->invalidate_cluster(st, 1);
		write_run(st, 0, CLUSTER, 3);
		st->ops->housekeep(st, 0);
		assert_int_equal(store_file_fds(st, fds, 4), 1);
		expect_run(st, 0, CLUSTER, 3);
		check(st);
		store_close(st);
		/* The store has closed its file, not what has the file's old number here. */
		_exit((fcntl(number, F_GETFD) >= 0) == renumber ? 0 : 3);
	}
	write_run(st, 100, 100, 7);
	st->ops->invalidate_cluster(st, 1);
	st->ops->purge(st);
	write_run(st, CLUSTER, 5, 7);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	for (unsigned i = 0; i < CLUSTER; i++)
		expect(st, i, i >= 100 && i < 200 ? 7 : 1);
	expect_run(st, CLUSTER, 5, 7);
	assert_int_equal(read_one(st, CLUSTER + 5), -ENODATA);
	assert_int_equal(store_file_fds(st, fds, 4), 2);
	check(st);
	store_close(st);
}

static void test_fork(void **state)
{
	for (unsigned i = 0; i < ARRAY_SIZE(modes); i++) {
		run_fork(&modes[i], false);
		run_fork(&modes[i], true);
	}
}

/* One fork after the other: a file is opened only after slots were written, and closed when its
 * last slot goes. */
static void test_generations(void **state)
{
	struct store *st = open_mode(&modes[1], 1);
	int fds[100];

	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(st->ops->before_fork(st), 0);
	write_one(st, 0, 0);
	assert_int_equal(store_file_fds(st, fds, 100), 1);
	for (unsigned i = 0; i < 30; i++) {
		st->ops->before_fork(st);
		st->ops->before_fork(st);
		assert_int_equal(write_run(st, i * 5, 20, i), 20);
		check(st);
	}
	assert_int_equal(store_file_fds(st, fds, 0), 31);
	st->ops->housekeep(st, 0);
	/* Version 0's single slot was overwritten. */
	assert_int_equal(store_file_fds(st, fds, 100), 30);
	for (unsigned i = 0; i < 30; i++)
		for (unsigned k = 0; k < (i == 29 ? 20 : 5); k++)
			expect(st, i * 5 + k, i);
	st->ops->invalidate(st, 0, 100);
	st->ops->housekeep(st, 0);
	assert_int_equal(store_file_fds(st, fds, 100), 10);
	st->ops->invalidate_cluster(st, 0);
	check(st);
	st->ops->purge(st);
	assert_int_equal(store_file_fds(st, fds, 100), 1);
	write_one(st, 0, 5);
	expect(st, 0, 5);
	store_close(st);
}

/* No more files to be had: writes say that there is no space, reads go on. */
static void test_no_more_files(void **state)
{
	struct store *st = open_mode(&modes[0], 1);
	struct rlimit old, lim;

	write_one(st, 0, 1);
	st->ops->before_fork(st);
	getrlimit(RLIMIT_NOFILE, &old);
	lim = old;
	lim.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &lim);
	assert_int_equal(write_one(st, 1, 1), -ENOSPC);
	expect(st, 0, 1);
	setrlimit(RLIMIT_NOFILE, &old);
	assert_int_equal(write_one(st, 1, 1), 1);
	expect(st, 1, 1);
	check(st);
	store_close(st);
}

/* Four threads whose slots share blocks, and a housekeeper. */
#define THREADS 4U

struct thread {
	pthread_t id;
	struct store *st;
	unsigned nr, errors;
	u32 *version;
	u8 *mem;
};

static _Atomic bool stop;

static void *worker_main(void *arg)
{
	struct thread *t = arg;
	u64 rng = t->nr * 7777 + 1, slots[64];
	void *p[64];
	int err = 0;

	for (unsigned i = 0; i < 64; i++)
		p[i] = t->mem + i * PAGE_SIZE;
	for (unsigned op = 1; op < 150; op++) {
		unsigned n, c, first, what;

		rng = rng * 6364136223846793005ULL + 1442695040888963407ULL;
		c = (unsigned)(rng >> 33) % 4;
		n = 1 + (unsigned)(rng >> 40) % 30;
		first = (unsigned)(rng >> 48) % 60;
		what = (unsigned)(rng >> 60);
		/* Every fourth slot of two clusters: all blocks are shared. */
		for (unsigned i = 0; i < n; i++) {
			slots[i] = (c % 2) * CLUSTER + (first + i) * THREADS + t->nr;
			if (c >= 2) /* runs in an own cluster */
				slots[i] = (2 + t->nr) * CLUSTER + first + i;
		}
		if (what < 7) {
			for (unsigned i = 0; i < n; i++) {
				fill(p[i], slots[i], op);
				t->version[slots[i]] = op;
			}
			t->errors += t->st->ops->write(t->st, t->nr, slots,
						       (const void *const *)p, n) != (int)n;
		} else if (what < 14) {
			for (unsigned i = 0; i < n; i++)
				if (!t->version[slots[i]])
					n = i;
			t->errors += t->st->ops->read(t->st, t->nr, slots, p, n, &err) != (int)n;
			for (unsigned i = 0; i < n; i++) {
				u8 *expected = t->mem + 64 * PAGE_SIZE;

				fill(expected, slots[i], t->version[slots[i]]);
				t->errors += memcmp(expected, p[i], PAGE_SIZE) != 0;
			}
		} else if (c >= 2 && what == 15) {
			t->st->ops->invalidate_cluster(t->st, 2 + t->nr);
			memset(t->version + (2 + t->nr) * CLUSTER, 0, CLUSTER * sizeof(u32));
		} else {
			for (unsigned i = 0; i < n; i++) {
				t->st->ops->invalidate(t->st, slots[i], 1);
				t->version[slots[i]] = 0;
			}
		}
	}
	return NULL;
}

static void *housekeeper_main(void *arg)
{
	struct thread *t = arg;
	struct store_stat s;

	while (!stop) {
		t->st->ops->housekeep(t->st, t->nr);
		t->st->ops->purge(t->st);
		t->st->ops->stat(t->st, &s);
		usleep(1000);
	}
	return NULL;
}

static void test_threads(void **state)
{
	static u32 version[SLOTS];

	for (unsigned m = 0; m < ARRAY_SIZE(modes); m++) {
		struct store *st = open_mode(&modes[m], THREADS + 1);
		struct thread t[THREADS + 1];

		memset(version, 0, sizeof(version));
		stop = false;
		for (unsigned i = 0; i <= THREADS; i++) {
			t[i] = (struct thread){ .st = st, .nr = i, .version = version };
			t[i].mem = arena_map(65 * PAGE_SIZE);
			pthread_create(&t[i].id, NULL, i < THREADS ? worker_main : housekeeper_main,
				       &t[i]);
		}
		for (unsigned i = 0; i < THREADS; i++) {
			pthread_join(t[i].id, NULL);
			assert_int_equal(t[i].errors, 0);
		}
		stop = true;
		pthread_join(t[THREADS].id, NULL);
		for (unsigned i = 0; i <= THREADS; i++)
			arena_unmap(t[i].mem, 65 * PAGE_SIZE);
		check(st);
		for (u64 slot = 0; slot < SLOTS; slot++) {
			if (version[slot])
				expect(st, slot, version[slot]);
			else
				assert_int_equal(read_one(st, slot), -ENODATA);
		}
		assert_int_equal(stat_of(st).io_errors, 0);
		store_close(st);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_fork, need_dir),
		cmocka_unit_test_setup(test_generations, need_dir),
		cmocka_unit_test_setup(test_no_more_files, need_dir),
		cmocka_unit_test_setup(test_threads, need_dir),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
