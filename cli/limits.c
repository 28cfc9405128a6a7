/* SPDX-License-Identifier: MIT */
/*
 * limits.c - how much memory this process may use, and where a swap file may be.
 *
 * cgroups: /proc/self/cgroup names the group, /proc/self/mountinfo where its hierarchy is mounted
 * and which part of it (in a container often a subtree, whose root then stands for the part of the
 * path above it).  A limit holds for everything below, so the smallest up the tree counts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cli.h"

#define TMPFS_MAGIC	0x01021994
#define RAMFS_MAGIC	0x858458f6
#define HUGETLBFS_MAGIC 0x958458f6

/* The number in a file, UINT64_MAX for "max" or anything unreadable. */
static u64 read_limit(const char *dir, const char *file)
{
	char path[4400], text[64], *end;
	FILE *f;
	u64 v;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	f = fopen(path, "re");
	if (!f)
		return UINT64_MAX;
	if (!fgets(text, sizeof(text), f))
		text[0] = 0;
	fclose(f);
	v = strtoull(text, &end, 10);
	return end == text ? UINT64_MAX : v;
}

static void take(struct memory_limit *l, const char *dir, const char *file)
{
	u64 v = read_limit(dir, file);

	/* v1 says "none" with the largest multiple of a page. */
	if (v >= l->bytes || !v)
		return;
	l->bytes = v;
	snprintf(l->from, sizeof(l->from), "%.200s/%s", dir, file);
}

/* The limits of `group` and all above it, in a hierarchy of which `root` is mounted at `mount`. */
static void walk_up(struct memory_limit *l, const char *mount, const char *root, const char *group,
		    bool v2)
{
	size_t n = strcmp(root, "/") ? strlen(root) : 0;
	char dir[4096];

	/* A group outside of what is mounted: the mount's own limits are the best we can see. */
	if (strncmp(group, root, n) || (group[n] && group[n] != '/') || strstr(group, "/.."))
		group = "";
	else
		group += n;
	if (snprintf(dir, sizeof(dir), "%s%s", mount, group) >= (int)sizeof(dir))
		return;
	for (;;) {
		size_t len = strlen(dir);

		while (len > strlen(mount) && dir[len - 1] == '/')
			dir[--len] = 0;
		if (v2) {
			take(l, dir, "memory.max");
			take(l, dir, "memory.high");
		} else {
			take(l, dir, "memory.limit_in_bytes");
		}
		if (len <= strlen(mount))
			return;
		*strrchr(dir, '/') = 0;
	}
}

/* The path of this process in the v2 hierarchy, or in the v1 one that has the memory controller. */
static bool own_group(bool v2, char *out, size_t size)
{
	char line[4200];
	FILE *f = fopen("/proc/self/cgroup", "re");
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		char *ctl = strchr(line, ':'), *path = ctl ? strchr(ctl + 1, ':') : NULL;
		char *save, *c;

		if (!path)
			continue;
		*path++ = 0;
		path[strcspn(path, "\n")] = 0;
		ctl++;
		if (v2)
			found = !*ctl;
		for (c = strtok_r(ctl, ",", &save); c && !v2; c = strtok_r(NULL, ",", &save))
			found |= !strcmp(c, "memory");
		if (found)
			snprintf(out, size, "%s", path);
	}
	if (f)
		fclose(f);
	return found;
}

static void cgroup_limits(struct memory_limit *l)
{
	char *line = NULL, v1[4096], v2[4096];
	bool have_v1 = own_group(false, v1, sizeof(v1)), have_v2 = own_group(true, v2, sizeof(v2));
	size_t cap = 0;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	while (f && getline(&line, &cap, f) > 0) {
		char root[1024], mount[1024], type[32], super[1024];
		char *dash = strstr(line, " - ");

		if (!dash || sscanf(line, "%*d %*d %*s %1023s %1023s", root, mount) != 2 ||
		    sscanf(dash, " - %31s %*s %1023s", type, super) != 2)
			continue;
		if (have_v2 && !strcmp(type, "cgroup2"))
			walk_up(l, mount, root, v2, true);
		if (have_v1 && !strcmp(type, "cgroup")) {
			char *save, *o = strtok_r(super, ",", &save);

			for (; o; o = strtok_r(NULL, ",", &save)) {
				if (!strcmp(o, "memory"))
					walk_up(l, mount, root, v1, false);
			}
		}
	}
	free(line);
	if (f)
		fclose(f);
}

void limit_of_machine(struct memory_limit *l)
{
	l->bytes = sample_field("/proc/meminfo", "MemTotal", 0);
	snprintf(l->from, sizeof(l->from), "MemTotal of /proc/meminfo");
	if (!l->bytes)
		l->bytes = (u64)sysconf(_SC_PHYS_PAGES) * (u64)sysconf(_SC_PAGESIZE);
	cgroup_limits(l);
}

bool limit_is_tmpfs(const char *path)
{
	struct statfs st;

	if (statfs(path, &st))
		return false;
	return st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC ||
	       (unsigned long)st.f_type == HUGETLBFS_MAGIC;
}

static bool usable_dir(const char *dir)
{
	struct stat st;

	/* A store specification has no way to write a comma. */
	return dir && *dir == '/' && !strchr(dir, ',') && !stat(dir, &st) && S_ISDIR(st.st_mode) &&
	       !access(dir, W_OK | X_OK) && !limit_is_tmpfs(dir);
}

const char *limit_file_dir(void)
{
	const char *dir = getenv("TMPDIR");

	if (usable_dir(dir))
		return dir;
	return usable_dir("/var/tmp") ? "/var/tmp" : NULL;
}
