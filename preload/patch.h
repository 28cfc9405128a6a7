/* SPDX-License-Identifier: MIT */
/*
 * patch.h - finding `syscall` instructions in loaded code and diverting them (patch.c, stub.S).
 *
 * A site is a `syscall` instruction (0f 05) with a window before it: at least five bytes of whole,
 * position-independent instructions that no branch enters in the middle.  The first five bytes of
 * the window become `jmp stub`; the stub runs a copy of the window, so it sees the registers just
 * as the kernel would, and goes on to one of the entries in stub.S.
 */
#ifndef PS_PATCH_H
#define PS_PATCH_H

#include "hook.h"

/* What to do about a system call number. */
#define PATCH_NONE 0
#define PATCH_VM 1  /* hook_vm makes the call */
#define PATCH_PRE 2 /* hook_pre, then the program's own `syscall` instruction */
#define PATCH_NR_MAX 512
extern const u8 patch_kind[PATCH_NR_MAX];

#define PATCH_NR_ANY 0xffffU /* the number is known at run time only */
struct patch_site {
	const u8 *win;	/* first byte of the window */
	const u8 *insn; /* the syscall instruction */
	u16 nr;
	u8 len; /* bytes of the window that the stub runs: insn - win */
	u8 own; /* the jump reaches into the syscall instruction: the stub makes the call */
};

#define PATCH_SITES_MAX 64 /* glibc 2.36: 32 in libc, 5 in ld.so */
struct patch_object {
	const u8 *text, *end; /* the executable segment */
	int id;		      /* HOOK_SITE_* */
	unsigned nr_sites;
	struct patch_site site[PATCH_SITES_MAX];
	u8 *stubs; /* NULL until built */
	size_t stubs_size;
};

/* Fills o->site from o->text.  NULL, or why the text is not safe to patch.  Writes nothing. */
const char *patch_scan(struct patch_object *o);

/* Makes the stubs of o->site within reach of o->text and leaves them read-execute. NULL or why. */
const char *patch_build(struct patch_object *o);

/* Writes the jumps, through memfd (/proc/self/mem open for writing) or, if that is -1 or not
 * allowed to, by making a page writable for a moment.  On failure the text is as it was. */
const char *patch_apply(struct patch_object *o, int memfd);
void patch_undo(struct patch_object *o, unsigned nr_done, int memfd);

#endif
