/* SPDX-License-Identifier: MIT */
/*
 * patch.h - finding `syscall` instructions in loaded code and diverting them (patch.c,
 * patch_scan.c, stub.S).
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

#define PATCH_JUMP_LEN 5
#define PATCH_WINDOW_MAX 24
#define PATCH_NR_ANY 0xffffU /* the number is known at run time only */
struct patch_site {
	const u8 *win;	/* first byte of the window */
	const u8 *insn; /* the syscall instruction */
	u16 nr;
	u8 len; /* bytes of the window that the stub runs: insn - win */
	u8 own; /* the jump reaches into the syscall instruction: the stub makes the call */
	u8 old[PATCH_JUMP_LEN];
};

#define PATCH_SITES_MAX 64 /* glibc 2.31 to 2.43: at most 30 */
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

/* NULL, or what a library of glibc should have and o has not. */
const char *patch_check(const struct patch_object *o);

/*
 * Length of an instruction that a compiler may put between setting the number and `syscall`, and
 * that can run elsewhere: register moves, zeroing, constants, arithmetic with a constant, loads
 * relative to rsp, and addresses (those relative to rip are adjusted in the copy).  *reg is what
 * it writes.  0: something else.
 */
unsigned patch_argument_insn(const u8 *p, unsigned *reg);

static inline bool patch_is_lea_rip(u8 op, u8 modrm)
{
	return op == 0x8d && (modrm & 0xc7) == 0x05;
}

static inline u32 patch_u32(const u8 *p)
{
	return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}

/* Makes the stubs of o->site within reach of o->text and leaves them read-execute. NULL or why. */
const char *patch_build(struct patch_object *o);

/* Writes the jumps, through memfd (/proc/self/mem open for writing) or, if that is -1 or not
 * allowed to, by making a page writable for a moment.  On failure the text is as it was. */
const char *patch_apply(struct patch_object *o, int memfd);
void patch_undo(struct patch_object *o, unsigned nr_done, int memfd);

#endif
