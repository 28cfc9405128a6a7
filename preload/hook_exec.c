/* SPDX-License-Identifier: MIT */
/*
 * hook_exec.c - a program that is started with an environment of its own (env -i, daemons, sudo-like
 * tools) stays in the tree and under its limit: PSWAP and our part of LD_PRELOAD are put back.
 * hook.h says by which rules this runs.
 */
#include <sys/uio.h>

#include "config.h"
#include "hook.h"
#include "hook_int.h"

#define MAX_ENTRIES 256 /* of an environment that is completed; a bigger one was hardly made anew */
#define MAX_PRELOAD 1024
#define PRELOAD "LD_PRELOAD="
#define ASAN	"ASAN_OPTIONS="

struct environment {
	const char *entry[MAX_ENTRIES + 4];
	unsigned nr;
	int preload; /* where LD_PRELOAD is, or -1 */
	bool ours, pswap, asan;
	char text[MAX_PRELOAD], with[MAX_PRELOAD];
};

/* The program's memory may be anything: reads what can be read, never faults. */
static size_t peek(const void *from, void *to, size_t len)
{
	struct iovec local = { to, len }, remote = { (void *)(uintptr_t)from, len };
	long n = sys_call6(SYS_process_vm_readv, sys_getpid(), SYS_ARG(&local), 1, SYS_ARG(&remote), 1, 0);

	return n > 0 ? (size_t)n : 0;
}

/* A string, or what of it fits and can be read. Pages may be missing behind its end. */
static void peek_string(const char *from, char *to, size_t size)
{
	size_t got = 0, n;

	for (bool ended = false; got < size - 1 && !ended; got += n) {
		uintptr_t at = (uintptr_t)from + got;

		n = MIN(size - 1 - got, PAGE_SIZE - (at & (PAGE_SIZE - 1)));
		n = peek((const void *)at, to + got, n);
		ended = n == 0;
		for (size_t i = 0; i < n && !ended; i++)
			ended = !to[got + i];
	}
	to[got] = 0;
}

static bool starts(const char *s, const char *with)
{
	while (*with)
		if (*s++ != *with++)
			return false;
	return true;
}

static bool contains(const char *s, const char *part)
{
	for (; *s; s++)
		if (starts(s, part))
			return true;
	return false;
}

/* False when it cannot be read, or is too long. */
static bool read_environment(struct environment *env, const char *const *envp)
{
	char name[sizeof(ASAN)];

	env->nr = 0;
	env->preload = -1;
	env->ours = env->pswap = env->asan = false;
	for (; envp; env->nr++) {
		const char *entry;

		if (env->nr == MAX_ENTRIES || peek(envp + env->nr, &entry, sizeof(entry)) != sizeof(entry))
			return false;
		if (!entry)
			break;
		env->entry[env->nr] = entry;
		peek_string(entry, name, sizeof(name));
		env->pswap |= starts(name, PS_ENV "=");
		env->asan |= starts(name, ASAN);
		if (starts(name, PRELOAD)) {
			env->preload = (int)env->nr;
			peek_string(entry, env->text, sizeof(env->text));
			env->ours = contains(env->text, G.own_library);
		}
	}
	return true;
}

/* Characters one at a time: memcpy may use vector registers, and so may what the compiler makes of a loop. */
static char *put(char *to, const char *end, const char *s)
{
	while (to < end && *s) {
		*to++ = *s++;
		__asm__ volatile("" ::: "memory");
	}
	return to;
}

/* Ours in front of what is there. False: it does not fit. */
static bool add_library(struct environment *env)
{
	char *end = env->with + sizeof(env->with) - 1, *to = put(env->with, end, PRELOAD);

	to = put(to, end, G.own_library);
	if (env->preload >= 0) {
		to = put(to, end, ":");
		to = put(to, end, env->text + sizeof(PRELOAD) - 1);
	}
	*to = 0;
	env->entry[env->preload >= 0 ? (unsigned)env->preload : env->nr++] = env->with;
	return to < end;
}

void hook_exec(long nr, const long a[6])
{
	long envp = nr == SYS_execve ? a[2] : a[3];
	struct environment env;

	if (!G.own_library[0] || !read_environment(&env, (const char *const *)envp) ||
	    (env.ours && env.pswap))
		return;
	if (!env.pswap)
		env.entry[env.nr++] = G.own_variable;
	if (!env.ours && !add_library(&env))
		return;
	/* Its runtime ends a program into which something was preloaded. */
	if (!env.asan)
		env.entry[env.nr++] = ASAN "verify_asan_link_order=0";
	env.entry[env.nr] = NULL;
	/* It comes back only if it failed, and then the program's own call fails as well. */
	if (nr == SYS_execve)
		sys_call3(SYS_execve, a[0], a[1], env.entry);
	else
		sys_call5(SYS_execveat, a[0], a[1], a[2], env.entry, a[4]);
}
