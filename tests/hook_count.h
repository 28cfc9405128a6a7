/* SPDX-License-Identifier: MIT */
/* hook_count.h - what tests/hook_count.c counts; in shared memory, so over forks and, with a file
 * named by PSWAP_COUNT_FILE, over execs. */
#ifndef HOOK_COUNT_H
#define HOOK_COUNT_H

#include "patch.h"

struct hook_count {
	_Atomic u64 nr[512];	  /* calls seen, by number */
	_Atomic u64 by_site[2];	  /* HOOK_SITE_* */
	_Atomic u64 fork_parent, fork_failed, fork_child;
	_Atomic u64 child_late;	  /* fork's children in which libc had run already */
	_Atomic u64 installs, refusals;
	_Atomic u64 install_ns;	  /* of the last */
	_Atomic u32 libc_sites, ldso_sites;
	_Atomic u64 bad_calls;	  /* of a hook with a misaligned stack or the direction flag set */
	char why[120];		  /* of the last refusal */
};

/* Looked up with dlsym() by tests/test_patch.c. */
#define HOOK_COUNT_SYMBOL "pswap_hook_count"

/* The patcher inside the library, for text of the tests' own; also for dlsym(). */
#define HOOK_OPS_SYMBOL "pswap_hook_ops"
struct hook_ops {
	const char *(*scan)(struct patch_object *o);
	const char *(*build)(struct patch_object *o);
	const char *(*apply)(struct patch_object *o, int memfd);
	void (*undo)(struct patch_object *o, unsigned nr_done, int memfd);
};

/* An odd call that strace shows: made just after patching. */
#define HOOK_MARK_WHICH 0x7077
#endif
