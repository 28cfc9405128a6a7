/* SPDX-License-Identifier: MIT */
/*
 * setid - setgroups, setgid and setuid to nobody while 8 threads are busy in swapped memory.  glibc
 * signals every thread it knows and waits for each; a foreign thread with blocked signals must not
 * be in the way, and afterwards the process is undumpable: its own /proc files belong to root.
 *
 *     setid libc|raw       raw: each thread for itself, by system call
 */
#include "pt.h"

#include <grp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

#define THREADS 8
static _Atomic bool stop;
static _Atomic int switched;
static int raw;

static void check_ids(void)
{
	uid_t r, e, s;
	gid_t gr, ge, gs;

	CHECK(getresuid(&r, &e, &s) == 0 && r == 65534 && e == 65534 && s == 65534);
	CHECK(getresgid(&gr, &ge, &gs) == 0 && gr == 65534 && ge == 65534 && gs == 65534);
	CHECK(setfsuid(-1) == 65534);
}

static void become_raw(void)
{
	gid_t g = 65534;

	CHECK(syscall(SYS_setgroups, 1, &g) == 0);
	CHECK(syscall(SYS_setresgid, 65534, 65534, 65534) == 0);
	CHECK(syscall(SYS_setresuid, 65534, 65534, 65534) == 0);
}

static void *busy(void *arg)
{
	size_t size = 4 * PT_MIB;
	u64 me = (uintptr_t)arg, v = 0;
	char *p = pt_map(size);
	bool done = false;

	do {
		pt_fill(p, size, me * 1000 + v);
		pt_verify(p, size, me * 1000 + v);
		v++;
		if (raw && !done && atomic_load(&switched)) {
			become_raw();
			done = true;
		}
	} while (!atomic_load(&stop));
	check_ids();
	return NULL;
}

int main(int argc, char **argv)
{
	size_t size = 20 * PT_MIB;
	char *p = pt_map(size);
	pthread_t th[THREADS];
	gid_t g = 65534;
	int i;

	raw = argc > 1 && !strcmp(argv[1], "raw");
	if (geteuid()) {
		fprintf(stderr, "setid needs root\n");
		return 77;
	}
	pt_fill(p, size, 77);
	for (i = 0; i < THREADS; i++)
		PCHECK(pthread_create(&th[i], NULL, busy, (void *)(uintptr_t)i));
	pt_evict(p, size);
	if (raw) {
		become_raw();
		atomic_store(&switched, 1);
	} else {
		CHECK(setgroups(1, &g) == 0);
		CHECK(setgid(65534) == 0);
		CHECK(setuid(65534) == 0);
	}
	check_ids();
	CHECK(prctl(PR_GET_DUMPABLE) != 1);
	pt_verify(p, size, 77);
	pt_fill(p, size, 78);
	pt_evict(p, size); /* the engine still works for the new user */
	pt_verify(p, size, 78);
	usleep(100000);
	atomic_store(&stop, true);
	for (i = 0; i < THREADS; i++)
		PCHECK(pthread_join(th[i], NULL));
	/* new threads and memory for the new user */
	atomic_store(&switched, 0);
	for (i = 0; i < THREADS; i++)
		PCHECK(pthread_create(&th[i], NULL, busy, (void *)(uintptr_t)i));
	for (i = 0; i < THREADS; i++)
		PCHECK(pthread_join(th[i], NULL));
	pt_say("now uid %d gid %d", getuid(), getgid());
	return 0;
}
