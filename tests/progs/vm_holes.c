// SPDX-License-Identifier: MIT
/*
 * vm_holes - threads that map, unmap a part and map again into the hole, by system calls that no hook
 * sees: what the engine takes over by looking at the maps may be gone, and something else in its
 * place, by the time it does so.  Every byte must stay what it was.
 */
#include "pt.h"

#define THREADS 4
#define PART (768 * PT_PAGE)
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static int rounds = 40;

static char *map(char *at, size_t n)
{
	char *p = pt_mmap_way(PT_ASM, at, n, RW, ANON | (at ? MAP_FIXED_NOREPLACE : 0));

	return p == MAP_FAILED ? NULL : p;
}

static void *worker(void *arg)
{
	u64 me = (uintptr_t)arg;

	for (int v = 0; v < rounds; v++) {
		u64 tag = me * 100000 + (u64)v * 10;
		char *p = map(NULL, 3 * PART), *q, *far;

		CHECK(p);
		pt_fill(p, 3 * PART, tag);
		CHECK(pt_munmap(PT_ASM, p, PART) == 0);
		/* Into the hole, unless another thread was first; and wherever there is room. */
		q = map(p, PART);
		far = map(NULL, PART);
		CHECK(far);
		pt_verify_zero(far, PART / 2);
		pt_fill(far, PART, tag + 2);
		if (q) {
			pt_fill(q, PART, tag + 1);
			CHECK(pt_munmap(PT_ASM, p + PART, PART / 2) == 0);
			pt_verify(q, PART, tag + 1);
		}
		pt_verify_at(p + 2 * PART, PART, tag, 2 * PART / PT_PAGE);
		pt_verify(far, PART, tag + 2);
		if (q)
			pt_verify(q, PART, tag + 1);
		CHECK(pt_munmap(PT_ASM, far, PART) == 0);
		if (q)
			CHECK(pt_munmap(PT_ASM, q, PART) == 0);
		/* Only what is still ours: the holes may be somebody else's. */
		if (!q)
			CHECK(pt_munmap(PT_ASM, p + PART, PART / 2) == 0);
		CHECK(pt_munmap(PT_ASM, p + PART + PART / 2, 2 * PART - PART / 2) == 0);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t th[THREADS];
	struct pt_churn c;

	if (argc > 1)
		rounds = atoi(argv[1]);
	pt_churn_start(&c, 16 * PT_MIB);
	for (uintptr_t i = 0; i < THREADS; i++)
		PCHECK(pthread_create(&th[i], NULL, worker, (void *)i));
	for (int i = 0; i < THREADS; i++)
		PCHECK(pthread_join(th[i], NULL));
	pt_churn_stop(&c);
	pt_say("holes");
	return 0;
}
