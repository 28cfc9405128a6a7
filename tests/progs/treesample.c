/* SPDX-License-Identifier: MIT */
/*
 * treesample - the anonymous memory of a whole process tree while it runs, as the kernel counts it: in
 * a memory cgroup of its own, where a page that several processes have counts once.
 *
 *     treesample [-i MS] [-b BYTES] FILE COMMAND [ARG...]
 *
 * Every MS milliseconds (20) a look; to FILE go "peak BYTES", "samples N", and "over N", the samples
 * above BYTES. Ends with the status of COMMAND; 77: no such cgroup can be had. When it is told to end
 * (SIGTERM, SIGINT, SIGHUP), so is all of the tree, and what COMMAND leaves running ends with it too.
 */
#include "pt.h"

#include <sys/stat.h>

static char dir[300];
static volatile sig_atomic_t told;

static void on_signal(int sig)
{
	told = sig;
}

static bool put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool make_group(void)
{
	static const char *const roots[] = { "/sys/fs/cgroup/memory", "/sys/fs/cgroup" };
	char path[400];

	for (int i = 0; i < 2; i++) {
		snprintf(dir, sizeof(dir), "%s/pswap-test.%d", roots[i], (int)getpid());
		if (mkdir(dir, 0755))
			continue;
		snprintf(path, sizeof(path), "%s/memory.stat", dir);
		if (access(path, R_OK) == 0)
			return true;
		rmdir(dir);
	}
	return false;
}

/* v1 calls it rss, v2 anon. */
static u64 anon(void)
{
	char path[400], buf[8192];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, buf, sizeof(buf) - 1);
	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = 0;
	for (char *line = buf; line; line = strchr(line, '\n'), line += line != NULL) {
		if (!strncmp(line, "rss ", 4))
			return strtoull(line + 4, NULL, 10);
		if (!strncmp(line, "anon ", 5))
			return strtoull(line + 5, NULL, 10);
	}
	return 0;
}

static void kill_group(void)
{
	char path[400];
	int pid;
	FILE *f;

	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	f = fopen(path, "re");
	while (f && fscanf(f, "%d", &pid) == 1)
		kill(pid, SIGKILL);
	if (f)
		fclose(f);
}

int main(int argc, char **argv)
{
	u64 peak = 0, samples = 0, over = 0, bound = ~0ULL;
	char path[400], text[100];
	int opt, ms = 20, status;
	FILE *f;
	pid_t pid;

	while ((opt = getopt(argc, argv, "+i:b:")) != -1) {
		if (opt == 'i')
			ms = atoi(optarg);
		else if (opt == 'b')
			bound = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	if (argc - optind < 2)
		return 2;
	if (!make_group())
		return 77;
	signal(SIGTERM, on_signal);
	signal(SIGINT, on_signal);
	signal(SIGHUP, on_signal);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
		if (!put(path, "0"))
			_exit(77);
		signal(SIGTERM, SIG_DFL);
		signal(SIGINT, SIG_DFL);
		signal(SIGHUP, SIG_DFL);
		execvp(argv[optind + 1], argv + optind + 1);
		_exit(127);
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		u64 v = anon();

		if (v > peak)
			peak = v;
		over += v > bound;
		samples++;
		if (told)
			kill_group();
		usleep(ms * 1000);
	}
	for (int i = 0; i < 200 && rmdir(dir); i++) {
		usleep(50000);
		if (told || i > 40)
			kill_group();
	}
	f = fopen(argv[optind], "w");
	CHECK(f);
	snprintf(text, sizeof(text), "peak %llu\nsamples %llu\nover %llu\n", (unsigned long long)peak,
		 (unsigned long long)samples, (unsigned long long)over);
	CHECK(fputs(text, f) >= 0 && fclose(f) == 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
