/* SPDX-License-Identifier: MIT */
/* stress_proc.h - for stress.c: what /proc says of this process. */
#include <dirent.h>

static int entries(const char *dir)
{
	DIR *d = opendir(dir);
	int n = -3; /* ., .. and, of fd, the directory itself */

	CHECK(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static u64 rss(void)
{
	char buf[200];
	int fd = open("/proc/self/statm", O_RDONLY);
	ssize_t n = read(fd, buf, sizeof(buf) - 1);
	unsigned long size, res;

	CHECK(n > 0);
	buf[n] = 0;
	close(fd);
	CHECK(sscanf(buf, "%lu %lu", &size, &res) == 2);
	return res * PT_PAGE;
}

/* All threads and where each of them waits. */
static void list_tasks(void)
{
	struct dirent *e;
	DIR *d = opendir("/proc/self/task");
	char path[300], wchan[100], comm[50];

	while (d && (e = readdir(d))) {
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		wchan[0] = comm[0] = 0;
		snprintf(path, sizeof(path), "/proc/self/task/%s/wchan", e->d_name);
		if ((f = fopen(path, "r"))) {
			if (!fgets(wchan, sizeof(wchan), f))
				wchan[0] = 0;
			fclose(f);
		}
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		if ((f = fopen(path, "r"))) {
			if (!fgets(comm, sizeof(comm), f))
				comm[0] = 0;
			fclose(f);
			comm[strcspn(comm, "\n")] = 0;
		}
		fprintf(stderr, "  task %s %s: %s\n", e->d_name, comm, wchan);
	}
}
