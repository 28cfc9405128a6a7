/* SPDX-License-Identifier: MIT */
/*
 * sparse - a page here and one there, as tables with open addressing and shadow memories have: what is noted for each
 * 2 MiB must not cost more than the pages.
 *
 *     sparse PAGES STEP    so many pages, each STEP pages after the one before
 */
#include "pt.h"

int main(int argc, char **argv)
{
	size_t n, step;
	char *p;

	if (argc != 3)
		DIE("PAGES STEP");
	n = (size_t)atol(argv[1]);
	step = (size_t)atol(argv[2]) * PT_PAGE;
	p = mmap(NULL, n * step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p != MAP_FAILED);
	CHECK(madvise(p, n * step, MADV_NOHUGEPAGE) == 0);
	for (u64 round = 0; round < 3; round++) {
		for (size_t i = 0; i < n; i++) {
			if (round && pt_page_wrong(p + i * step, round, i))
				DIE("round %lu: page %zu is wrong", round, i);
			pt_fill_page(p + i * step, round + 1, i);
		}
	}
	/* Between them nothing has come to be. */
	for (size_t i = 0; step > PT_PAGE && i < n; i += 97)
		CHECK(pt_page_zero(p + i * step + PT_PAGE));
	for (size_t i = 0; i < n; i += 2)
		CHECK(munmap(p + i * step, step) == 0);
	for (size_t i = 1; i < n; i += 2)
		if (pt_page_wrong(p + i * step, 3, i))
			DIE("page %zu is wrong after its neighbours went", i);
	puts("ok");
	return 0;
}
