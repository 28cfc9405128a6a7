/* SPDX-License-Identifier: MIT */
/*
 * bench_kernel.c - a sample of the kernel's side: plain anonymous memory, swapped to the zram
 * device that the guardian has switched on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "bench_peer.h"

#define PM_SWAP (1UL << 62) /* in /proc/PID/pagemap: the page is in swap */

/* Pages of the range that are in swap; -1 when the kernel does not tell. */
static int64_t count_swapped(const void *addr, uint64_t size)
{
	static uint64_t buf[4096];
	uint64_t first = (uintptr_t)addr / BENCH_PAGE, left = size / BENCH_PAGE;
	int64_t n = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	while (left) {
		size_t want = left < 4096 ? left : 4096;
		ssize_t got =
			pread(fd, buf, want * sizeof(buf[0]), (off_t)(first * sizeof(buf[0])));

		if (got <= 0) {
			n = -1;
			break;
		}
		got /= (ssize_t)sizeof(buf[0]);
		for (ssize_t i = 0; i < got; i++)
			n += !!(buf[i] & PM_SWAP);
		first += (uint64_t)got;
		left -= (uint64_t)got;
	}
	close(fd);
	return n;
}

/* Memory that the zram device uses: compressed bytes and the allocator's overhead. */
uint64_t bench_zram_pool(const struct bench_req *req)
{
	char path[128], text[256];
	unsigned long orig, compr, used;

	snprintf(path, sizeof(path), "%s/mm_stat", req->zram_sys);
	if (peer_read(path, text, sizeof(text)) ||
	    sscanf(text, "%lu %lu %lu", &orig, &compr, &used) != 3)
		return 0;
	return used;
}

static uint64_t read_number(const char *path)
{
	char text[64];

	return *path && !peer_read(path, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

/* 2 MiB aligned, as pswap's regions are. */
static void *map_aligned(uint64_t size)
{
	char *p, *a;

	p = mmap(NULL, size + BENCH_PMD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	if (p == MAP_FAILED)
		return NULL;
	a = (char *)(((uintptr_t)p + BENCH_PMD - 1) & ~(BENCH_PMD - 1));
	if (a > p)
		munmap(p, (size_t)(a - p));
	munmap(a + size, (size_t)(p + BENCH_PMD - a));
	return a;
}

bool bench_enter_group(const struct bench_req *req, struct bench_sample *s)
{
	char path[300];
	int err;

	snprintf(path, sizeof(path), "%s/cgroup.procs", req->cgroup);
	err = peer_write(path, "0");
	if (err)
		bench_fail(s, "%s: %s", path, strerror(err));
	return !err;
}

/* What the group's memory is, or was at most. */
uint64_t bench_group_bytes(const struct bench_req *req, bool peak)
{
	static const char *const names[2][2] = {
		{ "memory.usage_in_bytes", "memory.max_usage_in_bytes" },
		{ "memory.current", "memory.peak" },
	};
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", req->cgroup, names[req->cgroup_v2][peak]);
	return read_number(path);
}

bool bench_kernel_page_out(const struct bench_req *req, void *addr, struct bench_sample *s)
{
	int64_t pages = (int64_t)(req->size / BENCH_PAGE), swapped;
	unsigned tries = req->kind == BENCH_PAGEOUT ? 1 : 4;
	uint64_t folios = read_number(req->folio_stat), t, cpu;

	do {
		cpu = bench_cpu();
		t = bench_now();
		if (madvise(addr, req->size, MADV_PAGEOUT)) {
			bench_fail(s, "madvise(MADV_PAGEOUT): %s", strerror(errno));
			return false;
		}
		s->value = (double)(bench_now() - t);
		s->cpu_ns = bench_cpu() - cpu;
		swapped = count_swapped(addr, req->size);
	} while (swapped < pages && --tries);
	if (swapped < pages - pages / 100) {
		bench_fail(s, "the kernel swapped only %ld of %ld pages", (long)swapped,
			   (long)pages);
		return false;
	}
	s->swapped_pages = (uint64_t)swapped;
	s->folios_out = read_number(req->folio_stat) - folios;
	s->pool_bytes = bench_zram_pool(req);
	return true;
}

/* The region, of the side's pages and filled; NULL if it cannot be. */
void *bench_map_filled(const struct bench_req *req, struct bench_sample *s)
{
	bool small = req->side == SIDE_ZRAM_4K || req->side == SIDE_ZRAM_RESIDENT_4K;
	void *addr = map_aligned(req->size);

	if (!addr) {
		bench_fail(s, "mmap: %s", strerror(errno));
		return NULL;
	}
	/* Which folios MADV_HUGEPAGE means was set by the guardian; pswap does without, too. */
	if (madvise(addr, req->size, small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE) &&
	    bench_side_kernel(req->side)) {
		bench_fail(s, "madvise: %s", strerror(errno));
		return NULL;
	}
	bench_fill_range(req->fill, addr, req->size);
	return addr;
}

void bench_kernel_worker(const struct bench_req *req, struct bench_sample *s)
{
	uint64_t folios = read_number(req->folio_stat), t, cpu;
	void *addr;

	s->limit_bytes = req->limit;
	if (*req->cgroup && !bench_enter_group(req, s))
		return;
	addr = bench_map_filled(req, s);
	if (!addr)
		return;

	if (bench_limited(req->kind)) {
		if (!bench_timed_passes(req, addr, s))
			return;
		s->swapped_pages = (uint64_t)count_swapped(addr, req->size);
		s->peak_bytes = bench_group_bytes(req, true);
		s->pool_bytes = bench_zram_pool(req);
		s->folios_out = read_number(req->folio_stat) - folios;
	} else if (!bench_kernel_page_out(req, addr, s)) {
		return;
	}
	if (req->kind == BENCH_MUNMAP) {
		cpu = bench_cpu();
		t = bench_now();
		if (munmap(addr, req->size)) {
			bench_fail(s, "munmap: %s", strerror(errno));
			return;
		}
		s->value = (double)(bench_now() - t);
		s->cpu_ns = bench_cpu() - cpu;
		s->pool_after_bytes = bench_zram_pool(req);
	}
	s->ok = true;
}
