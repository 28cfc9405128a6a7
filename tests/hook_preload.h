/* SPDX-License-Identifier: MIT */
/* hook_preload.h - running a test program again with tests/hook_count.c preloaded. */
#ifndef HOOK_PRELOAD_H
#define HOOK_PRELOAD_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hook_count.h"

static struct hook_count *hc; /* NULL: could not be built or patched */
static char hook_lib[256], hook_counts[256];

/* Returns in the preloaded process, or with hc NULL when there can be none.  `again` is set in the
 * environment of the second run. */
static void hook_preload(char **argv)
{
	const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	struct hook_count **sym = dlsym(RTLD_DEFAULT, HOOK_COUNT_SYMBOL);
	char cmd[600];
	int fd;

	snprintf(hook_lib, sizeof(hook_lib), "%s/hook_count.%d.so", tmp, getpid());
	snprintf(hook_counts, sizeof(hook_counts), "%s/hook_count.%d", tmp, getpid());
	if (sym && relaxed_load(&(*sym)->installs)) {
		hc = *sym;
		return;
	}
	if (getenv("HOOK_PRELOADED")) {
		printf("hooks not installed: %s\n", sym ? (*sym)->why : "library not loaded");
		return;
	}
	snprintf(cmd, sizeof(cmd), "tests/lib_hook.sh '%s'", hook_lib);
	fd = open(hook_counts, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(struct hook_count)) < 0 || system(cmd) != 0) {
		printf("tests/hook_count.c cannot be compiled here\n");
		return;
	}
	setenv("LD_PRELOAD", hook_lib, 1);
	setenv("PSWAP_COUNT_FILE", hook_counts, 1);
	setenv("HOOK_PRELOADED", "1", 1);
	execv("/proc/self/exe", argv);
}

/* The same process id as before, so the names are right again. */
static void hook_preload_cleanup(void)
{
	unlink(hook_lib);
	unlink(hook_counts);
}

#endif
