/* SPDX-License-Identifier: MIT */
/*
 * runto - runs a command with a time limit; tells its ru_maxrss; shows where a hung tree waits.
 *
 *     runto [-t SECONDS] [-r FILE] [-g SECONDS] [-a] COMMAND [ARG...]
 *
 * -r FILE     the kernel's own maximum RSS of the largest process of the tree, in bytes
 * -g SECONDS  when the command has ended, waits so long for what it left running (daemons,
 * engines); processes that are left after that are a failure, and killed -a          an orphan that
 * fails (other than by SIGKILL) is a failure
 *
 * Ends with the command's status (128+N for a signal), 124 when the time was over: then every task
 * of the tree is listed with its wchan and system call, and the tree is killed, by pid.
 */
#include "pt.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define MAX_PIDS 4096
static pid_t pids[MAX_PIDS];
static int nr_pids;

static ssize_t slurp(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	buf[0] = 0;
	if (fd < 0)
		return -1;
	n = read(fd, buf, size - 1);
	close(fd);
	if (n >= 0)
		buf[n] = 0;
	while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == ' '))
		buf[--n] = 0;
	return n;
}

static void add_children(pid_t pid)
{
	char path[300], buf[8192];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	if (!d)
		return;
	while ((e = readdir(d))) {
		char *s = buf, *end;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/children", pid, e->d_name);
		if (slurp(path, buf, sizeof(buf)) <= 0)
			continue;
		for (;;) {
			long c = strtol(s, &end, 10);

			if (end == s || nr_pids == MAX_PIDS)
				break;
			s = end;
			pids[nr_pids++] = c;
			add_children(c);
		}
	}
	closedir(d);
}

static void dump(pid_t pid)
{
	char path[300], comm[64], wchan[128], call[256], state[8192], cmd[300], *s;
	struct dirent *e;
	int listed = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	ssize_t n = slurp(path, cmd, sizeof(cmd));
	for (ssize_t i = 0; i + 1 < n; i++)
		if (!cmd[i])
			cmd[i] = ' ';
	fprintf(stderr, "  process %d: %.160s\n", pid, cmd);
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	if (!d)
		return;
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		if (++listed > 24)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/comm", pid, e->d_name);
		slurp(path, comm, sizeof(comm));
		snprintf(path, sizeof(path), "/proc/%d/task/%s/wchan", pid, e->d_name);
		slurp(path, wchan, sizeof(wchan));
		snprintf(path, sizeof(path), "/proc/%d/task/%s/syscall", pid, e->d_name);
		slurp(path, call, sizeof(call));
		snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", pid, e->d_name);
		slurp(path, state, sizeof(state));
		s = strrchr(state, ')');
		fprintf(stderr, "    task %s %-15s %c %-24s %.90s\n", e->d_name, comm,
			s && s[1] ? s[2] : '?', wchan, call);
	}
	closedir(d);
	if (listed > 24)
		fprintf(stderr, "    ... %d tasks\n", listed);
}

int main(int argc, char **argv)
{
	const char *rss_file = NULL;
	double seconds = 60, grace = 0;
	bool all = false;
	long maxrss = 0;
	int opt, status = -1, rc = 0;
	u64 deadline;
	pid_t pid;
	sigset_t set;

	while ((opt = getopt(argc, argv, "+t:r:g:a")) != -1) {
		switch (opt) {
		case 't':
			seconds = atof(optarg);
			break;
		case 'r':
			rss_file = optarg;
			break;
		case 'g':
			grace = atof(optarg);
			break;
		case 'a':
			all = true;
			break;
		default:
			return 2;
		}
	}
	if (optind >= argc)
		return 2;
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	deadline = pt_now_ns() + (u64)(seconds * 1e9);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		execvp(argv[optind], argv + optind);
		fprintf(stderr, "runto: %s: %s\n", argv[optind], strerror(errno));
		_exit(127);
	}
	for (;;) {
		struct rusage ru;
		struct timespec ts;
		siginfo_t si;
		u64 now;
		pid_t p;
		int st;

		while ((p = wait4(-1, &st, WNOHANG, &ru)) > 0) {
			if (ru.ru_maxrss > maxrss)
				maxrss = ru.ru_maxrss;
			if (p == pid) {
				status = st;
				deadline = pt_now_ns() + (u64)(grace * 1e9);
			} else if (st && st != SIGKILL) {
				fprintf(stderr, "runto: orphan %d ended with status 0x%x\n", p, st);
				if (all)
					rc = 1;
			}
		}
		if (p < 0 || (status != -1 && grace == 0))
			break;
		now = pt_now_ns();
		if (now >= deadline) {
			if (status == -1)
				fprintf(stderr, "runto: no end after %g s; the tree:\n", seconds);
			else
				fprintf(stderr, "runto: left running %g s after the end:\n", grace);
			add_children(getpid());
			for (int i = 0; i < nr_pids; i++)
				dump(pids[i]);
			rc = 124;
			break;
		}
		ts.tv_sec = (deadline - now) / 1000000000;
		ts.tv_nsec = (deadline - now) % 1000000000;
		si.si_signo = 0;
		if (sigtimedwait(&set, &si, &ts) > 0 && si.si_signo != SIGCHLD) {
			rc = 128 + si.si_signo;
			break;
		}
	}
	if (rc >= 124) { /* twice: something may have been forked meanwhile */
		for (int round = 0; round < 2; round++) {
			nr_pids = 0;
			add_children(getpid());
			for (int i = 0; i < nr_pids; i++)
				kill(pids[i], SIGKILL);
			usleep(50000);
			while (waitpid(-1, NULL, WNOHANG) > 0)
				;
		}
		return rc;
	}
	if (rss_file) {
		FILE *f = fopen(rss_file, "w");

		CHECK(f);
		fprintf(f, "%ld\n", maxrss * 1024);
		fclose(f);
	}
	if (rc)
		return rc;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
