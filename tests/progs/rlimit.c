/* SPDX-License-Identifier: MIT */
/*
 * rlimit - small resource limits, set by the program itself or (script) before it starts: pswap's
 * own mappings, descriptors, files and processor time must not use them up.
 *
 *     rlimit as        RLIMIT_AS a little above what is mapped now: most of the rest can be had,
 * then ENOMEM rlimit data      the same with RLIMIT_DATA rlimit nofile    RLIMIT_NOFILE 3: no
 * descriptor to be had, memory goes on rlimit fsize     RLIMIT_FSIZE 0: writing a file means
 * SIGXFSZ (not for pswap's file) rlimit memlock   RLIMIT_MEMLOCK 0 rlimit none      just uses
 * memory
 */
#include "pt.h"

#include <sys/resource.h>

static void set(int what, rlim_t to)
{
	struct rlimit rl;

	CHECK(getrlimit(what, &rl) == 0);
	rl.rlim_cur = to; /* the hard limit stays, so that it can be raised again */
	CHECK(setrlimit(what, &rl) == 0);
}

static size_t vm_kib(const char *key)
{
	static char buf[8192];
	int fd = open("/proc/self/status", O_RDONLY);
	ssize_t n;
	char *s;

	CHECK(fd >= 0);
	n = read(fd, buf, sizeof(buf) - 1);
	CHECK(n > 0);
	buf[n] = 0;
	close(fd);
	s = strstr(buf, key);
	CHECK(s);
	return strtoul(s + strlen(key), NULL, 10);
}

static void go_on(char *mem, size_t size, u64 tag)
{
	pt_verify(mem, size, tag);
	pt_fill(mem, size, tag + 1);
	pt_evict(mem, size);
	pt_verify(mem, size, tag + 1);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "none";
	size_t size = 24 * PT_MIB, n;
	char *mem = pt_map(size), *p[64];
	int i = 0;

	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	if (!strcmp(how, "as") || !strcmp(how, "data")) {
		bool as = !strcmp(how, "as");

		/* pressure needs pt_press_bytes() of room, freed again each time */
		n = pt_press_bytes() + 32 * PT_MIB;
		set(as ? RLIMIT_AS : RLIMIT_DATA, vm_kib(as ? "VmSize:" : "VmData:") * 1024 + n);
		go_on(mem, size, 1);
		/* 3/4 of what should be there is there */
		for (i = 0; i < 64; i++) {
			p[i] = mmap(NULL, 4 * PT_MIB, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (p[i] == MAP_FAILED)
				break;
			pt_fill(p[i], 4 * PT_MIB, 100 + i);
		}
		CHECK(i < 64 && errno == ENOMEM);
		CHECKF(i * 4 * PT_MIB >= n * 3 / 4, "only %d MiB of %zu", i * 4, n / PT_MIB);
		pt_verify(mem, size, 2);
		for (int k = 0; k < i; k++)
			pt_verify(p[k], 4 * PT_MIB, 100 + k);
		while (i)
			CHECK(munmap(p[--i], 4 * PT_MIB) == 0);
		go_on(mem, size, 2);
	} else if (!strcmp(how, "nofile")) {
		set(RLIMIT_NOFILE, 3);
		CHECK(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
		go_on(mem, size, 1);
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			go_on(mem, size, 2);
			_exit(0);
		}
		pt_reap(pid);
		go_on(mem, size, 2);
	} else if (!strcmp(how, "fsize")) {
		set(RLIMIT_FSIZE, 0);
		signal(SIGXFSZ, SIG_DFL);
		go_on(mem, size, 1);
		/* random data: it has to go to the file */
		for (size_t k = 0; k < size / 8; k++)
			((u64 *)mem)[k] = pt_mix(k);
		pt_evict(mem, size);
		for (size_t k = 0; k < size / 8; k++)
			CHECK(((u64 *)mem)[k] == pt_mix(k));
		set(RLIMIT_FSIZE, RLIM_INFINITY); /* standard output can be a file */
	} else if (!strcmp(how, "memlock")) {
		set(RLIMIT_MEMLOCK, 0);
		go_on(mem, size, 1);
		pthread_t th;
		struct pt_churn c = { .bytes = 4 * PT_MIB, .tag = 9, .stop = true };
		for (int k = 0; k < 20; k++) {
			PCHECK(pthread_create(&th, NULL, pt_churn_main, &c));
			PCHECK(pthread_join(th, NULL));
		}
	} else {
		go_on(mem, size, 1);
	}
	pt_say("rlimit %s done", how);
	return 0;
}
