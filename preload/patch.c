/* SPDX-License-Identifier: MIT */
/*
 * patch.c - diverting the system calls of libc and ld.so to hook_vm() and hook_pre().
 *
 * hooks_install() lets patch_scan.c find the `syscall` instructions whose number is of interest,
 * builds a stub for each near the library, and puts a jump to it over the first five bytes of the
 * window before the instruction (docs/decisions/001; stub.S has the other half).
 *
 * Writing five bytes is not atomic and another thread could be about to run them, so there must be
 * one thread.  Nothing of libc is called once writing has begun.
 */
#if defined(__x86_64__)

#include <elf.h>
#include <link.h>

#include "patch.h"
#include "sys.h"

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
#define STUB_CODE 64 /* at most: window PATCH_WINDOW_MAX, lea 7, jmp 6, own call 7, syscall 2, lea 7, jmp 6 */
#define JUMP_LEN PATCH_JUMP_LEN

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
	while ((c = maps_byte(m)) != '-') {
		if (c < 0)
			return false;
		v = v << 4 | (u64)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
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

/* Copies the window to where the stub runs it.  NULL: an address is out of reach from there. */
static u8 *put_window(u8 *p, const struct patch_site *s)
{
	unsigned i, n, reg, pre;

	for (i = 0; i < s->len; i++)
		p[i] = s->win[i];
	for (i = 5; i < s->len && s->nr != PATCH_NR_ANY; i += n) {
		n = patch_argument_insn(s->win + i, &reg);
		pre = (p[i] & 0xf0) == 0x40;
		if (patch_is_lea_rip(p[i + pre], p[i + pre + 1])) {
			const u8 *to = s->win + i + n + (s32)patch_u32(p + i + n - 4);
			s64 rel = to - (p + i + n);

			if (rel != (s32)rel)
				return NULL;
			put_rel32(p + i + n - 4, to);
		}
	}
	return p + s->len;
}

static bool build_one(const struct patch_object *o, const struct patch_site *s,
		      struct entries *ents, struct record *rec)
{
	u8 *code = (u8 *)(rec + 1), *p = code;
	const u8 **entry = s->nr == PATCH_NR_ANY		? &ents->any :
			   patch_kind[s->nr] == PATCH_VM	? &ents->vm :
								  &ents->pre;

	*rec = (struct record){ .ret = s->insn + 2, .insn = s->insn, .site = (u32)o->id };
	rec->nr = s->nr;
	p = put_window(p, s);
	if (!p)
		return false;
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
	return true;
}

const char *patch_build(struct patch_object *o)
{
	const char *why = NULL;
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
		if (!build_one(o, &o->site[i], ents, (struct record *)p))
			why = "no free address near enough to the library";
	if (!why && sys_mprotect(o->stubs, o->stubs_size, PROT_READ | PROT_EXEC) < 0)
		why = "mprotect: the system forbids making new code executable";
	if (why) {
		sys_munmap(o->stubs, o->stubs_size);
		o->stubs = NULL;
	}
	return why;
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
	while (nr_done--)
		ps_assert(write_text(o->site[nr_done].win, o->site[nr_done].old, memfd));
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

/* "2.34" and later: there libpthread is part of libc. */
static bool version_known(const char *v)
{
	unsigned n[2] = { 0, 0 };

	for (unsigned i = 0; i < 2; i++) {
		for (; *v >= '0' && *v <= '9'; v++)
			n[i] = n[i] * 10 + (unsigned)(*v - '0');
		if (*v)
			v++;
	}
	return n[0] > 2 || (n[0] == 2 && n[1] >= 34);
}

static const char *install(struct objects *all)
{
	const char *why;
	unsigned i;
	int memfd;

	if (!&gnu_get_libc_version || !&__tls_get_addr)
		return "the C library is not glibc";
	if (!version_known(gnu_get_libc_version()))
		return "glibc before 2.34 keeps threads in another library";
	dl_iterate_phdr(add_object, all);
	if (all->nr != 2 || all->o[0].id == all->o[1].id)
		return "the text of libc or of ld.so was not found";
	for (i = 0; i < all->nr; i++)
		if ((why = patch_scan(&all->o[i])) || (why = patch_check(&all->o[i])))
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
