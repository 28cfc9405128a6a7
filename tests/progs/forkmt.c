/* SPDX-License-Identifier: MIT */
/*
 * forkmt - fork in a process with 8 malloc arenas and 40 open FILEs, all of it swapped: glibc's
 * fork code in the child walks the arenas and locks of every FILE before any atfork handler (FACTS
 * trap 8).
 *
 *     forkmt arenas DIR     threads idle; the child walks, changes, prints; so does the parent
 * meanwhile forkmt busy           8 threads go on allocating while main and two of them fork forkmt
 * churn          fork while another thread causes constant page-out
 */
#include "pt.h"

#include <malloc.h>

#define THREADS 8
#define FILES	40
#define CHUNKS	3500
struct chunk {
	u64 seed;
	u32 words;
	u64 data[];
};
static struct chunk *chunks[THREADS][CHUNKS];
static pthread_barrier_t barrier;
static _Atomic bool stop;

static struct chunk *make(u64 seed)
{
	u32 words = 50 + seed % 150; /* 400 to 1600 bytes */
	struct chunk *c = malloc(sizeof(*c) + 8 * words);

	CHECK(c);
	c->seed = seed;
	c->words = words;
	for (u32 i = 0; i < words; i++)
		c->data[i] = seed * 31 + i;
	return c;
}

static void verify(const struct chunk *c, u64 seed)
{
	CHECKF(c->seed == seed, "seed %llx, expected %llx", (unsigned long long)c->seed,
	       (unsigned long long)seed);
	CHECK(c->words == 50 + seed % 150);
	for (u32 i = 0; i < c->words; i++)
		CHECKF(c->data[i] == seed * 31 + i, "word %u: %llx", i,
		       (unsigned long long)c->data[i]);
}

static u64 seed_of(u64 thread, u64 i, u64 version)
{
	return pt_mix(thread << 32 | i << 8 | version);
}

static void *arena_thread(void *arg)
{
	u64 me = (uintptr_t)arg;

	pthread_barrier_wait(&barrier); /* all at once, so that each gets its own arena */
	for (int i = 0; i < CHUNKS; i++)
		chunks[me][i] = make(seed_of(me, i, 0));
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier); /* idle until the end */
	return NULL;
}

/* Walks, checks, replaces every chunk. */
static void walk(u64 from, u64 to)
{
	for (u64 t = 0; t < THREADS; t++) {
		for (u64 i = 0; i < CHUNKS; i++) {
			verify(chunks[t][i], seed_of(t, i, from));
			if (i % 3 == 0) {
				free(chunks[t][i]);
				chunks[t][i] = make(seed_of(t, i, to));
			} else {
				struct chunk *c = chunks[t][i];
				u64 s = seed_of(t, i, to);

				c = realloc(c, sizeof(*c) + 8 * (50 + s % 150));
				CHECK(c);
				c->seed = s;
				c->words = 50 + s % 150;
				for (u32 k = 0; k < c->words; k++)
					c->data[k] = s * 31 + k;
				chunks[t][i] = c;
			}
		}
	}
	for (u64 t = 0; t < THREADS; t++)
		for (u64 i = 0; i < CHUNKS; i++)
			verify(chunks[t][i], seed_of(t, i, to));
}

static void arenas(const char *dir)
{
	FILE *f[FILES];
	char path[400], buf[200], want[200];
	pthread_t th[THREADS];
	size_t n = 16 * PT_MIB;
	char *mem = pt_map(n);
	pid_t pid;
	int i;

	PCHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1));
	for (i = 0; i < THREADS; i++)
		PCHECK(pthread_create(&th[i], NULL, arena_thread, (void *)(uintptr_t)i));
	for (i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "%s/f%d", dir, i);
		f[i] = fopen(path, "a+");
		CHECK(f[i]);
		CHECK(fprintf(f[i], "U %d\n", i) > 0); /* stays in the buffer, on the heap */
	}
	pt_fill(mem, n, 1);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	pt_evict(mem, n);
	pt_press();
	fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		char *p = malloc(5000);

		CHECK(p);
		walk(0, 1);
		pt_verify(mem, n, 1);
		for (i = 0; i < FILES; i++) {
			CHECK(fprintf(f[i], "C %d\n", i) > 0);
			CHECK(fclose(f[i]) == 0);
		}
		malloc_trim(0);
		pt_fill(mem, n, 2);
		pt_press();
		pt_verify(mem, n, 2);
		free(p);
		exit(0); /* atexit, stdio clean-up */
	}
	walk(0, 2); /* at the same time */
	pt_verify(mem, n, 1);
	pt_reap(pid);
	for (i = 0; i < FILES; i++) {
		CHECK(fprintf(f[i], "P %d\n", i) > 0);
		CHECK(fclose(f[i]) == 0);
	}
	for (i = 0; i < FILES; i++) {
		size_t k;

		snprintf(path, sizeof(path), "%s/f%d", dir, i);
		f[0] = fopen(path, "r");
		CHECK(f[0]);
		k = fread(buf, 1, sizeof(buf) - 1, f[0]);
		buf[k] = 0;
		fclose(f[0]);
		unlink(path);
		snprintf(want, sizeof(want), "U %d\nC %d\nU %d\nP %d\n", i, i, i, i);
		CHECKF(!strcmp(buf, want), "file %d: '%s'", i, buf);
	}
	pthread_barrier_wait(&barrier);
	for (i = 0; i < THREADS; i++)
		PCHECK(pthread_join(th[i], NULL));
	for (int t = 0; t < THREADS; t++)
		for (i = 0; i < CHUNKS; i++)
			free(chunks[t][i]);
}

static void *busy_thread(void *arg)
{
	u64 me = (uintptr_t)arg, n = 0;
	FILE *null = fopen("/dev/null", "w");

	CHECK(null);
	for (u64 i = 0; i < CHUNKS; i++)
		chunks[me][i] = make(seed_of(me, i, 0));
	pthread_barrier_wait(&barrier);
	for (u64 v = 0; !atomic_load(&stop); v = !v) {
		for (u64 i = 0; i < CHUNKS; i++) {
			verify(chunks[me][i], seed_of(me, i, v));
			free(chunks[me][i]);
			chunks[me][i] = make(seed_of(me, i, !v));
			if (i % 64 == 0)
				fprintf(null, "%llu %p\n", (unsigned long long)i,
					(void *)chunks[me][i]);
		}
		if (me < 2 && n++ < 3) { /* two of the threads fork as well */
			pid_t pid = fork();

			CHECK(pid >= 0);
			if (!pid) {
				for (u64 i = 0; i < CHUNKS; i++)
					verify(chunks[me][i], seed_of(me, i, !v));
				fclose(null);
				_exit(0);
			}
			pt_reap(pid);
		}
	}
	fclose(null);
	return NULL;
}

static void busy(void)
{
	pthread_t th[THREADS];
	size_t n = 16 * PT_MIB;
	char *mem = pt_map(n);

	PCHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1));
	pt_fill(mem, n, 1);
	for (int i = 0; i < THREADS; i++)
		PCHECK(pthread_create(&th[i], NULL, busy_thread, (void *)(uintptr_t)i));
	pthread_barrier_wait(&barrier);
	pt_evict(mem, n);
	for (int i = 0; i < 12; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid) {
			struct chunk *own[2000];

			for (u64 k = 0; k < 2000; k++)
				own[k] = make(k);
			pt_verify(mem, n, 1);
			pt_fill(mem, n, 2);
			for (u64 k = 0; k < 2000; k++) {
				verify(own[k], k);
				free(own[k]);
			}
			pt_verify(mem, n, 2);
			exit(0);
		}
		pt_reap(pid);
		pt_verify(mem, n, 1);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		PCHECK(pthread_join(th[i], NULL));
}

static void churn(void)
{
	size_t n = 16 * PT_MIB;
	char *mem = pt_map(n);
	struct pt_churn c;

	pt_fill(mem, n, 1);
	pt_churn_start(&c, 24 * PT_MIB);
	for (int i = 0; i < 15; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (!pid) {
			pt_verify(mem, n, i + 1);
			pt_fill(mem, n, 100);
			pt_verify(mem, n, 100);
			_exit(0);
		}
		pt_fill(mem, n, i + 2);
		pt_verify(mem, n, i + 2);
		pt_reap(pid);
	}
	pt_churn_stop(&c);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "busy";

	if (!strcmp(how, "arenas") && argc > 2)
		arenas(argv[2]);
	else if (!strcmp(how, "busy"))
		busy();
	else if (!strcmp(how, "churn"))
		churn();
	else
		return 2;
	pt_say("forkmt %s done", how);
	return 0;
}
