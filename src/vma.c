/* SPDX-License-Identifier: MIT */
/* vma.c - see vma.h. */
#include <sys/ioctl.h>

#include "sys.h"
#include "vma.h"

/* From Linux 6.11's include/uapi/linux/fs.h; the layout is ABI. */
struct ps_procmap_query {
	u64 size, query_flags, query_addr;
	u64 vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	u32 dev_major, dev_minor, vma_name_size, build_id_size;
	u64 vma_name_addr, build_id_addr;
};
#define PS_PROCMAP_QUERY _IOWR('f', 17, struct ps_procmap_query)
#define PROCMAP_COVERING_OR_NEXT 0x10
#define PROCMAP_VMA_R 1
#define PROCMAP_VMA_W 2
#define PROCMAP_VMA_X 4
#define PROCMAP_VMA_SHARED 8

int vma_open(int proc_fd)
{
	return (int)sys_openat(proc_fd, "self/maps", O_RDONLY | O_CLOEXEC);
}

static const char *parse_num(const char *p, unsigned base, u64 *v)
{
	for (*v = 0;; p++) {
		unsigned d;

		if (*p >= '0' && *p <= '9')
			d = *p - '0';
		else if (*p >= 'a' && *p <= 'f')
			d = *p - 'a' + 10;
		else
			return p;
		if (d >= base)
			return p;
		*v = *v * base + d;
	}
}

/* start-end rwxp offset maj:min inode   name */
static void parse_line(const char *p, const char *end, struct vma *v)
{
	u64 dev;
	size_t n = 0;

	p = parse_num(p, 16, &v->start) + 1;
	p = parse_num(p, 16, &v->end) + 1;
	v->prot = (p[0] == 'r' ? PROT_READ : 0) | (p[1] == 'w' ? PROT_WRITE : 0) |
		  (p[2] == 'x' ? PROT_EXEC : 0);
	v->shared = p[3] == 's';
	p = parse_num(p + 5, 16, &v->offset) + 1;
	p = parse_num(p, 16, &dev) + 1;
	p = parse_num(p, 16, &dev) + 1;
	p = parse_num(p, 10, &v->inode);
	while (p < end && *p == ' ')
		p++;
	for (; p < end && n < sizeof(v->name) - 1; p++)
		v->name[n++] = *p;
	v->name[n] = 0;
}

int vma_for_each(int fd, char *buf, size_t size, bool (*fn)(const struct vma *v, void *arg),
		 void *arg)
{
	size_t have = 0;
	off_t off = 0;
	long n;

	for (;;) {
		char *line = buf, *nl;

		n = sys_pread(fd, buf + have, size - 1 - have, off);
		if (n < 0)
			return (int)n;
		off += n;
		have += n;
		buf[have] = 0;
		while ((nl = memchr(line, '\n', buf + have - line))) {
			struct vma v;

			parse_line(line, nl, &v);
			if (!fn(&v, arg))
				return 0;
			line = nl + 1;
		}
		have = buf + have - line;
		memmove(buf, line, have);
		if (n == 0)
			return 0;
		if (have == size - 1)
			return -E2BIG;
	}
}

struct find {
	u64 addr;
	struct vma *v;
	bool found;
};

static bool find_one(const struct vma *v, void *arg)
{
	struct find *f = arg;

	if (v->end <= f->addr)
		return true;
	*f->v = *v;
	f->found = true;
	return false;
}

int vma_query(int fd, u64 addr, struct vma *v)
{
	struct ps_procmap_query q = {
		.size = sizeof(q),
		.query_flags = PROCMAP_COVERING_OR_NEXT,
		.query_addr = addr,
		.vma_name_size = sizeof(v->name),
		.vma_name_addr = (u64)(uintptr_t)v->name,
	};
	struct find f = { addr, v, false };
	char buf[4096];
	long ret;

	v->name[0] = 0;
	ret = sys_ioctl(fd, PS_PROCMAP_QUERY, &q);
	if (ret == -ENAMETOOLONG) {
		q.vma_name_size = 0;
		q.vma_name_addr = 0;
		ret = sys_ioctl(fd, PS_PROCMAP_QUERY, &q);
	}
	if (ret == 0) {
		v->start = q.vma_start;
		v->end = q.vma_end;
		v->prot = (q.vma_flags & PROCMAP_VMA_R ? PROT_READ : 0) |
			  (q.vma_flags & PROCMAP_VMA_W ? PROT_WRITE : 0) |
			  (q.vma_flags & PROCMAP_VMA_X ? PROT_EXEC : 0);
		v->shared = q.vma_flags & PROCMAP_VMA_SHARED;
		v->inode = q.inode;
		v->offset = q.vma_offset;
		return 0;
	}
	/* ENOSYS: emulators. */
	if (ret != -ENOTTY && ret != -EINVAL && ret != -ENOSYS)
		return (int)ret;
	ret = vma_for_each(fd, buf, sizeof(buf), find_one, &f);
	return ret ? (int)ret : f.found ? 0 : -ENOENT;
}
