/* SPDX-License-Identifier: MIT */
/*
 * bench_peer.h - the kernel's own swap on zram, set up for the time of a sample and put back after
 * it.
 *
 * Everything that is changed on the machine is written down in a struct peer_state before it is
 * changed.  The struct lies in memory shared by `pswap bench` and its guardian, so either can put
 * back what the other set up; peer_restore() does nothing where nothing is left to do.
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include "bench.h"

#define PEER_MAX_THP 16

struct peer_thp {
	char path[96];	/* .../hugepages-64kB/enabled */
	char found[24]; /* what it was */
	unsigned kib;
	bool changed;
};

struct peer_state {
	/* the device */
	int zram_id;	 /* -1: none */
	bool added;	 /* by us through hot_add: goes again */
	bool configured; /* its disksize was set by us */
	bool node_made;	 /* its device node was */
	bool swap_on;
	char dev[64]; /* "/dev/zramN", or a node of ours */
	char sys[64]; /* "/sys/block/zramN" */
	char algorithm[32];
	/* folio sizes */
	unsigned n_thp;
	struct peer_thp thp[PEER_MAX_THP];
	/* the memory group of a sample */
	char cgroup[256]; /* "": none */
	bool cgroup_v2;
	char subtree[256]; /* cgroup.subtree_control where we switched memory on; "": nowhere */
	volatile pid_t worker;
	char why[BENCH_WHY];
};

/* bench_peer_zram.c */
int peer_read(const char *path, char *buf, size_t size);
int peer_write(const char *path, const char *text);
int peer_device_setup(struct peer_state *ps, uint64_t size);
int peer_begin(struct peer_state *ps, struct bench_req *req);
void peer_end(struct peer_state *ps);
void peer_restore(struct peer_state *ps);
bool peer_has_folio(const struct peer_state *ps, unsigned kib);

/* bench_peer_cgroup.c */
int peer_cgroup_make(struct peer_state *ps, uint64_t limit);
void peer_cgroup_remove(struct peer_state *ps);

/* bench_peer_guard.c */
struct peer;
struct peer *peer_start(uint64_t size, char why[BENCH_WHY]);
int peer_sample(struct peer *p, const struct bench_req *req, struct bench_sample *s);
void peer_stop(struct peer *p);
const struct peer_state *peer_look(const struct peer *p);

#endif
