/* SPDX-License-Identifier: MIT */
/*
 * hook_exec.c - a program that is started with an environment of its own (env -i, daemons, sudo-like
 * tools) stays in the tree and under its limit: PSWAP and our part of LD_PRELOAD are put back.
 * hook.h says by which rules this runs.
 */
#include "config.h"
#include "hook.h"
#include "hook_int.h"

#define MAX_ENTRIES 256 /* of an environment that is completed; a bigger one was hardly made anew */
#define MAX_PRELOAD 1024
#define PRELOAD "LD_PRELOAD="
#define ASAN	"ASAN_OPTIONS="
#define NO_SUCH_HOW 99

struct environment {
	const char *entry[MAX_ENTRIES + 4];
	unsigned nr;
	int preload; /* where LD_PRELOAD is, or -1 */
	bool ours, pswap, asan;
	uintptr_t page; /* the last one found to be readable */
	char text[MAX_PRELOAD], with[MAX_PRELOAD];
};

/*
 * Can the page of p be read?  rt_sigprocmask reads its set before it looks at what to do with it, and is a
 * call that no seccomp filter forbids.
 */
static bool readable(uintptr_t p)
{
	return sys_call4(SYS_rt_sigprocmask, NO_SUCH_HOW, ALIGN_DOWN(p, 8UL), NULL, NSIG_BYTES) == -EINVAL;
}

/* The program's memory may be anything: the bytes of [from, from + len) that can be read, from the first on. */
static size_t peek(struct environment *env, const void *from, void *to, size_t len)
{
	const char *f = from;
	char *t = to;

	for (size_t i = 0; i < len; i++) {
		uintptr_t page = (uintptr_t)(f + i) & PAGE_MASK;

		if (page != env->page && !readable((uintptr_t)(f + i)))
			return i;
		env->page = page;
		t[i] = f[i];
		__asm__ volatile("" ::: "memory");
	}
	return len;
}

/* A string, or what of it fits and can be read. */
static void peek_string(struct environment *env, const char *from, char *to, size_t size)
{
	size_t n = 0;

	while (n < size - 1 && peek(env, from + n, to + n, 1) && to[n])
		n++;
	to[n] = 0;
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
	env->page = 1;
	for (; envp; env->nr++) {
		const char *entry;

		if (env->nr == MAX_ENTRIES || peek(env, envp + env->nr, &entry, sizeof(entry)) != sizeof(entry))
			return false;
		if (!entry)
			break;
		env->entry[env->nr] = entry;
		peek_string(env, entry, name, sizeof(name));
		env->pswap |= starts(name, PS_ENV "=");
		env->asan |= starts(name, ASAN);
		if (starts(name, PRELOAD)) {
			env->preload = (int)env->nr;
			peek_string(env, entry, env->text, sizeof(env->text));
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
