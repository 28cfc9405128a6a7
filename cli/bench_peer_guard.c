/* SPDX-License-Identifier: MIT */
/*
 * bench_peer_guard.c - the guardian: a process that sets the machine up for the kernel's samples,
 * forks their measured processes, and puts the machine back whatever happens.
 *
 *   pswap bench (main)  --socket-->  guardian  --fork-->  measured process
 *
 * It is in a session of its own, so that a Ctrl-C or a killed process group does not reach it.  It
 * restores when main closes the socket or is gone in any way, SIGKILL included, or when a signal
 * asks it to end; the measured process may die as it likes.  If the guardian itself is killed,
 * main restores, from the same shared struct.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench_peer.h"
#include "cli.h"

#define LOCK_DIR    "/sys/class/zram-control"
#define LOCK_WAIT_S 600

struct peer {
	int sock; /* to the guardian */
	int lock;
	pid_t guardian;
	struct peer_shared {
		struct peer_state state;
		struct bench_req req;
		struct bench_sample sample;
	} * sh;
};

static int wait_readable(int fd, int timeout_ms)
{
	struct timespec ts = { .tv_sec = timeout_ms / 1000,
			       .tv_nsec = timeout_ms % 1000 * 1000000L };
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	sigset_t none;

	sigemptyset(&none);
	return ppoll(&pfd, 1, timeout_ms < 0 ? NULL : &ts, &none);
}

/* One sample, in the guardian.  -1: end. */
static int serve(struct peer_shared *sh, int sock)
{
	int ret = 0;

	sh->state.why[0] = 0;
	if (peer_begin(&sh->state, &sh->req)) {
		memset(&sh->sample, 0, sizeof(sh->sample));
		bench_fail(&sh->sample, "%.*s", BENCH_WHY - 1, sh->state.why);
	} else {
		ret = bench_child(bench_worker_of(&sh->req), &sh->req, &sh->sample, sock,
				  &sh->state.worker);
	}
	peer_end(&sh->state);
	return ret;
}

static _Noreturn void guardian(struct peer_shared *sh, int sock, uint64_t size)
{
	char c;

	setsid();
	bench_signals();
	c = peer_device_setup(&sh->state, size) ? 'n' : 'y';
	while (!bench_stop && send(sock, &c, 1, MSG_NOSIGNAL) == 1) {
		int n;

		while ((n = wait_readable(sock, -1)) < 0 && errno == EINTR && !bench_stop)
			;
		if (n <= 0 || bench_stop || recv(sock, &c, 1, 0) != 1)
			break;
		if (serve(sh, sock))
			break;
		c = 'y';
	}
	peer_restore(&sh->state);
	_exit(0);
}

/*
 * One `pswap bench` with a peer at a time: they would change each other's settings, and disturb
 * each other's figures.  The lock is on a directory of sysfs, so that no file is left behind.
 */
static int take_lock(char why[BENCH_WHY])
{
	int fd = open(LOCK_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct timespec nap = { .tv_nsec = 200 * 1000000 };
	sigset_t none;

	if (fd < 0) {
		snprintf(why, BENCH_WHY, "no zram on this machine: " LOCK_DIR ": %s",
			 strerror(errno));
		return -1;
	}
	sigemptyset(&none);
	for (unsigned i = 0; flock(fd, LOCK_EX | LOCK_NB); i++) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			snprintf(why, BENCH_WHY, "lock on " LOCK_DIR ": %s", strerror(errno));
			break;
		}
		if (i >= LOCK_WAIT_S * 5) {
			snprintf(why, BENCH_WHY, "another pswap bench has been running for %d s",
				 LOCK_WAIT_S);
			break;
		}
		if (!i)
			cli_warn("bench: waiting for another pswap bench to end");
		ppoll(NULL, 0, &nap, &none);
		if (bench_stop)
			break;
	}
	if (!flock(fd, LOCK_EX | LOCK_NB))
		return fd;
	close(fd);
	return -1;
}

/* Waits until the guardian is gone, then puts back what it could not. */
static void reap(struct peer *p)
{
	int status;

	if (p->sock >= 0)
		close(p->sock);
	p->sock = -1;
	if (p->guardian > 0) {
		while (waitpid(p->guardian, &status, 0) < 0 && errno == EINTR)
			;
		p->guardian = 0;
	}
	/* Killed: its measured process dies with it (PR_SET_PDEATHSIG), perhaps not yet. */
	for (int i = 0; p->sh->state.worker && i < 1000; i++) {
		struct timespec nap = { .tv_nsec = 10 * 1000000 };

		if (kill(p->sh->state.worker, 0) && errno == ESRCH)
			break;
		nanosleep(&nap, NULL);
	}
	peer_restore(&p->sh->state);
}

/*
 * Starts the guardian and tries the device; size is the largest region to come.  NULL: there can
 * be no peer and why says it, or bench_stop is set.  Ending signals must be blocked
 * (bench_signals).
 */
struct peer *peer_start(uint64_t size, char why[BENCH_WHY])
{
	struct peer *p;
	int sv[2], n;
	char c;

	if (geteuid()) {
		snprintf(why, BENCH_WHY, "not root: swapon needs CAP_SYS_ADMIN");
		return NULL;
	}
	p = calloc(1, sizeof(*p));
	if (!p || !(p->sh = bench_shared(sizeof(*p->sh)))) {
		snprintf(why, BENCH_WHY, "no memory");
		free(p);
		return NULL;
	}
	p->sock = -1;
	p->sh->state.zram_id = -1;
	p->lock = take_lock(why);
	if (p->lock < 0)
		goto fail;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv)) {
		snprintf(why, BENCH_WHY, "socketpair: %s", strerror(errno));
		goto fail;
	}
	fflush(NULL);
	p->guardian = fork();
	if (p->guardian < 0) {
		snprintf(why, BENCH_WHY, "fork: %s", strerror(errno));
		close(sv[0]);
		close(sv[1]);
		goto fail;
	}
	if (!p->guardian) {
		close(sv[0]);
		guardian(p->sh, sv[1], size);
	}
	close(sv[1]);
	p->sock = sv[0];
	while ((n = wait_readable(p->sock, -1)) < 0 && errno == EINTR && !bench_stop)
		;
	if (n > 0 && recv(p->sock, &c, 1, 0) == 1 && c == 'y')
		return p;
	snprintf(why, BENCH_WHY, "%.*s", BENCH_WHY - 1,
		 *p->sh->state.why ? p->sh->state.why : "the guardian ended");
fail:
	peer_stop(p);
	return NULL;
}

/* 0: s is the sample, or s->why says why not.  1: there is no peer any more, s->why says why.
 * -1: stopped by a signal. */
int peer_sample(struct peer *p, const struct bench_req *req, struct bench_sample *s)
{
	char c = 's';
	int n;

	memset(s, 0, sizeof(*s));
	p->sh->req = *req;
	if (send(p->sock, &c, 1, MSG_NOSIGNAL) == 1) {
		while ((n = wait_readable(p->sock, -1)) < 0 && errno == EINTR && !bench_stop)
			;
		if (bench_stop)
			return -1;
		if (n > 0 && recv(p->sock, &c, 1, 0) == 1) {
			*s = p->sh->sample;
			return 0;
		}
	}
	bench_fail(s, "the guardian of the zram device was killed");
	return bench_stop ? -1 : 1;
}

/* On return the machine is as it was found. */
void peer_stop(struct peer *p)
{
	if (!p)
		return;
	reap(p);
	if (p->lock >= 0)
		close(p->lock);
	munmap(p->sh, sizeof(*p->sh));
	free(p);
}

const struct peer_state *peer_look(const struct peer *p)
{
	return &p->sh->state;
}
