/* SPDX-License-Identifier: MIT */
/*
 * ownuffd - the program has a userfaultfd of its own: it serves missing pages and write-protection
 * in its region, while its other memory is swapped.
 *
 *     ownuffd early    before there is pressure; the region is new
 *     ownuffd late     when memory is swapped already, on memory that was swapped
 */
#include "pt.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>

#define R (8 * PT_MIB)
static int uffd, quit[2];
static char *region;
static _Atomic int served, protected;

static void *server(void *arg)
{
	static char page[PT_PAGE] __attribute__((aligned(4096)));

	(void)arg;
	for (;;) {
		struct pollfd pfd[2] = { { .fd = uffd, .events = POLLIN },
					 { .fd = quit[0], .events = POLLIN } };
		struct uffd_msg m;

		CHECK(poll(pfd, 2, 20000) > 0);
		if (pfd[1].revents)
			return NULL;
		if (read(uffd, &m, sizeof(m)) != sizeof(m)) {
			CHECK(errno == EAGAIN);
			continue;
		}
		CHECK(m.event == UFFD_EVENT_PAGEFAULT);
		u64 a = m.arg.pagefault.address & ~(PT_PAGE - 1);

		CHECKF(a >= (u64)region && a < (u64)region + R, "a fault outside of the region");
		if (m.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP) {
			struct uffdio_writeprotect wp = { { a, PT_PAGE }, 0 };

			protected++; /* before the faulting thread goes on */
			CHECK(ioctl(uffd, UFFDIO_WRITEPROTECT, &wp) == 0);
		} else {
			struct uffdio_copy c = { .dst = a, .src = (u64)page, .len = PT_PAGE };

			pt_fill_page(page, 3, (a - (u64)region) / PT_PAGE);
			served++;
			CHECK(ioctl(uffd, UFFDIO_COPY, &c) == 0 || errno == EEXIST);
		}
	}
}

int main(int argc, char **argv)
{
	bool late = argc > 1 && !strcmp(argv[1], "late");
	size_t size = 24 * PT_MIB;
	char *mem = pt_map(size);
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP };
	struct uffdio_register reg;
	struct uffdio_writeprotect wp;
	pthread_t th;

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0) {
		fprintf(stderr, "no userfaultfd for this user\n");
		return 77;
	}
	CHECK(ioctl(uffd, UFFDIO_API, &api) == 0);
	CHECK(pipe(quit) == 0);
	if (late) {
		region = pt_map_huge_aligned(R);
		pt_fill(region, R, 9);
		pt_fill(mem, size, 1);
		pt_evict(mem, size);
		pt_evict(region, R);
		/* half of it is emptied, half keeps what it has (and must not ask the server) */
		CHECK(madvise(region, R / 2, MADV_DONTNEED) == 0);
	} else {
		region = pt_map_huge_aligned(R);
	}
	reg = (struct uffdio_register){ .range = { (u64)region, R },
					.mode = UFFDIO_REGISTER_MODE_MISSING |
						UFFDIO_REGISTER_MODE_WP };
	CHECK(ioctl(uffd, UFFDIO_REGISTER, &reg) == 0);
	PCHECK(pthread_create(&th, NULL, server, NULL));
	if (!late) {
		pt_fill(mem, size, 1);
		pt_evict(mem, size);
	}
	pt_verify(region, R / 2, 3);
	pt_verify_at(region + R / 2, R / 2, late ? 9 : 3, R / 2 / PT_PAGE);
	CHECKF(served == (int)(R / PT_PAGE / (late ? 2 : 1)), "%d faults served", served);
	pt_evict(mem, size);
	pt_verify(region, R / 2, 3);
	CHECKF(served == (int)(R / PT_PAGE / (late ? 2 : 1)), "%d faults served", served);
	/* write-protection finds exactly the pages written */
	wp = (struct uffdio_writeprotect){ { (u64)region, R / 2 }, UFFDIO_WRITEPROTECT_MODE_WP };
	CHECK(ioctl(uffd, UFFDIO_WRITEPROTECT, &wp) == 0);
	pt_press();
	for (size_t i = 0; i < R / 2 / PT_PAGE; i += 5)
		pt_fill_page(region + i * PT_PAGE, 4, i);
	CHECKF(protected == (int)((R / 2 / PT_PAGE + 4) / 5), "%d write faults", protected);
	pt_evict(mem, size);
	for (size_t i = 0; i < R / 2 / PT_PAGE; i++)
		pt_verify_at(region + i * PT_PAGE, PT_PAGE, i % 5 ? 3 : 4, i);
	pt_verify(mem, size, 1);
	/* DONTNEED in the region: asked again */
	CHECK(madvise(region, R / 4, MADV_DONTNEED) == 0);
	pt_verify(region, R / 4, 3);
	CHECK(write(quit[1], "x", 1) == 1);
	PCHECK(pthread_join(th, NULL));
	CHECK(close(uffd) == 0);
	pt_fill(region, R, 5); /* ordinary memory again */
	pt_press();
	pt_verify(region, R, 5);
	pt_say("ownuffd done");
	return 0;
}
