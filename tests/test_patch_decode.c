/* SPDX-License-Identifier: MIT */
/*
 * test_patch_decode.c - what patch_scan() finds in this machine's libc and ld.so, checked with a
 * real decoder (libzydis, loaded at run time): each window is whole instructions where the decoder
 * also sees them, nothing branches into one, and no call that should be seen is left out.
 *
 * Also: PATCH_DECODE="file file" checks other builds of glibc.
 *
 * sanitize: no (a sanitizer's runtime comes before libc)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__) && __has_include(<Zydis/Zydis.h>)
#include <Zydis/Zydis.h>

/* All of it, as its helpers are wanted too. */
#include "../preload/patch_scan.c"

extern const char *gnu_get_libc_version(void) __attribute__((weak));
extern void *__tls_get_addr(void *) __attribute__((weak));

static __typeof__(ZydisDecoderInit) *zydis_init;
static __typeof__(ZydisDecoderDecodeInstruction) *zydis_insn;
static __typeof__(ZydisDecoderDecodeOperands) *zydis_operands;
static __typeof__(ZydisCalcAbsoluteAddress) *zydis_target;

static int setup(void **state)
{
	void *h = dlopen("libZydis.so.4.0", RTLD_NOW);

	if (!h)
		h = dlopen("libZydis.so.4", RTLD_NOW);
	if (!h)
		h = dlopen("libZydis.so", RTLD_NOW);
	if (!h)
		return 0;
	zydis_init = dlsym(h, "ZydisDecoderInit");
	zydis_insn = dlsym(h, "ZydisDecoderDecodeInstruction");
	zydis_operands = dlsym(h, "ZydisDecoderDecodeOperands");
	zydis_target = dlsym(h, "ZydisCalcAbsoluteAddress");
	return 0;
}

/* The executable segment of a library's file; NULL: not readable. */
static bool load(const char *path, struct patch_object *o)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	const u8 *p;

	if (fd < 0 || fstat(fd, &st) < 0)
		return false;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return false;
	for (int i = 0; i < ((const Elf64_Ehdr *)p)->e_phnum; i++) {
		const Elf64_Phdr *ph =
			(const Elf64_Phdr *)(p + ((const Elf64_Ehdr *)p)->e_phoff) + i;

		if (ph->p_type == PT_LOAD && (ph->p_flags & PF_X)) {
			o->text = p + ph->p_offset;
			o->end = o->text + ph->p_filesz;
			return true;
		}
	}
	return false;
}

struct decoded {
	u8 *starts; /* a byte for each of text: an instruction begins here */
	size_t nr_syscalls, nr_branches;
};

static const struct patch_site *site_at(const struct patch_object *o, const u8 *insn)
{
	for (unsigned i = 0; i < o->nr_sites; i++)
		if (o->site[i].insn == insn)
			return &o->site[i];
	return NULL;
}

/*
 * A system call that has no site: what is in eax?  Looks back over a few decoded instructions for
 * `mov $imm32, reg`, as compilers also keep the number in another register.  Reports numbers that
 * should have been covered; the exit after exit_group of _exit() is known and never reached.
 */
static unsigned report_unseen(const struct patch_object *o, const struct decoded *d, const u8 *insn,
			      const char *path)
{
	const u8 *p = insn;
	unsigned back, found = 0;
	u8 modrm;

	if (insn[-2] == 0x31 && insn[-1] == 0xc0) /* read */
		return 0;
	for (back = 0; back < 12 && p > o->text + 16; back++) {
		do
			p--;
		while (!d->starts[p - o->text]);
		if (p[0] == 0x0f && p[1] == 0x05)
			break;
		if (*p == 0xb8) {
			found = sets_wanted_nr(p) ? patch_u32(p + 1) : 0;
			goto out;
		}
	}
	/* mov %reg, %eax: no immediate nearby for this one. */
	modrm = insn[-1];
	if (insn[-2] == 0x89 && (modrm & 0xc7) == 0xc0) {
		u8 reg = modrm >> 3 & 7, op = (u8)(0xb8 + reg);

		for (p = insn; p > insn - 64 && p > o->text; p--)
			if (*p == op && d->starts[p - o->text] && patch_u32(p + 1) < PATCH_NR_MAX &&
			    patch_kind[patch_u32(p + 1)])
				found = patch_u32(p + 1);
	}
out:
	if (found)
		printf("%s: offset 0x%zx of the text: call %u is not patched\n", path,
		       (size_t)(insn - o->text), found);
	/* pthread_create's, for a thread that is given its CPUs, has a branch into it: not needed. */
	return found && found != SYS_exit && found != SYS_sched_setaffinity;
}

static void check(const char *path, int id)
{
	struct patch_object o = { .id = id };
	struct decoded d = { 0 };
	ZydisDecoder dec;
	ZydisDecodedInstruction insn;
	ZydisDecodedOperand op[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecoderContext ctx;
	const char *why;
	unsigned unseen = 0;
	const u8 *p;

	assert_true(load(path, &o));
	why = patch_scan(&o);
	assert_null(why);
	why = patch_check(&o);
	if (why)
		fail_msg("%s: %s", path, why);
	zydis_init(&dec, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	d.starts = calloc(1, (size_t)(o.end - o.text));
	assert_non_null(d.starts);

	/* Linear decoding; gcc pads code with code, so that it stays in step. */
	for (p = o.text; p < o.end;) {
		ZyanU64 to;

		if (ZYAN_FAILED(zydis_insn(&dec, &ctx, p, (size_t)(o.end - p), &insn))) {
			p++;
			continue;
		}
		d.starts[p - o.text] = 1;
		if (insn.mnemonic == ZYDIS_MNEMONIC_SYSCALL)
			d.nr_syscalls++;
		if ((insn.attributes & ZYDIS_ATTRIB_IS_RELATIVE) &&
		    (insn.meta.category == ZYDIS_CATEGORY_COND_BR ||
		     insn.meta.category == ZYDIS_CATEGORY_UNCOND_BR ||
		     insn.meta.category == ZYDIS_CATEGORY_CALL) &&
		    !ZYAN_FAILED(zydis_operands(&dec, &ctx, &insn, op, insn.operand_count)) &&
		    !ZYAN_FAILED(zydis_target(&insn, op, (ZyanU64)p, &to))) {
			d.nr_branches++;
			for (unsigned i = 0; i < o.nr_sites; i++)
				if ((const u8 *)to > o.site[i].win &&
				    (const u8 *)to <= o.site[i].insn + o.site[i].own)
					fail_msg("%s: branch at 0x%zx into the window at 0x%zx", path,
						 (size_t)(p - o.text),
						 (size_t)(o.site[i].win - o.text));
		}
		p += insn.length;
	}
	for (unsigned i = 0; i < o.nr_sites; i++) {
		const struct patch_site *s = &o.site[i];
		unsigned n = 0;

		assert_int_equal(d.starts[s->win - o.text], 1);
		assert_int_equal(d.starts[s->insn - o.text], 1);
		for (p = s->win; p < s->insn; p++)
			n += d.starts[p - o.text];
		assert_in_range(n, 1, 8);
		if (s->nr != PATCH_NR_ANY && s->len == 5)
			assert_int_equal(n, 1);
	}
	for (p = o.text + 32; p < o.end - 2; p++)
		if (p[0] == 0x0f && p[1] == 0x05 && d.starts[p - o.text] && !site_at(&o, p))
			unseen += report_unseen(&o, &d, p, path);
	printf("%s: %u sites of %zu syscall instructions, %zu branches\n", path, o.nr_sites,
	       d.nr_syscalls, d.nr_branches);
	free(d.starts);
	assert_int_equal(unseen, 0);
}

/* Where this process has them. */
static const char *path_of(const void *addr)
{
	Dl_info i;

	return dladdr(addr, &i) ? i.dli_fname : "";
}

static void test_libc(void **state)
{
	if (!zydis_init || !zydis_insn || !&gnu_get_libc_version)
		skip();
	check(path_of(&gnu_get_libc_version), HOOK_SITE_LIBC);
}

static void test_ldso(void **state)
{
	if (!zydis_init || !zydis_insn || !&__tls_get_addr)
		skip();
	check(path_of(&__tls_get_addr), HOOK_SITE_LDSO);
}

static void test_others(void **state)
{
	char *list = getenv("PATCH_DECODE"), *file;

	if (!zydis_init || !zydis_insn || !list) {
		printf("no other libraries given\n");
		return;
	}
	for (file = strtok(list, " "); file; file = strtok(NULL, " "))
		check(file, strstr(file, "ld-") ? HOOK_SITE_LDSO : HOOK_SITE_LIBC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_libc),
		cmocka_unit_test(test_ldso),
		cmocka_unit_test(test_others),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}

#else

static void test_decode(void **state)
{
	printf("no libzydis, or not x86-64\n");
	skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_decode) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
