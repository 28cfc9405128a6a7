/* SPDX-License-Identifier: MIT */
/*
 * bench_child.c - the process that a sample is measured in, and the signals of its parent.
 *
 * Signals that ask to end are blocked everywhere but in ppoll(): set-up and restoration are never
 * cut short, and a wait ends at once.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

volatile sig_atomic_t bench_stop;

static const int end_signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
#define N_END (sizeof(end_signals) / sizeof(end_signals[0]))

static void on_end_signal(int sig)
{
	bench_stop = sig;
}

/* Blocks the ending signals and makes them set bench_stop.  One that is ignored (nohup) stays
 * ignored. */
void bench_signals(void)
{
	struct sigaction sa = { .sa_handler = on_end_signal }, old;
	sigset_t set;

	sigemptyset(&set);
	for (unsigned i = 0; i < N_END; i++) {
		if (!sigaction(end_signals[i], NULL, &old) && old.sa_handler == SIG_IGN)
			continue;
		sigaction(end_signals[i], &sa, NULL);
		sigaddset(&set, end_signals[i]);
	}
	sigprocmask(SIG_BLOCK, &set, NULL);
}

static void child_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	for (unsigned i = 0; i < N_END; i++)
		signal(end_signals[i], SIG_DFL);
	sigprocmask(SIG_SETMASK, &set, NULL);
}

static uint64_t cpu_of(const struct rusage *ru)
{
	return (uint64_t)(ru->ru_utime.tv_sec + ru->ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(ru->ru_utime.tv_usec + ru->ru_stime.tv_usec) * 1000u;
}

/*
 * Runs fn(req, shared) in a process of its own and waits for it.  hup_fd (or -1) is watched too:
 * when its other side is closed the child is killed.  *pid_out (or NULL) is the child's pid while
 * it may be alive, for someone who looks from outside.
 *
 * 0: fn returned; shared->ok and shared->why say how it went, also when the child was killed by
 * someone else.  -1: stopped by a signal or hup_fd; the child is gone.
 */
int bench_child(bench_worker *fn, const struct bench_req *req, struct bench_sample *shared,
		int hup_fd, volatile pid_t *pid_out)
{
	struct pollfd pfd[2];
	pid_t parent = getpid(), pid;
	struct rusage ru;
	uint64_t cpu;
	int status, fd, stopped = 0;
	sigset_t none;

	memset(shared, 0, sizeof(*shared));
	pid = fork();
	if (pid < 0) {
		bench_fail(shared, "fork: %s", strerror(errno));
		return 0;
	}
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		child_signals();
		/* The guardian's socket above all: it must be closed when we are all that is left.
		 */
		close_range(3, ~0U, 0);
		fn(req, shared);
		if (req->kind == BENCH_EXIT) {
			shared->cpu_ns = bench_cpu();
			shared->exit_ns = bench_now();
		}
		_exit(0);
	}
	if (pid_out)
		*pid_out = pid;

	sigemptyset(&none);
	fd = pidfd_open(pid, 0);
	pfd[0] = (struct pollfd){ .fd = fd, .events = POLLIN };
	pfd[1] = (struct pollfd){ .fd = hup_fd, .events = POLLRDHUP };
	while (fd >= 0) {
		if (bench_stop) {
			stopped = 1;
			break;
		}
		if (ppoll(pfd, 2, NULL, &none) < 0) {
			if (errno == EINTR)
				continue;
			break;
		}
		if (pfd[0].revents)
			break;
		if (pfd[1].revents) {
			stopped = 1;
			break;
		}
	}
	if (stopped)
		kill(pid, SIGKILL);
	while (wait4(pid, &status, 0, &ru) < 0 && errno == EINTR)
		;
	/* Its memory was given back before we were told. */
	if (req->kind == BENCH_EXIT && shared->ok) {
		shared->value = (double)(bench_now() - shared->exit_ns);
		cpu = cpu_of(&ru);
		shared->cpu_ns = cpu > shared->cpu_ns ? cpu - shared->cpu_ns : 0;
	}
	if (fd >= 0)
		close(fd);
	if (pid_out)
		*pid_out = 0;
	if (stopped || bench_stop)
		return -1;
	bench_child_ended(shared, status);
	return 0;
}

/* A measured process that did not end as it should has no sample. */
void bench_child_ended(struct bench_sample *s, int status)
{
	if (WIFSIGNALED(status))
		bench_fail(s, "the measured process was killed by signal %d (%s)", WTERMSIG(status),
			   strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		bench_fail(s, "the measured process ended with status %d", WEXITSTATUS(status));
}

/* Zeroed memory that forked processes share with us; NULL when there is none. */
void *bench_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

uint64_t bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* CPU time of all threads of this process. */
uint64_t bench_cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void bench_fail(struct bench_sample *s, const char *fmt, ...)
{
	va_list ap;

	s->ok = false;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
}
