/* SPDX-License-Identifier: MIT */
// LIBS: -pthread
/*
 * mallocstress - threads that allocate, grow, shrink and free, and fork children that do the same:
 * a program whose memory calls nearly all come from inside libc.
 *
 *	mallocstress [THREADS [ROUNDS [SEED]]]
 *
 * Every block's bytes follow from its address and size; prints "ok" or what was wrong.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int rounds = 300;
static unsigned seed = 1;

static unsigned rnd(unsigned *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 17;
	*s ^= *s << 5;
	return *s;
}

static int bad(const unsigned char *p, size_t n)
{
	unsigned char want = (unsigned char)(n * 31 + 7);

	for (size_t i = 0; i < n; i += n > 4096 ? 509 : 1)
		if (p[i] != want)
			return 1;
	return 0;
}

static void set(unsigned char *p, size_t n)
{
	memset(p, (unsigned char)(n * 31 + 7), n);
}

static int churn(unsigned s, int n)
{
	unsigned char *p[64] = { 0 };
	size_t len[64] = { 0 };
	int wrong = 0;

	for (int r = 0; r < n; r++) {
		unsigned i = rnd(&s) % 64;
		size_t size = 1 + rnd(&s) % (rnd(&s) % 8 ? 3000 : 400000);

		wrong += bad(p[i], len[i]);
		if (rnd(&s) % 3) {
			free(p[i]);
			p[i] = malloc(size);
		} else {
			size_t keep = size < len[i] ? size : len[i];
			unsigned char *q = realloc(p[i], size);

			if (keep && q[keep - 1] != (unsigned char)(len[i] * 31 + 7))
				wrong++;
			p[i] = q;
		}
		if (!p[i])
			return 1000;
		len[i] = size;
		set(p[i], size);
	}
	for (int i = 0; i < 64; i++) {
		wrong += bad(p[i], len[i]);
		free(p[i]);
	}
	return wrong;
}

static void *work(void *arg)
{
	unsigned s = seed * 7919 + (unsigned)(uintptr_t)arg * 104729 + 1;
	uintptr_t wrong = 0;

	for (int r = 0; r < 4; r++) {
		pid_t pid;
		int st;

		wrong += (uintptr_t)churn(s, rounds);
		pid = fork();
		if (pid == 0)
			_exit(churn(s ^ 0x5555, rounds / 4) ? 1 : 0);
		if (pid < 0 || waitpid(pid, &st, 0) != pid || st != 0)
			wrong++;
		rnd(&s);
	}
	return (void *)wrong;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 4;
	pthread_t t[64];
	uintptr_t wrong = 0;
	void *r;

	rounds = argc > 2 ? atoi(argv[2]) : rounds;
	seed = argc > 3 ? (unsigned)atoi(argv[3]) : seed;
	threads = threads < 1 ? 1 : threads > 64 ? 64 : threads;
	for (int i = 0; i < threads; i++)
		if (pthread_create(&t[i], NULL, work, (void *)(uintptr_t)i))
			return perror("pthread_create"), 1;
	for (int i = 0; i < threads; i++) {
		pthread_join(t[i], &r);
		wrong += (uintptr_t)r;
	}
	if (wrong)
		printf("%lu wrong\n", (unsigned long)wrong);
	else
		puts("ok");
	return wrong != 0;
}
