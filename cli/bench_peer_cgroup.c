/* SPDX-License-Identifier: MIT */
/*
 * bench_peer_cgroup.c - a memory group for one sample of the kernel's side: version 1 inside our
 * own group, version 2 at the root of its hierarchy (a version 2 group that has processes cannot
 * limit the memory of its children).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench_peer.h"

/* Is word among the comma or blank separated words of list? */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += n)
		if ((p == list || strchr(", \n", p[-1])) && (!p[n] || strchr(", \n", p[n])))
			return true;
	return false;
}

/* Our path in the hierarchy that has the controller (version 1), below the mount's root. */
static bool own_group(const char *root, char *out, size_t size)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[512], *path = NULL;

	if (!f)
		return false;
	while (!path && fgets(line, sizeof(line), f)) {
		char *names = strchr(line, ':'), *end;

		if (!names || !(end = strchr(names + 1, ':')))
			continue;
		*end = 0;
		if (has_word(names + 1, "memory"))
			path = end + 1;
	}
	fclose(f);
	if (!path)
		return false;
	path[strcspn(path, "\n")] = 0;
	/* In a container the mount shows a part of the tree; /proc may name it from the top. */
	if (strcmp(root, "/") && !strncmp(path, root, strlen(root)))
		path += strlen(root);
	if (!strcmp(path, "/"))
		path = "";
	snprintf(out, size, "%s", path);
	return true;
}

/* Where the memory controller is mounted. 1, 2: its version; 0: nowhere. */
static int find_mount(char *mnt, char *root, size_t size)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[1024];
	int version = 0;

	if (!f)
		return 0;
	while (version != 1 && fgets(line, sizeof(line), f)) {
		char r[256], m[256], type[32], super[256], path[300], text[256];
		char *tail = strstr(line, " - ");

		if (!tail || sscanf(line, "%*d %*d %*s %255s %255s", r, m) != 2 ||
		    sscanf(tail, " - %31s %*s %255s", type, super) != 2)
			continue;
		if (!strcmp(type, "cgroup") && has_word(super, "memory")) {
			version = 1;
		} else if (!strcmp(type, "cgroup2")) {
			snprintf(path, sizeof(path), "%s/cgroup.controllers", m);
			if (peer_read(path, text, sizeof(text)) || !has_word(text, "memory"))
				continue;
			version = 2;
		} else {
			continue;
		}
		snprintf(mnt, size, "%s", m);
		snprintf(root, size, "%s", r);
	}
	fclose(f);
	return version;
}

static int fail(struct peer_state *ps, const char *path, int err)
{
	snprintf(ps->why, sizeof(ps->why), "memory cgroup: %.120s: %s", path, strerror(err));
	return -1;
}

/* Makes a group with the limit (bytes; UINT64_MAX: none).  0, or -1 with ps->why. */
int peer_cgroup_make(struct peer_state *ps, uint64_t limit)
{
	char mnt[256], root[256], own[256] = "", path[600], text[32];
	int version = find_mount(mnt, root, sizeof(mnt)), err;

	if (!version) {
		snprintf(ps->why, sizeof(ps->why), "no memory cgroup on this machine");
		return -1;
	}
	if (version == 1 && !own_group(root, own, sizeof(own)))
		return fail(ps, "/proc/self/cgroup", ENOENT);
	ps->cgroup_v2 = version == 2;
	if (version == 2) {
		snprintf(path, sizeof(path), "%s/cgroup.subtree_control", mnt);
		err = peer_read(path, own, sizeof(own));
		if (err)
			return fail(ps, path, err);
		if (!has_word(own, "memory")) {
			snprintf(ps->subtree, sizeof(ps->subtree), "%.255s", path);
			err = peer_write(path, "+memory");
			if (err)
				return fail(ps, path, err);
		}
		own[0] = 0;
	}
	snprintf(path, sizeof(path), "%s%s/pswap-bench-%d", mnt, own, getpid());
	if (strlen(path) >= sizeof(ps->cgroup))
		return fail(ps, path, ENAMETOOLONG);
	strcpy(ps->cgroup, path);
	if (mkdir(path, 0755)) {
		err = errno;
		ps->cgroup[0] = 0;
		return fail(ps, path, err);
	}
	if (limit == UINT64_MAX)
		return 0;
	snprintf(path, sizeof(path), "%s/%s", ps->cgroup,
		 version == 2 ? "memory.max" : "memory.limit_in_bytes");
	snprintf(text, sizeof(text), "%lu", (unsigned long)limit);
	err = peer_write(path, text);
	return err ? fail(ps, path, err) : 0;
}

void peer_cgroup_remove(struct peer_state *ps)
{
	struct timespec nap = { .tv_nsec = 10 * 1000000 };

	/* EBUSY until the kernel has let go of the process that was in it. */
	for (int i = 0; *ps->cgroup && i < 300; i++) {
		if (!rmdir(ps->cgroup) || errno != EBUSY)
			ps->cgroup[0] = 0;
		else
			nanosleep(&nap, NULL);
	}
	if (*ps->subtree) {
		peer_write(ps->subtree, "-memory");
		ps->subtree[0] = 0;
	}
}
