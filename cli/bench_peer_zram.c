/* SPDX-License-Identifier: MIT */
/*
 * bench_peer_zram.c - a zram device as swap, and the folio sizes that the kernel may use.
 *
 * The device is a new one of our own (hot_add), so that nobody else's is touched; zram0 is taken
 * only where no device can be added and zram0 is not in use.  It is swapped on with the highest
 * priority just for a sample: pswap's samples run with the machine as it was found.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "bench_peer.h"

#define THP_DIR	   "/sys/kernel/mm/transparent_hugepage"
#define HOT_ADD	   "/sys/class/zram-control/hot_add"
#define HOT_REMOVE "/sys/class/zram-control/hot_remove"

/* The first bytes of a small file, without its last newline.  0 or an errno. */
int peer_read(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0;
	ssize_t n;

	if (fd < 0)
		return errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		err = errno;
	close(fd);
	if (err)
		return err;
	while (n > 0 && buf[n - 1] == '\n')
		n--;
	buf[n] = 0;
	return 0;
}

int peer_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0)
		return errno;
	if (write(fd, text, strlen(text)) < 0)
		err = errno;
	close(fd);
	return err;
}

static int fail(struct peer_state *ps, const char *what, int err)
{
	snprintf(ps->why, sizeof(ps->why), "%s: %s", what, strerror(err));
	return -1;
}

static void nap_ms(long ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

/* Is zram0 unused: no disksize, and no swap on it. */
static bool zram0_free(void)
{
	char text[32];

	return !peer_read("/sys/block/zram0/disksize", text, sizeof(text)) && !strcmp(text, "0");
}

/* The word in brackets: "always [madvise] never". */
static bool chosen_word(const char *text, char *out, size_t size)
{
	const char *a = strchr(text, '['), *b = a ? strchr(a, ']') : NULL;

	if (!b || (size_t)(b - a) > size)
		return false;
	memcpy(out, a + 1, (size_t)(b - a - 1));
	out[b - a - 1] = 0;
	return true;
}

/* A device node for the block device, where /dev is not the kernel's own. */
static int find_node(struct peer_state *ps)
{
	char path[128], text[32];
	unsigned maj, min;
	struct stat st;
	int err;

	snprintf(path, sizeof(path), "%s/dev", ps->sys);
	err = peer_read(path, text, sizeof(text));
	if (err)
		return fail(ps, path, err);
	if (sscanf(text, "%u:%u", &maj, &min) != 2)
		return fail(ps, path, EINVAL);
	snprintf(ps->dev, sizeof(ps->dev), "/dev/zram%d", ps->zram_id);
	if (!stat(ps->dev, &st) && S_ISBLK(st.st_mode) && st.st_rdev == makedev(maj, min))
		return 0;
	snprintf(ps->dev, sizeof(ps->dev), "/dev/pswap-bench-%d", getpid());
	ps->node_made = true;
	if (mknod(ps->dev, S_IFBLK | 0600, makedev(maj, min))) {
		err = errno;
		ps->node_made = false;
		return fail(ps, ps->dev, err);
	}
	return 0;
}

static int choose_device(struct peer_state *ps)
{
	char path[128], text[128];
	int err = access(HOT_REMOVE, W_OK) ? errno : 0; /* sysfs may be read-only */

	if (!err)
		err = peer_read(HOT_ADD, text, sizeof(text)); /* reading it adds a device */
	if (!err && *text >= '0' && *text <= '9') {
		ps->zram_id = atoi(text);
		ps->added = true;
	} else if (!access("/sys/block/zram0", F_OK)) {
		if (!zram0_free())
			return fail(ps, "zram0 is in use and no other device can be added",
				    err ? err : ENODEV);
		ps->zram_id = 0;
	} else {
		return fail(ps, "no zram on this machine: " HOT_ADD, err ? err : ENODEV);
	}
	snprintf(ps->sys, sizeof(ps->sys), "/sys/block/zram%d", ps->zram_id);
	snprintf(path, sizeof(path), "%s/comp_algorithm", ps->sys);
	if (peer_read(path, text, sizeof(text)) ||
	    !chosen_word(text, ps->algorithm, sizeof(ps->algorithm)))
		snprintf(ps->algorithm, sizeof(ps->algorithm), "unknown");
	return find_node(ps);
}

/* The swap header as mkswap writes it (version 1, no bad pages): the kernel reads this page. */
static int write_header(struct peer_state *ps, uint64_t size)
{
	static unsigned char page[BENCH_PAGE];
	uint32_t info[3] = { 1, (uint32_t)(size / BENCH_PAGE - 1), 0 };
	int fd, err = 0;

	memset(page, 0, sizeof(page));
	memcpy(page + 1024, info, sizeof(info));
	memcpy(page + 1024 + sizeof(info) + 16, "pswap-bench", 11); /* after the UUID: label */
	memcpy(page + BENCH_PAGE - 10, "SWAPSPACE2", 10);
	fd = open(ps->dev, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return errno;
	if (pwrite(fd, page, sizeof(page), 0) != (ssize_t)sizeof(page) || fsync(fd))
		err = errno ? errno : EIO;
	close(fd);
	return err;
}

static void read_folio_sizes(struct peer_state *ps)
{
	glob_t g;

	ps->n_thp = 0;
	if (glob(THP_DIR "/hugepages-*kB/enabled", 0, NULL, &g))
		return;
	for (size_t i = 0; i < g.gl_pathc && ps->n_thp < PEER_MAX_THP; i++) {
		struct peer_thp *t = &ps->thp[ps->n_thp];
		char text[128];

		if (strlen(g.gl_pathv[i]) >= sizeof(t->path) ||
		    sscanf(g.gl_pathv[i], THP_DIR "/hugepages-%ukB", &t->kib) != 1 ||
		    peer_read(g.gl_pathv[i], text, sizeof(text)) ||
		    !chosen_word(text, t->found, sizeof(t->found)))
			continue;
		strcpy(t->path, g.gl_pathv[i]);
		ps->n_thp++;
	}
	globfree(&g);
}

bool peer_has_folio(const struct peer_state *ps, unsigned kib)
{
	for (unsigned i = 0; i < ps->n_thp; i++)
		if (ps->thp[i].kib == kib)
			return true;
	return false;
}

static void restore_folio_sizes(struct peer_state *ps)
{
	for (unsigned i = 0; i < ps->n_thp; i++) {
		struct peer_thp *t = &ps->thp[i];

		if (t->changed && !peer_write(t->path, t->found))
			t->changed = false;
	}
}

/*
 * Folios of exactly kib KiB for memory with MADV_HUGEPAGE, no other size; 0: no size at all.
 * `madvise` and not `always`, so that other programs see as little of it as can be.
 */
static int set_folio_size(struct peer_state *ps, unsigned kib)
{
	if (kib && !peer_has_folio(ps, kib)) {
		snprintf(ps->why, sizeof(ps->why), "this kernel has no %u KiB folios", kib);
		return -1;
	}
	for (unsigned i = 0; i < ps->n_thp; i++) {
		struct peer_thp *t = &ps->thp[i];
		const char *want = t->kib == kib ? "madvise" : "never";
		int err;

		if (!strcmp(t->found, want))
			continue;
		t->changed = true;
		err = peer_write(t->path, want);
		if (err)
			return fail(ps, t->path, err);
	}
	return 0;
}

static int swap_on(struct peer_state *ps)
{
	ps->swap_on = true;
	/* 32767: before any other swap device, whose pages then stay where they are. */
	if (swapon(ps->dev, SWAP_FLAG_PREFER | SWAP_FLAG_PRIO_MASK)) {
		int err = errno;

		ps->swap_on = false;
		return fail(ps, "swapon on zram", err);
	}
	return 0;
}

static void swap_off(struct peer_state *ps)
{
	if (!ps->swap_on)
		return;
	/* EINVAL: it was not on (we were stopped between writing it down and doing it). */
	if (!swapoff(ps->dev) || errno == EINVAL || errno == ENOENT)
		ps->swap_on = false;
}

/*
 * Finds a device that can hold size bytes twice (so that the kernel never lacks whole runs of
 * slots for big folios) and tries it once.  0, or -1 with ps->why; peer_restore() afterwards in
 * both cases.
 */
int peer_device_setup(struct peer_state *ps, uint64_t size)
{
	uint64_t disksize = 2 * size + (64UL << 20);
	char path[128], text[32];
	int err;

	read_folio_sizes(ps);
	if (choose_device(ps))
		return -1;
	snprintf(path, sizeof(path), "%s/disksize", ps->sys);
	snprintf(text, sizeof(text), "%lu", (unsigned long)disksize);
	ps->configured = true;
	err = peer_write(path, text);
	if (err)
		return fail(ps, path, err);
	err = write_header(ps, disksize);
	if (err)
		return fail(ps, ps->dev, err);
	if (swap_on(ps))
		return -1;
	swap_off(ps);
	return ps->swap_on ? fail(ps, "swapoff on zram", errno) : 0;
}

/* Sets the machine up for one sample and completes req.  0, or -1 with ps->why; peer_end()
 * afterwards in both cases. */
int peer_begin(struct peer_state *ps, struct bench_req *req)
{
	bool counted = req->kind == BENCH_FORK; /* a group to count, without a limit */
	unsigned kib = 0;

	if (req->side == SIDE_ZRAM_64K || req->side == SIDE_ZRAM_RESIDENT_64K)
		kib = 64;
	else if (req->side == SIDE_ZRAM_THP)
		kib = 2048;
	req->folio_stat[0] = 0;
	req->cgroup[0] = 0;
	if (kib)
		snprintf(req->folio_stat, sizeof(req->folio_stat),
			 THP_DIR "/hugepages-%ukB/stats/swpout", kib);
	if (bench_side_kernel(req->side)) {
		snprintf(req->zram_sys, sizeof(req->zram_sys), "%s", ps->sys);
		if (set_folio_size(ps, kib) || swap_on(ps))
			return -1;
	}
	if (counted || bench_limited(req->kind)) {
		if (peer_cgroup_make(ps, counted ? UINT64_MAX : req->limit))
			return counted ? 0 : -1;
		snprintf(req->cgroup, sizeof(req->cgroup), "%s", ps->cgroup);
		req->cgroup_v2 = ps->cgroup_v2;
	}
	return 0;
}

/* After the sample's process is gone. */
void peer_end(struct peer_state *ps)
{
	swap_off(ps);
	restore_folio_sizes(ps);
	peer_cgroup_remove(ps);
}

/* Puts back everything. */
void peer_restore(struct peer_state *ps)
{
	char path[128], text[16];

	peer_end(ps);
	for (int i = 0; ps->swap_on && i < 100; i++) {
		nap_ms(50);
		swap_off(ps);
	}
	if (ps->zram_id < 0 || ps->swap_on)
		return;
	/* EBUSY for a moment while something (udev) looks at the device. */
	if (ps->configured) {
		snprintf(path, sizeof(path), "%s/reset", ps->sys);
		for (int i = 0; i < 100; i++) {
			if (peer_write(path, "1") != EBUSY)
				break;
			nap_ms(20);
		}
		ps->configured = false;
	}
	if (ps->node_made) {
		unlink(ps->dev);
		ps->node_made = false;
	}
	if (ps->added) {
		snprintf(text, sizeof(text), "%d", ps->zram_id);
		for (int i = 0; i < 100; i++) {
			if (peer_write(HOT_REMOVE, text) != EBUSY)
				break;
			nap_ms(20);
		}
		ps->added = false;
	}
	ps->zram_id = -1;
}
