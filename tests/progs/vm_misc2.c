/* SPDX-License-Identifier: MIT */
/*
 * vm_misc2 - the rarer VM calls on swapped memory: mseal, pkey_mprotect, mremap of several mappings,
 * mremap with an old size of 0, one call across mappings of different kinds, memory policies,
 * System V shared memory, remap_file_pages, membarrier, perf buffers, clear_refs, KSM advice,
 * DONTNEED_LOCKED, advice for another process.
 *
 *     vm_misc2 seal|pkey|multi|oldzero|across|numa|shm|remapfile|barrier|perf|refs|merge|locked|other
 */
#include "pt.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/shm.h>
#include <sys/uio.h>

#define N    (16 * PT_MIB)
#define RW   (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

static char *fresh(u64 tag)
{
	char *p = pt_map_huge_aligned(N);

	pt_fill(p, N, tag);
	pt_evict(p, N);
	return p;
}

static bool mapped(void *p)
{
	unsigned char v;

	return pt_sys6(SYS_mincore, (long)p, PT_PAGE, (long)&v, 0, 0, 0) == 0;
}

/* ---- mseal: nothing may change the mapping, contents come and go as ever ---- */

#define SYS_MSEAL 462

static void seal(void)
{
	/* sealed while in memory, sealed when swapped, sealed before it is ever touched */
	for (int when = 0; when < 3; when++) {
		char *p = pt_map_huge_aligned(N);
		size_t m = 4 * PT_MIB;
		pid_t pid;

		if (when < 2)
			pt_fill(p, N, 1);
		if (when == 1)
			pt_evict(p, N);
		/* the second quarter stays open */
		if (syscall(SYS_MSEAL, p, m, 0) || syscall(SYS_MSEAL, p + 2 * m, 2 * m, 0)) {
			fprintf(stderr, "no mseal: %s\n", strerror(errno));
			exit(77);
		}
		if (when == 2)
			pt_fill(p, N, 1);
		pt_evict(p, m);
		pt_evict(p, N);
		CHECK(munmap(p, PT_PAGE) == -1 && errno == EPERM);
		CHECK(munmap(p, N) == -1 && errno == EPERM);
		CHECK(mprotect(p + PT_PAGE, PT_PAGE, PROT_READ) == -1 && errno == EPERM);
		CHECK(mremap(p, m, 2 * m, MREMAP_MAYMOVE) == MAP_FAILED && errno == EPERM);
		CHECK(mremap(p, m, m, MREMAP_MAYMOVE | MREMAP_FIXED, p + m) == MAP_FAILED);
		CHECK(mmap(p + PT_PAGE, PT_PAGE, RW, ANON | MAP_FIXED, -1, 0) == MAP_FAILED &&
		      errno == EPERM);
		pt_verify(p, m, 1);
		pt_verify_at(p + 2 * m, 2 * m, 1, 2 * m / PT_PAGE);
		/* advice that drops is allowed while it is writable */
		pt_evict(p, N);
		CHECK(madvise(p + m / 2, m / 4, MADV_DONTNEED) == 0);
		pt_verify(p, m / 2, 1);
		pt_verify_zero(p + m / 2, m / 4);
		pt_verify_at(p + m * 3 / 4, m / 4, 1, m * 3 / 4 / PT_PAGE);
		pt_verify_at(p + m, N - m, 1, m / PT_PAGE);
		/* the open part lives on: unmapped, mapped, moved into */
		pt_evict(p, N);
		CHECK(munmap(p + m, m) == 0 && !mapped(p + m));
		CHECK(mmap(p + m, m, RW, ANON | MAP_FIXED, -1, 0) == p + m);
		pt_verify_zero(p + m, m);
		pt_fill_at(p + m, m, 2, 0);
		/* the child has it all, and may not unmap it either */
		pt_evict(p, N);
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			pt_verify_at(p + 2 * m, 2 * m, 1, 2 * m / PT_PAGE);
			pt_verify_at(p + m, m, 2, 0);
			CHECK(munmap(p, PT_PAGE) == -1 && errno == EPERM);
			pt_fill(p, N, 5);
			pt_evict_share(p, N, 30);
			pt_verify(p, N, 5);
			_exit(0);
		}
		pt_reap(pid);
		pt_verify_at(p + 2 * m, 2 * m, 1, 2 * m / PT_PAGE);
		pt_fill(p, N, 9); /* and written again */
		pt_evict(p, N);
		pt_verify(p, N, 9);
	}
}

static void pkey(void)
{
	char *p = fresh(1);
	int key = pkey_alloc(0, 0);

	pt_say("  pkey_alloc: %d", key < 0 ? -errno : 0);
	/* with the key -1 it is mprotect, also where there are no keys */
	CHECK(pkey_mprotect(p + PT_MIB, N / 2, PROT_READ, -1) == 0);
	CHECK(pt_touch(p + PT_MIB, true) == SIGSEGV);
	pt_verify(p, N, 1);
	pt_evict(p, PT_MIB);
	CHECK(pkey_mprotect(p + PT_MIB, N / 2, PROT_NONE, -1) == 0);
	CHECK(pt_touch(p + PT_MIB, false) == SIGSEGV && pt_fault_code == SEGV_ACCERR);
	CHECK(pkey_mprotect(p, N, RW, -1) == 0);
	pt_verify(p, N, 1);
	if (key > 0) {
		pt_evict(p, N);
		CHECK(pkey_mprotect(p + PT_MIB, N / 2, RW, key) == 0);
		CHECK(pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
		for (size_t o = 0; o < N / 2; o += 97 * PT_PAGE)
			CHECK(pt_touch(p + PT_MIB + o, false) == SIGSEGV);
		pt_press();
		CHECK(pkey_set(key, PKEY_DISABLE_WRITE) == 0);
		CHECK(pt_touch(p + PT_MIB, true) == SIGSEGV);
		pt_verify(p, N, 1);
		CHECK(pkey_set(key, 0) == 0);
		pt_evict(p, N);
		pt_verify(p, N, 1);
		CHECK(pkey_mprotect(p, N, RW, 0) == 0 && pkey_free(key) == 0);
	}
	CHECK(munmap(p, N) == 0);
}

/* Linux 6.17: one mremap moves several mappings, holes between them included. */
static void multi(void)
{
	size_t m = 4 * PT_MIB;

	for (int round = 0; round < 3; round++) {
		char *p = fresh(1), *to = mmap(NULL, N, PROT_NONE, ANON, -1, 0), *q;

		CHECK(to != MAP_FAILED);
		if (round == 1)
			pt_verify(p, N / 2 + PT_MIB, 1);
		CHECK(mprotect(p + m, m, PROT_READ) == 0); /* rw, r, rw */
		if (round == 2)
			CHECK(munmap(p + 2 * m, PT_MIB) == 0);
		q = mremap(p, N, N, MREMAP_MAYMOVE | MREMAP_FIXED, to);
		pt_say("  several mappings: %d", q == MAP_FAILED ? -errno : 0);
		if (q != MAP_FAILED) {
			CHECK(q == to);
			CHECK(!mapped(p) && !mapped(p + m) && !mapped(p + N - PT_PAGE));
			p = q;
		}
		pt_verify(p, 2 * m, 1);
		CHECK(pt_touch(p + m, true) == SIGSEGV);
		if (round < 2)
			pt_verify_at(p + 2 * m, PT_MIB, 1, 2 * m / PT_PAGE);
		pt_verify_at(p + 2 * m + PT_MIB, 2 * m - PT_MIB, 1, (2 * m + PT_MIB) / PT_PAGE);
		CHECK(mprotect(p + m, m, RW) == 0);
		pt_press();
		pt_verify(p, 2 * m, 1);
		CHECK(munmap(p, N) == 0);
		munmap(to, N);
	}
}

static void oldzero(void)
{
	char *p = fresh(1), *sh, *q;

	q = mremap(p, 0, N, MREMAP_MAYMOVE);
	pt_say("  private: %d", q == MAP_FAILED ? -errno : 0);
	CHECK(q == MAP_FAILED);
	CHECK(mremap(p, 0, N, MREMAP_MAYMOVE | MREMAP_FIXED, p + N / 2) == MAP_FAILED);
	pt_verify(p, N, 1);
	sh = mmap(NULL, N / 2, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(sh != MAP_FAILED);
	pt_fill(sh, N / 2, 2);
	pt_evict(p, N);
	/* the second view of shared memory, put over swapped memory */
	q = mremap(sh, 0, N / 2, MREMAP_MAYMOVE | MREMAP_FIXED, p + N / 4);
	CHECK(q == p + N / 4);
	pt_verify(q, N / 2, 2);
	pt_fill(q, N / 2, 3);
	pt_verify(sh, N / 2, 3);
	pt_press();
	pt_verify(q, N / 2, 3);
	pt_verify(p, N / 4, 1);
	pt_verify_at(p + 3 * N / 4, N / 4, 1, 3 * N / 4 / PT_PAGE);
	CHECK(munmap(p, N) == 0 && munmap(sh, N / 2) == 0);
}

/* anonymous | shared | private file | anonymous read-only | anonymous, in 16 MiB, all swapped that
 * can be */
static int mixed_fd;
static char *mixed(void)
{
	size_t m = 2 * PT_MIB;
	char *p = pt_map_huge_aligned(N);

	mixed_fd = memfd_create("mixed", 0);
	CHECK(mixed_fd >= 0 && ftruncate(mixed_fd, 2 * m) == 0);
	CHECK(mmap(p + 2 * m, m, RW, MAP_SHARED | MAP_FIXED, mixed_fd, 0) == p + 2 * m);
	CHECK(mmap(p + 3 * m, m, RW, MAP_PRIVATE | MAP_FIXED, mixed_fd, m) == p + 3 * m);
	pt_fill_at(p + 2 * m, m, 50, 0);
	CHECK(pwrite(mixed_fd, p + 2 * m, m, m) == (ssize_t)m);
	pt_fill(p, 2 * m, 1);
	pt_fill_at(p + 3 * m, m / 2, 1, 3 * m / PT_PAGE); /* copies of half of the file's pages */
	pt_fill_at(p + 4 * m, 4 * m, 1, 4 * m / PT_PAGE);
	CHECK(mprotect(p + 4 * m, m, PROT_READ) == 0);
	pt_evict(p, 2 * m);
	pt_evict(p + 5 * m, 3 * m);
	return p;
}

static void mixed_verify(char *p)
{
	size_t m = 2 * PT_MIB;

	pt_verify(p, 2 * m, 1);
	pt_verify_at(p + 2 * m, m, 50, 0);
	pt_verify_at(p + 3 * m, m / 2, 1, 3 * m / PT_PAGE);
	pt_verify_at(p + 3 * m + m / 2, m / 2, 50, m / 2 / PT_PAGE);
	pt_verify_at(p + 4 * m, 4 * m, 1, 4 * m / PT_PAGE);
}

static void across(void)
{
	static unsigned char vec[N / PT_PAGE];
	size_t m = 2 * PT_MIB;
	char *p = mixed();

	CHECK(mincore(p, N, vec) == 0);
	CHECK(msync(p, N, MS_SYNC) == 0);
	CHECK(madvise(p, N, MADV_WILLNEED) == 0);
	mixed_verify(p);
	CHECK(madvise(p, N, MADV_PAGEOUT) == 0);
	CHECK(madvise(p, N, MADV_COLD) == 0);
	mixed_verify(p);
	pt_evict(p, 2 * m);
	CHECK(madvise(p, N, MADV_POPULATE_READ) == 0);
	pt_evict(p, 2 * m);
	CHECK(madvise(p, N, MADV_POPULATE_WRITE) == -1 && errno == EINVAL); /* a part is read-only */
	mixed_verify(p);
	pt_evict(p + 5 * m, 3 * m);
	CHECK(mprotect(p, N, PROT_NONE) == 0);
	CHECK(pt_touch(p, false) == SIGSEGV && pt_touch(p + 5 * m, false) == SIGSEGV);
	pt_press();
	CHECK(mprotect(p, N, PROT_READ) == 0);
	mixed_verify(p);
	CHECK(mprotect(p, N, RW) == 0);
	pt_evict(p, 2 * m);
	/* locked as a whole, and let go */
	CHECK(mlock(p, N) == 0);
	CHECK(pt_absent(p, 2 * m) == 0 && pt_absent(p + 5 * m, 3 * m) == 0);
	pt_press_n(8 * PT_MIB);
	CHECK(pt_absent(p, 2 * m) == 0 && pt_absent(p + 5 * m, 3 * m) == 0);
	CHECK(madvise(p, N, MADV_DONTNEED) == -1 && errno == EINVAL);
	CHECK(munlock(p, N) == 0);
	mixed_verify(p);
	pt_evict(p, 2 * m);
	/* dropped: anonymous zero, file pages as in the file, shared as it was */
	CHECK(madvise(p + m, N - 2 * m, MADV_DONTNEED) == 0);
	pt_verify(p, m, 1);
	pt_verify_zero(p + m, m);
	pt_verify_at(p + 2 * m, m, 50, 0);
	pt_verify_at(p + 3 * m, m, 50, 0);
	pt_verify_zero(p + 4 * m, 3 * m);
	pt_verify_at(p + 7 * m, m, 1, 7 * m / PT_PAGE);
	CHECK(munmap(p + m / 2, N - m) == 0);
	CHECK(mapped(p) && !mapped(p + m) && !mapped(p + 3 * m) && !mapped(p + 7 * m));
	pt_verify(p, m / 2, 1);
	pt_verify_at(p + N - m / 2, m / 2, 1, (N - m / 2) / PT_PAGE);
	CHECK(munmap(p, N) == 0);
	close(mixed_fd);
}

/* ---- memory policies; constants of <numaif.h> ---- */

#define MPOL_PREFERRED_	 1
#define MPOL_BIND_	 2
#define MPOL_INTERLEAVE_ 3
#define MPOL_MF_STRICT_	 1
#define MPOL_MF_MOVE_	 2
#define MPOL_F_NODE_	 1
#define MPOL_F_ADDR_	 2

static void numa(void)
{
	static void *pages[64];
	static int status[64];
	unsigned long mask = 1, got = 0;
	char *p = fresh(1);
	int mode = -1, node = -1;

	if (syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) && errno == ENOSYS)
		exit(77);
	CHECK(syscall(SYS_mbind, p + PT_MIB, N / 2, MPOL_BIND_, &mask, 64, 0) == 0);
	pt_verify(p, N, 1);
	pt_evict(p, N);
	CHECK(syscall(SYS_mbind, p + 3 * PT_MIB, N / 4, MPOL_PREFERRED_, &mask, 64,
		      MPOL_MF_MOVE_ | MPOL_MF_STRICT_) == 0);
	/* the node of a page: brings it in */
	CHECK(syscall(SYS_get_mempolicy, &node, NULL, 0, p + N / 2, MPOL_F_NODE_ | MPOL_F_ADDR_) ==
	      0);
	CHECK(node == 0);
	CHECK(syscall(SYS_get_mempolicy, &mode, &got, 64, p + 2 * PT_MIB, MPOL_F_ADDR_) == 0);
	CHECK(mode == MPOL_BIND_ && got == 1);
	pt_verify(p, N, 1);
	pt_evict(p, N);
	for (int i = 0; i < 64; i++) {
		pages[i] = p + i * (N / 64);
		status[i] = 99;
	}
	CHECK(syscall(SYS_move_pages, 0, 64, pages, NULL, status, 0) == 0);
	for (int i = 0; i < 64; i++)
		CHECKF(status[i] == 0 || (status[i] == -ENOENT && pt_swapping()), "status %d",
		       status[i]);
	for (int i = 0; i < 64; i++)
		CHECK(pt_touch(pages[i], false) == 0);
	for (int i = 0; i < 64; i++)
		((int *)status)[i] = 0;
	int nodes[64] = { 0 };
	CHECK(syscall(SYS_move_pages, 0, 64, pages, nodes, status, MPOL_MF_MOVE_) >= 0);
	CHECK(syscall(SYS_migrate_pages, 0, 64, &mask, &mask) >= 0);
	pt_verify(p, N, 1);
	CHECK(syscall(SYS_set_mempolicy, MPOL_INTERLEAVE_, &mask, 64) == 0);
	pt_fill(p, N, 2);
	pt_evict(p, N);
	pt_verify(p, N, 2);
	CHECK(syscall(SYS_set_mempolicy, 0, NULL, 0) == 0);
	/* policies make several mappings of one: moved and unmapped part by part */
	char *q = mremap(p + PT_MIB, PT_MIB, PT_MIB, MREMAP_MAYMOVE | MREMAP_FIXED,
			 pt_map(PT_MIB));
	CHECK(q != MAP_FAILED);
	pt_verify_at(q, PT_MIB, 2, PT_MIB / PT_PAGE);
	CHECK(munmap(q, PT_MIB) == 0 && munmap(p, N) == 0);
}

static void shm(void)
{
	size_t m = 4 * PT_MIB;
	int id = shmget(IPC_PRIVATE, m, IPC_CREAT | 0600);
	char *p, *s;
	pid_t pid;

	if (id < 0 && errno == ENOSYS)
		exit(77);
	CHECK(id >= 0);
	p = fresh(1);
	s = shmat(id, p + m, SHM_REMAP); /* over swapped memory */
	CHECK(s == p + m);
	CHECK(shmctl(id, IPC_RMID, NULL) == 0);
	pt_verify_zero(s, m);
	pt_verify(p, m, 1);
	pt_fill(s, m, 2);
	pt_evict(p, m);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		pt_verify(s, m, 2);
		pt_fill(s, m, 3);
		pt_verify(p, m, 1);
		_exit(0);
	}
	pt_reap(pid);
	pt_verify(s, m, 3);
	CHECK(shmdt(s) == 0 && !mapped(s));
	CHECK(mmap(s, m, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == s);
	pt_verify_zero(s, m);
	pt_fill(s, m, 4);
	pt_evict(p, N);
	pt_verify(p, m, 1);
	pt_verify(s, m, 4);
	pt_verify_at(p + 2 * m, 2 * m, 1, 2 * m / PT_PAGE);
	CHECK(munmap(p, N) == 0);
}

static void remapfile(void)
{
	size_t m = 4 * PT_MIB;
	char *p = fresh(1);
	int fd = memfd_create("x", 0), r;

	CHECK(fd >= 0 && ftruncate(fd, m) == 0);
	CHECK(mmap(p + m, m, RW, MAP_SHARED | MAP_FIXED, fd, 0) == p + m);
	pt_fill_at(p + m, m, 2, 0);
	r = remap_file_pages(p + m, PT_MIB, 0, 2 * PT_MIB / PT_PAGE, 0);
	pt_say("  remap_file_pages: %d", r ? -errno : 0);
	if (!r)
		pt_verify_at(p + m, PT_MIB, 2, 2 * PT_MIB / PT_PAGE);
	CHECK(remap_file_pages(p, PT_MIB, 0, 0, 0) == -1 && errno == EINVAL); /* private */
	pt_press();
	pt_verify(p, m, 1);
	pt_verify_at(p + 2 * m, 2 * m, 1, 2 * m / PT_PAGE);
	CHECK(munmap(p, N) == 0);
	close(fd);
}

static void barrier(void)
{
	char *p = fresh(1);
	struct pt_churn c;
	long q = syscall(SYS_membarrier, 0, 0, 0);

	if (q < 0)
		exit(77);
	pt_say("  membarrier: 0x%lx", q);
	pt_churn_start(&c, N);
	CHECK(syscall(SYS_membarrier, 1 << 4, 0, 0) == 0); /* REGISTER_PRIVATE_EXPEDITED */
	for (int i = 0; i < 2000; i++)
		CHECK(syscall(SYS_membarrier, 1 << 3, 0, 0) == 0);
	CHECK(syscall(SYS_membarrier, 1 << 6, 0, 0) == 0); /* .._SYNC_CORE */
	for (int i = 0; i < 200; i++)
		CHECK(syscall(SYS_membarrier, 1 << 5, 0, 0) == 0);
	CHECK(syscall(SYS_membarrier, 1 << 2, 0, 0) == 0 && syscall(SYS_membarrier, 1 << 1, 0, 0) == 0);
	pt_churn_stop(&c);
	pt_verify(p, N, 1);
	CHECK(munmap(p, N) == 0);
}

static void perf(void)
{
	struct perf_event_attr *a;
	struct perf_event_mmap_page *ring;
	char *p = fresh(1);
	u64 *count;
	int fd;

	a = (void *)(p + 5 * PT_PAGE); /* the attributes in swapped memory */
	count = (u64 *)(p + 8 * PT_MIB);
	memset(a, 0, sizeof(*a));
	a->type = PERF_TYPE_SOFTWARE;
	a->size = sizeof(*a);
	a->config = PERF_COUNT_SW_CPU_CLOCK;
	a->sample_period = 100000;
	a->sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR | PERF_SAMPLE_STACK_USER;
	a->sample_stack_user = 4096;
	a->exclude_kernel = 1;
	pt_evict(p, N);
	fd = syscall(SYS_perf_event_open, a, 0, -1, -1, 0);
	if (fd < 0) {
		fprintf(stderr, "no perf_event_open: %s\n", strerror(errno));
		exit(77);
	}
	ring = mmap(NULL, 9 * PT_PAGE, RW, MAP_SHARED, fd, 0);
	CHECK(ring != MAP_FAILED);
	for (int i = 0; i < 3; i++) {
		pt_evict(p, N);
		CHECK(read(fd, count, sizeof(*count)) == sizeof(*count) && *count > 0);
		pt_verify_at(p + 9 * PT_MIB, N - 9 * PT_MIB, 1, 9 * PT_MIB / PT_PAGE);
	}
	CHECK(ring->data_head > 0);
	CHECK(munmap(ring, 9 * PT_PAGE) == 0);
	close(fd);
	CHECK(munmap(p, N) == 0);
}

static void refs(void)
{
	static const char what[] = "1345";
	char *p = fresh(1);

	for (int round = 0; round < 2; round++)
		for (int i = 0; what[i]; i++) {
			int fd = open("/proc/self/clear_refs", O_WRONLY);

			CHECK(fd >= 0 && write(fd, &what[i], 1) == 1);
			close(fd);
			pt_verify(p, N / 2, 1);
			pt_evict(p, N);
			pt_fill(p, PT_MIB, 1);
			pt_verify(p, N, 1);
		}
	CHECK(munmap(p, N) == 0);
}

/* Equal pages, offered to KSM; whether it runs is the machine's business. */
static void merge(void)
{
	char *p = fresh(1);

	CHECK(madvise(p, N, MADV_MERGEABLE) == 0 || errno == EINVAL);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < N / PT_PAGE; i++)
			pt_fill_page(p + i * PT_PAGE, 7 + round, i % 8);
		usleep(300000);
		pt_press();
		pt_evict_share(p, N, 20);
		for (size_t i = 0; i < N / PT_PAGE; i++)
			pt_verify_at(p + i * PT_PAGE, PT_PAGE, 7 + round, i % 8);
		for (size_t i = 0; i < N / PT_PAGE; i += 16) /* written: own again */
			pt_fill_page(p + i * PT_PAGE, 90, i);
		pt_press();
		for (size_t i = 0; i < N / PT_PAGE; i++)
			pt_verify_at(p + i * PT_PAGE, PT_PAGE, i % 16 ? 7 + round : 90,
				     i % 16 ? i % 8 : i);
	}
	CHECK(madvise(p, N, MADV_UNMERGEABLE) == 0 || errno == EINVAL);
	pt_verify_at(p + PT_PAGE, PT_PAGE, 9, 1);
	CHECK(munmap(p, N) == 0);
}

static void locked(void)
{
	char *p = fresh(1);
	size_t n = 4 * PT_MIB;

	CHECK(mlock(p, n) == 0);
	CHECK(madvise(p, n, MADV_DONTNEED) == -1 && errno == EINVAL);
	pt_verify(p, n, 1);
	CHECK(madvise(p, n / 2, 24 /* DONTNEED_LOCKED */) == 0);
	pt_verify_zero(p, n / 2);
	pt_verify_at(p + n / 2, n / 2, 1, n / 2 / PT_PAGE);
	pt_fill(p, n / 2, 2);
	pt_press();
	pt_press();
	CHECK(pt_absent(p, n) == 0); /* locked still */
	pt_verify(p, n / 2, 2);
	CHECK(munlock(p, n) == 0);
	pt_evict(p, N);
	CHECK(madvise(p, N, 24) == 0);
	pt_verify_zero(p, N);
	/* locked on fault, partly touched, then locked whole */
	CHECK(mlock2(p, n, MLOCK_ONFAULT) == 0);
	pt_fill(p, PT_MIB, 3);
	pt_press();
	CHECK(pt_absent(p, PT_MIB) == 0);
	CHECK(mlock(p, n) == 0);
	CHECK(pt_absent(p, n) == 0);
	pt_verify(p, PT_MIB, 3);
	pt_verify_zero(p + PT_MIB, n - PT_MIB);
	CHECK(munlock(p, N) == 0 && munmap(p, N) == 0);
}

/* A child with swapped memory; the parent advises it. */
static void other(void)
{
	static const int advice[] = { MADV_PAGEOUT, MADV_COLD, MADV_WILLNEED, MADV_COLLAPSE };
	int go[2], done[2], fd;
	char *p = pt_map_huge_aligned(N), c = 0;
	pid_t pid;

	CHECK(pipe(go) == 0 && pipe(done) == 0);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		for (size_t k = 0; k < 2 * sizeof(advice) / sizeof(*advice); k++) {
			pt_fill(p, N, k);
			if (k & 1)
				pt_evict(p, N);
			CHECK(write(done[1], &c, 1) == 1 && read(go[0], &c, 1) == 1);
			pt_verify(p, N, k);
			pt_evict(p, N);
			pt_verify(p, N, k);
		}
		_exit(0);
	}
	fd = syscall(SYS_pidfd_open, pid, 0);
	CHECK(fd >= 0);
	for (size_t k = 0; k < 2 * sizeof(advice) / sizeof(*advice); k++) {
		struct iovec iov[2] = { { p, N / 4 }, { p + N / 2, N / 4 } };
		int a = advice[k / 2];
		long r;

		CHECK(read(done[0], &c, 1) == 1);
		r = syscall(SYS_process_madvise, fd, iov, 2, a, 0);
		if (a != MADV_COLLAPSE) /* which may find no huge page */
			pt_say("  process_madvise %d of another: %ld", a, r < 0 ? -errno : r);
		CHECK(write(go[1], &c, 1) == 1);
	}
	pt_reap(pid);
	close(fd);
	CHECK(munmap(p, N) == 0);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "";

	pt_catch_faults();
	PT_RUN(how, seal);
	PT_RUN(how, pkey);
	PT_RUN(how, multi);
	PT_RUN(how, oldzero);
	PT_RUN(how, across);
	PT_RUN(how, numa);
	PT_RUN(how, shm);
	PT_RUN(how, remapfile);
	PT_RUN(how, barrier);
	PT_RUN(how, perf);
	PT_RUN(how, refs);
	PT_RUN(how, merge);
	PT_RUN(how, locked);
	PT_RUN(how, other);
	return 2;
}
