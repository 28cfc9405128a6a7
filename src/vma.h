/* SPDX-License-Identifier: MIT */
/*
 * vma.h - what the kernel says of a mapping: /proc/self/maps, by PROCMAP_QUERY (Linux 6.11; 1.4 us)
 * where there is one, else by reading the text.  No allocation, no stdio.
 */
#ifndef PS_VMA_H
#define PS_VMA_H

#include "util.h"

struct vma {
	u64 start, end;
	u32 prot;     /* PROT_* */
	bool shared;
	u64 inode;
	u64 offset;
	char name[64]; /* cut short where longer */
};

/* Opens self/maps below proc_fd, a descriptor of /proc; or -errno. */
int vma_open(int proc_fd);
/* The VMA that contains addr, or the next one after it: 0, -ENOENT when there is none, -errno. */
int vma_query(int maps_fd, u64 addr, struct vma *v);
/* Calls fn for every VMA in order until it returns false. buf: scratch of at least 8 KiB. */
int vma_for_each(int maps_fd, char *buf, size_t size, bool (*fn)(const struct vma *v, void *arg),
		 void *arg);

#endif
