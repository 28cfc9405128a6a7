/* SPDX-License-Identifier: MIT */
/*
 * patch_scan.c - finding the system calls to divert in the text of libc and ld.so.
 *
 * Sites are found by their bytes, not by their place, so that any build of glibc will do; what
 * makes a match safe is said at each pattern.  A full decode takes 40 ms, this 0.3 ms; that
 * decoding finds the same is checked by tests/test_patch_decode.c (glibc 2.31, 2.36, 2.41, 2.43).
 */
#if defined(__x86_64__)

#include "patch.h"
#include "sys.h"

#define VM PATCH_VM
#define PRE PATCH_PRE
const u8 patch_kind[PATCH_NR_MAX] = {
	[SYS_mmap] = VM,
	[SYS_mprotect] = VM,
	[SYS_munmap] = VM,
	[SYS_brk] = VM,
	[SYS_mremap] = VM,
	[SYS_madvise] = VM,
	[SYS_mlock] = VM,
	[SYS_munlock] = VM,
	[SYS_mlockall] = VM,
	[SYS_munlockall] = VM,
	[SYS_mlock2] = VM,
	[SYS_pkey_mprotect] = VM,
	[SYS_unshare] = VM,
	[SYS_shmat] = VM,
	[440] = VM, /* process_madvise */
	[SYS_clone] = PRE,
	[SYS_fork] = PRE,
	[SYS_vfork] = PRE,
	[435] = PRE, /* clone3 */
	[SYS_execve] = PRE,
	[SYS_execveat] = PRE,
	[SYS_exit] = PRE,
	[SYS_prctl] = PRE,
	[SYS_seccomp] = PRE,
	[SYS_futex] = PRE,
	[SYS_userfaultfd] = PRE,
	[SYS_sched_setaffinity] = PRE,
	[SYS_sched_getaffinity] = PRE,
};
#undef VM
#undef PRE

/* What a library must have, or it is not the one we know how to watch. */
static const struct {
	u16 nr;
	u8 ldso;
	const char *why;
} required[] = {
	{ SYS_mmap, 1, "no mmap call that can be patched" },
	{ SYS_munmap, 1, "no munmap call that can be patched" },
	{ SYS_mprotect, 1, "no mprotect call that can be patched" },
	{ SYS_mremap, 0, "no mremap call that can be patched" },
	{ SYS_brk, 0, "no brk call that can be patched" },
	{ SYS_madvise, 0, "no madvise call that can be patched" },
	{ SYS_clone, 0, "no clone call that can be patched" },
	{ SYS_execve, 0, "no execve call that can be patched" },
	{ SYS_exit, 0, "no thread exit that can be patched" },
	{ PATCH_NR_ANY, 0, "no syscall function that can be patched" },
};

#define JUMP_LEN PATCH_JUMP_LEN
#define NO_REG 16
#define WINDOW_MAX PATCH_WINDOW_MAX

/* `mov $imm32, %reg` (of the first eight) with a number of interest. */
static bool sets_wanted_nr(const u8 *p)
{
	u32 nr = patch_u32(p + 1);

	/* futex: only where it is made through syscall(); libc's own many sites are left alone. */
	return (*p & 0xf8) == 0xb8 && nr < PATCH_NR_MAX && nr != SYS_futex &&
	       patch_kind[nr] != PATCH_NONE;
}

unsigned patch_argument_insn(const u8 *p, unsigned *reg)
{
	unsigned rex = (*p & 0xf0) == 0x40 ? *p & 0xf : 0, pre = (*p & 0xf0) == 0x40;
	u8 op = p[pre], modrm = p[pre + 1], mod = modrm >> 6;

	*reg = (modrm & 7) | (rex & 1) << 3;
	switch (op) {
	case 0x0f: /* cmovcc r/m, r */
		modrm = p[pre + 2];
		*reg = (modrm >> 3 & 7) | (rex & 4) << 1;
		return (p[pre + 1] & 0xf0) == 0x40 && modrm >> 6 == 3 ? pre + 3 : 0;
	case 0x39: /* cmp r, r/m: changes none */
		*reg = NO_REG;
		return mod == 3 ? pre + 2 : 0;
	case 0x31: /* xor r, r/m */
	case 0x89: /* mov r, r/m */
		return mod == 3 ? pre + 2 : 0;
	case 0x83: /* add, or, and... $imm8, r/m */
		return mod == 3 ? pre + 3 : 0;
	case 0x8b: /* mov r/m, r */
	case 0x8d: /* lea */
		*reg = (modrm >> 3 & 7) | (rex & 4) << 1;
		if (patch_is_lea_rip(op, modrm))
			return pre + 6;
		if (op == 0x8b && mod == 3)
			return pre + 2;
		if ((modrm & 7) != 4 || p[pre + 2] != 0x24 || (rex & 3))
			return 0; /* not based on rsp alone */
		return mod == 0 ? pre + 3 : mod == 1 ? pre + 4 : 0;
	default: /* mov $imm32, r32 */
		*reg = (op & 7) | (rex & 1) << 3;
		return (op & 0xf8) == 0xb8 && !(rex & 8) ? pre + 5 : 0;
	}
}

/* Do the n bytes before p set a wanted number, then only arguments, to end with it in eax? */
static bool match_far(const u8 *p, unsigned n)
{
	unsigned nr_reg = p[-(int)n] & 7, i, len, reg;

	for (i = 5; i < n; i += len) {
		const u8 *q = p - n + i;

		if (nr_reg && n - i == 2 && q[0] == 0x89 && q[1] == (0xc0 | nr_reg << 3))
			return true; /* mov %reg, %eax comes last */
		len = patch_argument_insn(q, &reg);
		if (!len || reg == 0 || reg == nr_reg)
			return false;
	}
	return i == n && nr_reg == 0;
}

/*
 * Is p (the 0f 05) a site?  Fills s.  The patterns, all of them bytes that are very unlikely as
 * part of something else:
 *  - mov $nr, %eax; syscall.  Nothing else compiles to it, and a branch to between the two would
 *    come from code with another number in eax.
 *  - mov $nr, %eax; a few argument moves; syscall.  Or mov $nr, %reg, with mov %reg, %eax last.
 *  - mov 8(%rsp), %r9; syscall: syscall(3), whose 7th argument is on the stack.  In any other place
 *    the run-time dispatch is right as well.
 *  - 1: xor %edi, %edi; mov %reg, %eax; syscall; jmp 1b: a thread's exit(0), which gcc compiles so
 *    because it may not return.  With a 2-byte mov the jump covers half of the syscall
 *    instruction; nobody waits in it or returns from it, and the stub has its own.
 */
static bool match_site(const u8 *text, const u8 *p, const u8 *end, struct patch_site *s)
{
	static const u8 stack_arg[] = { 0x4c, 0x8b, 0x4c, 0x24, 0x08 };
	unsigned n, i, rex;

	*s = (struct patch_site){ .insn = p, .nr = PATCH_NR_ANY };
	if (p - text < WINDOW_MAX)
		return false;
	if (p[-5] == 0xb8 && sets_wanted_nr(p - 5)) {
		s->len = 5;
		s->nr = (u16)patch_u32(p - 4);
		goto found;
	}
	for (i = 0; i < sizeof(stack_arg) && p[(int)i - 5] == stack_arg[i]; i++)
		;
	if (i == sizeof(stack_arg)) {
		s->len = 5;
		goto found;
	}
	if (p[-2] == 0x89 && (p[-1] & 0xc7) == 0xc0) {
		rex = (p[-3] & 0xfb) == 0x40;
		n = 4 + rex;
		if (patch_u32(p - n) << 16 == 0xff310000 && end - p >= 4 && p[2] == 0xeb &&
		    p[3] == (u8)(0 - n - 4)) {
			s->len = (u8)n;
			s->own = n < JUMP_LEN;
			goto found;
		}
	}
	for (n = 7; n <= WINDOW_MAX; n++) {
		if (sets_wanted_nr(p - n) && match_far(p, n)) {
			s->len = (u8)n;
			s->nr = (u16)patch_u32(p - n + 1);
			goto found;
		}
	}
	return false;
found:
	s->win = p - s->len;
	for (i = 0; i < JUMP_LEN; i++)
		s->old[i] = s->win[i];
	return true;
}

/*
 * Does a branch nearby lead to an instruction of the window other than its first, or to the
 * syscall instruction itself, past the window?  Looks at every byte as if it began a branch, so it
 * may say yes wrongly (never so far), and does not see far or indirect ones.
 */
#define BRANCH_REACH 512
static bool branch_inside(const struct patch_object *o, const struct patch_site *s)
{
	const u8 *a = s->win - MIN(s->win - o->text, BRANCH_REACH);
	const u8 *e = s->insn + MIN(o->end - s->insn, BRANCH_REACH) - 6;
	u32 starts = 1U << s->len; /* offsets in the window where instructions begin */
	unsigned i, reg;

	if (s->own || s->nr == PATCH_NR_ANY) {
		starts |= s->len < 6 && s->win[0] == 0x31 ? 4 : 0;
	} else {
		for (i = 5; i < s->len; i += patch_argument_insn(s->win + i, &reg))
			starts |= 1U << i;
	}
	for (; a < e; a++) {
		const u8 *to;
		size_t off;

		if ((*a & 0xf0) == 0x70 || *a == 0xeb || (*a & 0xfc) == 0xe0)
			to = a + 2 + (signed char)a[1];
		else if ((*a & 0xfe) == 0xe8)
			to = a + 5 + (s32)patch_u32(a + 1);
		else if (*a == 0x0f && (a[1] & 0xf0) == 0x80)
			to = a + 6 + (s32)patch_u32(a + 2);
		else
			continue;
		off = (size_t)(to - s->win);
		if (off <= s->len && (starts >> off & 1))
			return true;
	}
	return false;
}

/* Calls whose hooks make pswap invisible, not right. */
static bool can_do_without(u16 nr)
{
	return nr == SYS_sched_setaffinity || nr == SYS_sched_getaffinity;
}

const char *patch_scan(struct patch_object *o)
{
	const u8 *p = o->text + 1, *last = NULL;
	struct patch_site *s;

	o->nr_sites = 0;
	for (; (p = memchr(p, 0x05, (size_t)(o->end - p))); p++) {
		if (p[-1] != 0x0f)
			continue;
		if (o->nr_sites == PATCH_SITES_MAX)
			return "more call sites than there is room for";
		s = &o->site[o->nr_sites];
		if (match_site(o->text, p - 1, o->end, s)) {
			if (last && s->win < last)
				return "two call sites overlap";
			if (!branch_inside(o, s))
				o->nr_sites++;
			else if (!can_do_without(s->nr))
				return "a branch leads into a call site";
		}
		last = p + 1;
	}
	return NULL;
}

/* A thread's exit is one that is tried again when it returns; clone() has another, in assembly. */
static bool is_thread_exit(const struct patch_site *s)
{
	return s->insn[2] == 0xeb && (s->nr == SYS_exit || (s->nr == PATCH_NR_ANY && *s->win == 0x31));
}

static bool has_site(const struct patch_object *o, u16 nr)
{
	for (unsigned i = 0; i < o->nr_sites; i++) {
		const struct patch_site *s = &o->site[i];

		if (nr == SYS_exit ? is_thread_exit(s) : s->nr == nr && *s->win != 0x31)
			return true;
	}
	return false;
}

const char *patch_check(const struct patch_object *o)
{
	for (unsigned i = 0; i < ARRAY_SIZE(required); i++)
		if ((o->id == HOOK_SITE_LIBC || required[i].ldso) && !has_site(o, required[i].nr))
			return required[i].why;
	return NULL;
}

#else
typedef int patch_scan_not_for_this_processor;
#endif
