/* SPDX-License-Identifier: MIT */
/*
 * patch.c - diverting the system calls of libc and ld.so to hook_vm() and hook_pre().
 *
 * hooks_install() scans the executable segments for `syscall` instructions whose number is of
 * interest, builds a stub for each near the library, and puts a jump to it over the five bytes
 * before the instruction (docs/decisions/001; stub.S has the other half).  Sites are found by
 * their bytes, not by their place, so that any build of glibc will do; what makes a match safe is
 * said at each pattern.  A full decode takes 42 ms, this takes well under one; that decoding finds
 * the same is checked by tests/test_patch_decode.c.
 *
 * Writing five bytes is not atomic and another thread could be about to run them, so there must be
 * one thread.  Nothing of libc is called once writing has begun.
 */
#if defined(__x86_64__)

#include <elf.h>
#include <link.h>

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

/* Entries in stub.S. */
extern const u8 patch_entry_vm[], patch_entry_pre[], patch_entry_any[], patch_entry_post[];
extern u8 patch_has_xsave;
u8 patch_has_xsave;

/* Start of the stub area, then one record and its code for each site. stub.S knows `record`. */
struct entries {
	const u8 *vm, *pre, *any, *post;
};
struct record {
	const u8 *ret, *insn, *fork;
	u32 site, nr;
};
#define STUB_CODE 64 /* at most: window 24, lea 7, jmp 6, own call 7, syscall 2, lea 7, jmp 6 */
#define WINDOW_MAX 24
#define JUMP_LEN 5

static u32 get_u32(const u8 *p)
{
	return (u32)p[0] | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24;
}

/*
 * Scan
 */

/* `mov $imm32, %eax` with a number of interest. */
static bool sets_wanted_nr(const u8 *p)
{
	u32 nr = get_u32(p + 1);

	return p[0] == 0xb8 && nr < PATCH_NR_MAX && patch_kind[nr] != PATCH_NONE;
}

/*
 * Length of an instruction that a compiler may put between setting the number and `syscall`, that
 * leaves rax alone and means the same anywhere: register moves, zeroing, constants, lea and loads
 * relative to rsp.  0: something else.
 */
static unsigned argument_insn(const u8 *p)
{
	unsigned rex = (*p & 0xf0) == 0x40 ? *p & 0xf : 0, pre = rex || *p == 0x40;
	u8 op = p[pre], modrm = p[pre + 1];
	unsigned reg = (modrm >> 3 & 7) | (rex & 4) << 1, rm = (modrm & 7) | (rex & 1) << 3;

	switch (op) {
	case 0x31: /* xor r, r/m */
	case 0x89: /* mov r, r/m */
		return (modrm & 0xc0) == 0xc0 && rm != 0 ? pre + 2 : 0;
	case 0x8b: /* mov r/m, r */
	case 0x8d: /* lea */
		if (reg == 0)
			return 0;
		if (op == 0x8b && (modrm & 0xc0) == 0xc0)
			return pre + 2;
		if (p[pre + 2] != 0x24 || (rex & 3) || (modrm & 7) != 4)
			return 0; /* not based on rsp alone */
		return (modrm & 0xc0) == 0 ? pre + 3 : (modrm & 0xc0) == 0x40 ? pre + 4 : 0;
	default: /* mov $imm32, r32 */
		if ((op & 0xf8) == 0xb8 && !(rex & 8) && ((op & 7) || (rex & 1)))
			return pre + 5;
		return 0;
	}
}

/*
 * Is p (the 0f 05) a site?  Fills s.  The patterns, all of them bytes that are very unlikely as
 * part of something else:
 *  - mov $nr, %eax; syscall.  Nothing else compiles to it, and a branch to between the two would
 *    come from code with another number in eax.
 *  - mov $nr, %eax; a few argument moves; syscall.
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
	if (sets_wanted_nr(p - 5)) {
		s->len = 5;
		s->nr = (u16)get_u32(p - 4);
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
		if (get_u32(p - n) << 16 == 0xff310000 && end - p >= 4 && p[2] == 0xeb &&
		    p[3] == (u8)(0 - n - 4)) {
			s->len = (u8)n;
			s->own = n < JUMP_LEN;
			goto found;
		}
	}
	for (n = 7; n <= WINDOW_MAX; n++) {
		if (!sets_wanted_nr(p - n))
			continue;
		for (i = 5; i < n; i += argument_insn(p - n + i))
			if (!argument_insn(p - n + i))
				break;
		if (i == n) {
			s->len = (u8)n;
			s->nr = (u16)get_u32(p - n + 1);
			goto found;
		}
	}
	return false;
found:
	s->win = p - s->len;
	return true;
}

/*
 * Does a branch nearby lead to an instruction of the window other than its first, or to the
 * syscall instruction itself, past the window?  Looks at every byte as if it began a branch, so it
 * may say yes wrongly (never so far), and does not see far or indirect ones.
 */
#define BRANCH_REACH 1024
static bool branch_inside(const struct patch_object *o, const struct patch_site *s)
{
	const u8 *a = s->win - MIN(s->win - o->text, BRANCH_REACH);
	const u8 *e = s->insn + MIN(o->end - s->insn, BRANCH_REACH) - 6;
	u32 starts = 1U << s->len; /* offsets in the window where instructions begin */
	unsigned i;

	if (s->own || s->nr == PATCH_NR_ANY) {
		starts |= s->len < 6 && s->win[0] == 0x31 ? 4 : 0;
	} else {
		for (i = 5; i < s->len; i += argument_insn(s->win + i))
			starts |= 1U << i;
	}
	for (; a < e; a++) {
		const u8 *to;
		size_t off;

		if ((*a & 0xf0) == 0x70 || *a == 0xeb || (*a & 0xfc) == 0xe0)
			to = a + 2 + (signed char)a[1];
		else if ((*a & 0xfe) == 0xe8)
			to = a + 5 + (s32)get_u32(a + 1);
		else if (*a == 0x0f && (a[1] & 0xf0) == 0x80)
			to = a + 6 + (s32)get_u32(a + 2);
		else
			continue;
		off = (size_t)(to - s->win);
		if (off <= s->len && (starts >> off & 1))
			return true;
	}
	return false;
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
			if (branch_inside(o, s))
				return "a branch leads into a call site";
			o->nr_sites++;
		}
		last = p + 1;
	}
	return NULL;
}

static bool has_site(const struct patch_object *o, u16 nr)
{
	for (unsigned i = 0; i < o->nr_sites; i++) {
		const struct patch_site *s = &o->site[i];

		if (s->nr == nr && s->win[0] != 0x31)
			return true;
		if (nr == SYS_exit && s->win[0] == 0x31)
			return true;
	}
	return false;
}

static const char *check_required(const struct patch_object *o)
{
	for (unsigned i = 0; i < ARRAY_SIZE(required); i++)
		if ((o->id == HOOK_SITE_LIBC || required[i].ldso) && !has_site(o, required[i].nr))
			return required[i].why;
	return NULL;
}

/*
 * Stubs
 */

/* Reads /proc/self/maps a byte at a time from a small buffer. */
struct maps {
	int fd;
	unsigned pos, len;
	char buf[2048];
};

static int maps_byte(struct maps *m)
{
	if (m->pos == m->len) {
		long n = sys_read(m->fd, m->buf, sizeof(m->buf));

		if (n <= 0)
			return -1;
		m->pos = 0;
		m->len = (unsigned)n;
	}
	return (u8)m->buf[m->pos++];
}

/* One line: its range, and '[' followed by the first letter of a special name, or 0. */
static bool maps_line(struct maps *m, u64 *start, u64 *end, int *special)
{
	u64 v = 0;
	int c;

	*special = 0;
	while ((c = maps_byte(m)) != '-' && c >= 0)
		v = v << 4 | (u64)(c <= '9' ? c - '0' : c - 'a' + 10);
	*start = v;
	v = 0;
	while ((c = maps_byte(m)) != ' ' && c >= 0)
		v = v << 4 | (u64)(c <= '9' ? c - '0' : c - 'a' + 10);
	*end = v;
	while ((c = maps_byte(m)) != '\n' && c >= 0)
		if (*special == '[')
			*special = c;
		else if (c == '[' && !*special)
			*special = c;
	return c >= 0;
}

/*
 * The free place of `size` bytes next to a mapping that is nearest to o's text, but further than
 * `beyond`.  Not above the heap nor below the stack, which grow.  0: none within reach of rel32.
 */
static u64 find_gap(const struct patch_object *o, size_t size, u64 beyond, u64 *distance)
{
	struct maps m = { .fd = (int)sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0) };
	u64 text = (u64)o->text, reach = GiB(2) - MiB(1) - (u64)(o->end - o->text);
	u64 start, end, last = MiB(1), best = 0;
	int special, last_special = 0;

	if (m.fd < 0)
		return 0;
	*distance = reach;
	while (maps_line(&m, &start, &end, &special)) {
		if (start >= last + size + 2 * PAGE_SIZE) {
			u64 place = start <= text ? start - size : last;
			u64 d = place < text ? text - place : place - text;
			bool grows = place == last ? last_special == 'h' : special == 's';

			if (!grows && d > beyond && d < *distance) {
				best = place;
				*distance = d;
			}
		}
		last = end;
		last_special = special;
	}
	sys_close(m.fd);
	return best;
}

static u8 *map_near(const struct patch_object *o, size_t size)
{
	u64 beyond = 0, distance, place;

	for (int tries = 0; tries < 16; tries++) {
		u8 *p;

		place = find_gap(o, size, beyond, &distance);
		if (!place)
			break;
		p = sys_mmap((void *)place, size, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == (u8 *)place)
			return p;
		if (!sys_is_err((long)p)) /* kernels before 4.17 take it as a hint */
			sys_munmap(p, size);
		beyond = distance;
	}
	return NULL;
}

static u8 *put_rel32(u8 *p, const void *target)
{
	u32 rel = (u32)((const u8 *)target - (p + 4));

	for (int i = 0; i < 4; i++)
		*p++ = (u8)(rel >> 8 * i);
	return p;
}

static u8 *put_lea(u8 *p, u8 rex, u8 modrm, const void *target)
{
	*p++ = rex;
	*p++ = 0x8d;
	*p++ = modrm;
	return put_rel32(p, target);
}

static u8 *put_jmp_mem(u8 *p, const void *slot)
{
	*p++ = 0xff;
	*p++ = 0x25;
	return put_rel32(p, slot);
}

static void build_one(const struct patch_object *o, const struct patch_site *s,
		      struct entries *ents, struct record *rec)
{
	u8 *code = (u8 *)(rec + 1), *p = code;
	const u8 **entry = s->nr == PATCH_NR_ANY		? &ents->any :
			   patch_kind[s->nr] == PATCH_VM	? &ents->vm :
								  &ents->pre;

	*rec = (struct record){ .ret = s->insn + 2, .insn = s->insn, .site = (u32)o->id };
	rec->nr = s->nr;
	for (unsigned i = 0; i < s->len; i++)
		*p++ = s->win[i];
	p = put_lea(p, 0x4c, 0x1d, rec); /* r11 */
	p = put_jmp_mem(p, entry);
	if (s->own) {
		rec->insn = p;
		*p++ = 0x0f;
		*p++ = 0x05;
		*p++ = 0xe9; /* exit returned?  Again, as the loop it came from does. */
		p = put_rel32(p, code);
		rec->ret = code;
	}
	rec->fork = p;
	*p++ = 0x0f;
	*p++ = 0x05;
	p = put_lea(p, 0x48, 0x0d, rec); /* rcx */
	p = put_jmp_mem(p, &ents->post);
	ps_assert(p <= code + STUB_CODE);
}

const char *patch_build(struct patch_object *o)
{
	struct entries *ents;
	u8 *p;

	o->stubs_size = ALIGN_UP(sizeof(*ents) +
				 o->nr_sites * (sizeof(struct record) + STUB_CODE), PAGE_SIZE);
	p = o->stubs = map_near(o, o->stubs_size);
	if (!p)
		return "no free address within 2 GiB of the library";
	ents = (struct entries *)p;
	*ents = (struct entries){ patch_entry_vm, patch_entry_pre, patch_entry_any,
				  patch_entry_post };
	p += sizeof(*ents);
	for (unsigned i = 0; i < o->nr_sites; i++, p += sizeof(struct record) + STUB_CODE)
		build_one(o, &o->site[i], ents, (struct record *)p);
	if (sys_mprotect(o->stubs, o->stubs_size, PROT_READ | PROT_EXEC) == 0)
		return NULL;
	sys_munmap(o->stubs, o->stubs_size);
	o->stubs = NULL;
	return "mprotect: the system forbids making new code executable";
}

/*
 * Text
 */

/* Writes JUMP_LEN bytes of text.  /proc/self/mem writes a private copy of the page without it ever
 * being writable in the page table. */
static bool write_text(const u8 *at, const u8 *bytes, int memfd)
{
	u64 page = (u64)at & PAGE_MASK, len = (u64)at + JUMP_LEN - page;
	volatile u8 *to = (volatile u8 *)at; /* volatile: bytes, and no memcpy of libc's */

	if (memfd >= 0 && sys_pwrite(memfd, bytes, JUMP_LEN, (off_t)at) == JUMP_LEN &&
	    *to == bytes[0])
		return true;
	if (sys_mprotect((void *)page, len, PROT_READ | PROT_WRITE) < 0)
		return false;
	for (int i = 0; i < JUMP_LEN; i++)
		to[i] = bytes[i];
	ps_assert(sys_mprotect((void *)page, len, PROT_READ | PROT_EXEC) == 0);
	return true;
}

static const u8 *stub_code(const struct patch_object *o, unsigned i)
{
	return o->stubs + sizeof(struct entries) +
	       i * (sizeof(struct record) + STUB_CODE) + sizeof(struct record);
}

void patch_undo(struct patch_object *o, unsigned nr_done, int memfd)
{
	while (nr_done--) {
		/* The stub begins with what was there, up to the syscall instruction. */
		const struct patch_site *s = &o->site[nr_done];
		u8 old[JUMP_LEN];

		for (unsigned i = 0; i < JUMP_LEN; i++)
			old[i] = i < s->len ? stub_code(o, nr_done)[i] : 0x0f;
		ps_assert(write_text(s->win, old, memfd));
	}
}

const char *patch_apply(struct patch_object *o, int memfd)
{
	for (unsigned i = 0; i < o->nr_sites; i++) {
		const u8 *win = o->site[i].win;
		u8 jump[JUMP_LEN] = { 0xe9 };

		ps_assert(stub_code(o, i) - win < (s64)GiB(2) && win - stub_code(o, i) < (s64)GiB(2));
		for (unsigned b = 0; b < 4; b++)
			jump[1 + b] = (u8)((u32)(stub_code(o, i) - (win + JUMP_LEN)) >> 8 * b);
		if (!write_text(win, jump, memfd)) {
			patch_undo(o, i, memfd);
			return "the text of libc cannot be written: /proc/self/mem and mprotect fail";
		}
	}
	return NULL;
}

/*
 * This process
 */

/* An address inside each library.  Weak: a C library without them is not glibc. */
extern const char *gnu_get_libc_version(void) __attribute__((weak));
extern void *__tls_get_addr(void *) __attribute__((weak));

#define OBJECTS_MAX 4
struct objects {
	struct patch_object *o;
	unsigned nr;
};

static int add_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct objects *all = arg;
	u64 libc = (u64)&gnu_get_libc_version, ldso = (u64)&__tls_get_addr;

	(void)size;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const Elf64_Phdr *ph = &info->dlpi_phdr[i];
		u64 start = info->dlpi_addr + ph->p_vaddr, end = start + ph->p_memsz;
		bool in_libc = libc >= start && libc < end, in_ldso = ldso >= start && ldso < end;

		if (ph->p_type != PT_LOAD || (ph->p_flags & (PF_X | PF_R)) != (PF_X | PF_R))
			continue;
		if ((!in_libc && !in_ldso) || all->nr == OBJECTS_MAX)
			continue;
		all->o[all->nr].text = (const u8 *)start;
		all->o[all->nr].end = (const u8 *)end;
		all->o[all->nr].id = in_libc ? HOOK_SITE_LIBC : HOOK_SITE_LDSO;
		all->nr++;
	}
	return 0;
}

static const char *check_one_thread(void)
{
	int fd = (int)sys_open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	_Alignas(8) char buf[1024];
	unsigned tasks = 0;
	long n;

	if (fd < 0)
		return "/proc/self/task cannot be read";
	while ((n = sys_call3(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		/* d_ino 8, d_off 8, d_reclen 2, d_type 1, d_name */
		for (long at = 0; at < n; at += *(u16 *)(buf + at + 16))
			tasks += buf[at + 19] != '.';
	}
	sys_close(fd);
	return tasks == 1 ? NULL : "another thread runs already";
}

static u8 cpu_has_xsave(void)
{
	u32 a = 1, b, c = 0, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return c >> 27 & 1; /* OSXSAVE */
}

static const char *install(struct objects *all)
{
	const char *why;
	unsigned i;
	int memfd;

	if (!&gnu_get_libc_version || !&__tls_get_addr)
		return "the C library is not glibc";
	dl_iterate_phdr(add_object, all);
	if (all->nr != 2 || all->o[0].id == all->o[1].id)
		return "the text of libc or of ld.so was not found";
	for (i = 0; i < all->nr; i++)
		if ((why = patch_scan(&all->o[i])) || (why = check_required(&all->o[i])))
			return why;
	why = check_one_thread();
	if (why)
		return why;
	patch_has_xsave = cpu_has_xsave();
	for (i = 0; i < all->nr; i++)
		if ((why = patch_build(&all->o[i])))
			return why;
	memfd = (int)sys_open("/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
	for (i = 0; i < all->nr && !why; i++)
		why = patch_apply(&all->o[i], memfd);
	if (why)
		for (i--; i--;)
			patch_undo(&all->o[i], all->o[i].nr_sites, memfd);
	if (memfd >= 0)
		sys_close(memfd);
	return why;
}

int hooks_install(struct hook_report *r)
{
	struct patch_object o[OBJECTS_MAX];
	struct objects all = { .o = o };

	for (unsigned i = 0; i < OBJECTS_MAX; i++) {
		o[i].nr_sites = 0;
		o[i].stubs = NULL;
	}
	*r = (struct hook_report){ .why = install(&all) };
	for (unsigned i = 0; i < all.nr; i++) {
		if (r->why && o[i].stubs)
			sys_munmap(o[i].stubs, o[i].stubs_size);
		r->sites_wanted += o[i].nr_sites;
		if (o[i].id == HOOK_SITE_LIBC)
			r->libc_sites += o[i].nr_sites;
		else
			r->ldso_sites += o[i].nr_sites;
	}
	r->sites_patched = r->why ? 0 : r->sites_wanted;
	return r->why ? -1 : 0;
}

#else /* another processor */

#include "hook.h"

int hooks_install(struct hook_report *r)
{
	*r = (struct hook_report){ .why = "only x86-64 is supported" };
	return -1;
}

#endif
