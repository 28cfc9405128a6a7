/* SPDX-License-Identifier: MIT */
/*
 * mainexit - main() ends with pthread_exit while other threads go on with swapped memory:
 * /proc/PID/maps of a process whose first thread has ended is empty, and only the last thread ends
 * the process.
 *
 *     mainexit last|exit    the last thread just returns: status 0; a thread calls exit(7): status
 * 7
 */
#include "pt.h"

static int mode_exit;
static pthread_t main_thread;
static pthread_barrier_t barrier;
static __thread char tls[100000];

static void *run(void *arg)
{
	size_t size = 12 * PT_MIB;
	uintptr_t me = (uintptr_t)arg;
	char *p = pt_map(size), *q, *m;

	memset(tls, me, sizeof(tls));
	pt_fill(p, size, me);
	pthread_barrier_wait(&barrier);
	if (!me)
		PCHECK(pthread_join(main_thread, NULL)); /* the kernel cleared its tid word */
	for (int v = 1; v < 4; v++) {
		q = pt_map(size); /* mappings made after main has ended */
		m = malloc(1000000);
		CHECK(m);
		memset(m, v, 1000000);
		pt_fill(q, size, me + 10 * v);
		pt_verify(p, size, me + 100 * (v - 1));
		pt_fill(p, size, me + 100 * v);
		pt_verify(q, size, me + 10 * v);
		CHECK(munmap(q, size) == 0);
		for (int i = 0; i < 1000000; i++)
			CHECK(m[i] == v);
		free(m);
	}
	for (size_t i = 0; i < sizeof(tls); i++)
		CHECK(tls[i] == (char)me);
	pthread_barrier_wait(&barrier);
	if (mode_exit && me == 2)
		exit(7);
	if (mode_exit)
		pause();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t th;

	mode_exit = argc > 1 && !strcmp(argv[1], "exit");
	main_thread = pthread_self();
	PCHECK(pthread_barrier_init(&barrier, NULL, 4));
	for (uintptr_t i = 0; i < 4; i++) {
		PCHECK(pthread_create(&th, NULL, run, (void *)i));
		if (i)
			PCHECK(pthread_detach(th));
	}
	pt_say("main ends");
	pthread_exit(NULL);
}
