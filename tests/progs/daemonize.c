/* SPDX-License-Identifier: MIT */
/*
 * daemonize - a program with swapped memory becomes a daemon (double fork, setsid, all descriptors
 * closed) and goes on using memory after `pswap run` has returned.
 *
 *     daemonize double|libc RESULTFILE     "ok" is written there at the end
 */
#include "pt.h"

#include <sys/stat.h>

static char *mem;
static const size_t size = 24 * PT_MIB;

int main(int argc, char **argv)
{
	char tmp[400];
	pid_t pid, first = getpid();
	int fd;

	if (argc < 3)
		return 2;
	mem = pt_map(size);
	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	if (!strcmp(argv[1], "libc")) {
		CHECK(daemon(1, 0) == 0);
	} else {
		pid = fork();
		CHECK(pid >= 0);
		if (pid) {
			pt_reap(pid);
			return 0;
		}
		CHECK(setsid() > 0);
		pid = fork();
		CHECK(pid >= 0);
		if (pid)
			_exit(0);
		CHECK(chdir("/") == 0);
		umask(0);
	}
	closefrom(0);
	snprintf(tmp, sizeof(tmp), "%s.err", argv[2]); /* what fails from here on is said there */
	CHECK(open("/dev/null", O_RDWR) == 0 &&
	      open(tmp, O_WRONLY | O_CREAT | O_TRUNC, 0600) == 1 && dup(1) == 2);
	while (kill(first, 0) == 0)
		usleep(1000);
	usleep(300000); /* `pswap run` has returned */
	pt_verify(mem, size, 1);
	for (u64 v = 2; v < 5; v++) {
		pt_fill(mem, size, v);
		pt_evict(mem, size);
		pt_verify(mem, size, v);
	}
	snprintf(tmp, sizeof(tmp), "%s.tmp", argv[2]);
	fd = open(tmp, O_WRONLY | O_CREAT, 0600);
	CHECK(fd >= 0 && write(fd, "ok\n", 3) == 3 && close(fd) == 0);
	CHECK(rename(tmp, argv[2]) == 0);
	return 0;
}
