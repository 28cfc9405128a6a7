/* SPDX-License-Identifier: MIT */
/* kaccess.h - memory that the kernel is to read and write, for kaccess2 and kaccess3. */
#ifndef KACCESS_H
#define KACCESS_H

#include "pt.h"

#include <sys/mman.h>

static char *mem;
static const size_t size = 40 * PT_MIB;

/* Objects each in a page of their own, 16 pages apart. */
static size_t spot_next;
PT_UNUSED static void *spot(size_t len)
{
	char *p = mem + spot_next + 64;

	spot_next += (len + 64 + PT_PAGE - 1) / PT_PAGE * PT_PAGE + 16 * PT_PAGE;
	CHECK(spot_next < size - PT_MIB);
	memset(p, 0, len);
	return p;
}

/* Starts over: everything filled, then spots are taken and written, then out() */
PT_UNUSED static void spots(void)
{
	spot_next = 0;
	pt_fill(mem, size, 1);
}

PT_UNUSED static void out(void)
{
	pt_evict_share(mem, size, 80);
}

/* The pages between spots, and the last MiB. */
PT_UNUSED static void spots_verify(void)
{
	pt_verify_at(mem + size - PT_MIB, PT_MIB, 1, (size - PT_MIB) / PT_PAGE);
	pt_verify_at(mem + 5 * PT_PAGE, 4 * PT_PAGE, 1, 5);
}

PT_UNUSED static int memfd(size_t len, u64 tag)
{
	static char page[PT_PAGE] __attribute__((aligned(4096)));
	int fd = memfd_create("kaccess", 0);

	CHECK(fd >= 0);
	for (size_t i = 0; i < len / PT_PAGE; i++) {
		pt_fill_page(page, tag, i);
		CHECK(write(fd, page, PT_PAGE) == PT_PAGE);
	}
	return fd;
}

#endif
