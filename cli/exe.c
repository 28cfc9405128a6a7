/* SPDX-License-Identifier: MIT */
/*
 * exe.c - what CMD is, before it is started: whether it is there, and whether the dynamic loader
 * will load the preloaded library into it.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli.h"

#define MAX_INTERPRETERS 5 /* as many #! lines in a row as the kernel follows */

#if defined(__x86_64__)
#define NATIVE_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define NATIVE_MACHINE EM_AARCH64
#else
#define NATIVE_MACHINE EM_NONE
#endif

/* 0 if path can be executed; the errno execve would fail with otherwise. */
static int executable(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return errno;
	if (!S_ISREG(st.st_mode))
		return EACCES;
	return eaccess(path, X_OK) ? errno : 0;
}

/* As execvp: a name with a slash is a path, another is looked for in PATH; a directory where
 * it may not be executed does not end the search, but is what is reported in the end. */
static int find_in_path(const char *cmd, char *out, size_t size)
{
	const char *path = getenv("PATH"), *p;
	int best = ENOENT;
	char fallback[256];

	if (!*cmd)
		return ENOENT;
	if (strchr(cmd, '/')) {
		if (snprintf(out, size, "%s", cmd) >= (int)size)
			return ENAMETOOLONG;
		return executable(out);
	}
	if (!path) {
		snprintf(fallback, sizeof(fallback), "%s", _PATH_DEFPATH);
		path = fallback;
	}
	for (p = path;; p++) {
		size_t n = strcspn(p, ":");
		int err;

		if (snprintf(out, size, "%.*s%s%s", (int)n, p, n ? "/" : "", cmd) < (int)size) {
			err = executable(out);
			if (!err)
				return 0;
			if (err != ENOENT && err != ENOTDIR && best == ENOENT)
				best = err;
		}
		p += n;
		if (!*p)
			return best;
	}
}

/* Would the kernel make the process privileged (AT_SECURE), so that ld.so ignores LD_PRELOAD? */
static bool is_secure(int fd, const struct stat *st)
{
	struct statvfs fs;
	bool gains;

	if (!fstatvfs(fd, &fs) && (fs.f_flag & ST_NOSUID))
		return false;
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return false;
	gains = ((st->st_mode & S_ISUID) && st->st_uid != getuid()) ||
		((st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
		 st->st_gid != getgid());
	/* Root has all capabilities already. */
	return gains || (getuid() && fgetxattr(fd, "security.capability", NULL, 0) > 0);
}

/* Looks at the program headers: is there a loader, and is it glibc's? */
static enum exe_kind elf_kind(int fd)
{
	Elf64_Ehdr eh;
	Elf64_Phdr ph;
	char interp[256], *base;

	if (pread(fd, &eh, sizeof(eh), 0) != sizeof(eh))
		return EXE_UNKNOWN;
	if (eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_machine != NATIVE_MACHINE)
		return EXE_FOREIGN;
	for (unsigned i = 0; i < eh.e_phnum; i++) {
		ssize_t n;

		if (pread(fd, &ph, sizeof(ph), (off_t)(eh.e_phoff + i * (u64)eh.e_phentsize)) !=
		    sizeof(ph))
			return EXE_UNKNOWN;
		if (ph.p_type != PT_INTERP)
			continue;
		n = pread(fd, interp, MIN(ph.p_filesz, sizeof(interp) - 1), (off_t)ph.p_offset);
		if (n <= 0)
			return EXE_UNKNOWN;
		interp[n] = 0;
		base = strrchr(interp, '/');
		base = base ? base + 1 : interp;
		/* Another libc's loader would refuse a library that needs glibc, and the program
		 * with it. */
		return strncmp(base, "ld-linux", 8) ? EXE_FOREIGN : EXE_DYNAMIC;
	}
	return EXE_STATIC;
}

/* The interpreter of a #! line into out. */
static bool shebang(const char *head, char *out, size_t size)
{
	const char *p = head + 2 + strspn(head + 2, " \t");
	size_t n = strcspn(p, " \t\n");

	if (!n || n >= size)
		return false;
	memcpy(out, p, n);
	out[n] = 0;
	return true;
}

int exe_find(const char *cmd, struct exe *x)
{
	int err = find_in_path(cmd, x->path, sizeof(x->path));

	if (err)
		return err == ENOTDIR ? ENOENT : err;
	memcpy(x->program, x->path, sizeof(x->program));
	x->kind = EXE_UNKNOWN;
	x->needs_shell = false;
	for (int depth = 0; depth < MAX_INTERPRETERS; depth++) {
		char head[512] = "";
		struct stat st;
		int fd = open(x->program, O_RDONLY | O_CLOEXEC);
		ssize_t n;

		if (fd < 0) /* executable but not readable: only the kernel can tell */
			return depth && errno == ENOENT ? ENOENT : 0;
		n = pread(fd, head, sizeof(head) - 1, 0);
		if (n >= SELFMAG && !memcmp(head, ELFMAG, SELFMAG)) {
			x->kind = elf_kind(fd);
			if (!fstat(fd, &st) && is_secure(fd, &st))
				x->kind = EXE_SECURE;
			close(fd);
			return 0;
		}
		close(fd);
		if (n < 2 || memcmp(head, "#!", 2)) {
			/* Not for the kernel, unless binfmt_misc knows it: for sh. */
			if (depth)
				return 0;
			x->needs_shell = true;
			snprintf(x->program, sizeof(x->program), "%s", _PATH_BSHELL);
			continue;
		}
		if (!shebang(head, x->program, sizeof(x->program)))
			return 0;
	}
	return 0;
}

const char *exe_unswapped_reason(const struct exe *x)
{
	switch (x->kind) {
	case EXE_STATIC:
		return "is statically linked, so it runs unswapped (dynamic programs that it "
		       "starts are swapped); link it dynamically, or use libpswap in it";
	case EXE_SECURE:
		return "changes user, group or capabilities when it starts, so it runs unswapped; "
		       "use a copy without the set-id bits and file capabilities, or run it as "
		       "their owner";
	case EXE_FOREIGN:
		return "is not a 64-bit program of this architecture that uses glibc, so it runs "
		       "unswapped; use a build of it that is";
	case EXE_DYNAMIC:
	case EXE_UNKNOWN:
		break;
	}
	return NULL;
}
