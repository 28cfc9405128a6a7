/* SPDX-License-Identifier: MIT */
/*
 * closefds - closes every descriptor, then goes on using swapped memory (FACTS trap 17: closing the
 * userfaultfd loses the registration, missing pages would read as zeros).
 *
 *     closefds closefrom|close_range|loop|unshare|dup2|asm
 *
 * Standard output is closed too: the verdict is the exit status.
 */
#include "pt.h"

#include <sys/resource.h>

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "closefrom";
	size_t size = 28 * PT_MIB;
	char *heap, *map = pt_map(size), *more;
	int fd;

	heap = malloc(8 * PT_MIB); /* mmapped by malloc */
	CHECK(heap);
	char *page = (char *)(((uintptr_t)heap + 4095) & ~4095UL);

	pt_fill(map, size, 1);
	pt_fill(page, 7 * PT_MIB, 2);
	pt_evict(map, size);
	if (!strcmp(how, "closefrom")) {
		closefrom(0);
	} else if (!strcmp(how, "close_range")) {
		CHECK(close_range(0, ~0U, 0) == 0);
	} else if (!strcmp(how, "unshare")) {
		CHECK(close_range(0, ~0U, CLOSE_RANGE_UNSHARE) == 0);
	} else if (!strcmp(how, "asm")) {
		CHECK(pt_sys6(SYS_close_range, 0, ~0U, 0, 0, 0, 0) == 0);
	} else if (!strcmp(how, "loop")) {
		struct rlimit rl;

		CHECK(getrlimit(RLIMIT_NOFILE, &rl) == 0);
		for (fd = 0; fd < (int)rl.rlim_max && fd < 70000; fd++)
			close(fd);
	} else if (!strcmp(how, "dup2")) { /* other files in the places of all descriptors */
		int nul = open("/dev/null", O_RDWR);

		CHECK(nul >= 0);
		for (fd = 0; fd < 1024; fd++)
			if (fd != nul)
				CHECK(dup2(nul, fd) == fd);
	} else {
		return 2;
	}
	pt_verify(map, size, 1);
	pt_verify(page, 7 * PT_MIB, 2);
	for (int v = 10; v < 12; v++) { /* new memory after it, and new descriptors */
		more = pt_map(size / 2);
		pt_fill(more, size / 2, v);
		pt_fill(map, size, v + 10);
		fd = open("/proc/self/status", O_RDONLY);
		CHECK(fd >= 0);
		pt_verify(more, size / 2, v);
		pt_verify(map, size, v + 10);
		CHECK(munmap(more, size / 2) == 0);
		CHECK(close(fd) == 0);
	}
	free(heap);
	CHECK(munmap(map, size) == 0);
	_exit(0);
}
