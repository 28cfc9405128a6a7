/* SPDX-License-Identifier: MIT */
/*
 * patchwork - memory in many small mappings: blocks with a page between them that nobody may touch, as
 * coroutine stacks and allocators with guard pages make it. 2 MiB hold a hundred mappings and more.
 *
 *     patchwork none|guard|readonly MIB PAGES      PAGES to a block, then a page of PROT_NONE, a guard
 *                                                  (MADV_GUARD_INSTALL), or one that is only read
 */
#include "pt.h"

int main(int argc, char **argv)
{
	size_t pages, block, nr;
	bool none, guard;
	char **base;

	CHECK(argc == 4);
	none = !strcmp(argv[1], "none");
	guard = !strcmp(argv[1], "guard");
	pages = strtoul(argv[3], NULL, 0);
	block = (pages + 1) * PT_PAGE;
	nr = strtoul(argv[2], NULL, 0) * PT_MIB / block;
	base = calloc(nr, sizeof(*base));
	CHECK(base && nr);
	for (size_t i = 0; i < nr; i++) {
		base[i] = pt_map(block);
		pt_fill_at(base[i], block, 1, i * (pages + 1));
		if (guard && madvise(base[i] + pages * PT_PAGE, PT_PAGE, PT_MADV_GUARD_INSTALL)) {
			fprintf(stderr, "no MADV_GUARD_INSTALL\n");
			return 77;
		}
		if (!guard)
			CHECK(mprotect(base[i] + pages * PT_PAGE, PT_PAGE, none ? PROT_NONE : PROT_READ) == 0);
	}
	for (u64 tag = 1; tag < 4; tag++) {
		for (size_t i = 0; i < nr; i++) {
			pt_verify_at(base[i], pages * PT_PAGE, tag, i * (pages + 1));
			pt_fill_at(base[i], pages * PT_PAGE, tag + 1, i * (pages + 1));
		}
	}
	/* What could not be touched meanwhile has its contents, or as a guard has lost them. */
	for (size_t i = 0; i < nr; i++) {
		char *last = base[i] + pages * PT_PAGE;

		if (guard)
			CHECK(madvise(last, PT_PAGE, PT_MADV_GUARD_REMOVE) == 0 && pt_page_zero(last));
		else if (none)
			CHECK(mprotect(last, PT_PAGE, PROT_READ | PROT_WRITE) == 0);
		if (!guard)
			pt_verify_at(last, PT_PAGE, 1, i * (pages + 1) + pages);
		CHECK(munmap(base[i], block) == 0);
	}
	printf("ok %zu blocks\n", nr);
	return 0;
}
