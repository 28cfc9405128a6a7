/* SPDX-License-Identifier: MIT */
/* uffd.c - see uffd.h. */
#include "uffd.h"

static int new_fd(int flags)
{
	int dev = (int)sys_open("/dev/userfaultfd", O_RDWR | O_CLOEXEC, 0);
	long fd;

	if (dev >= 0) {
		fd = sys_call3(SYS_ioctl, dev, USERFAULTFD_IOC_NEW, flags);
		sys_close(dev);
		if (fd >= 0)
			return (int)fd;
	}
	return (int)sys_call1(SYS_userfaultfd, flags);
}

static int api(int fd, u64 features, u64 *got)
{
	struct uffdio_api a = { .api = UFFD_API, .features = features };
	long ret = sys_ioctl(fd, UFFDIO_API, &a);

	*got = a.features;
	return (int)ret;
}

/* UFFDIO_API works once for each descriptor, and fails as a whole when a feature is unknown: so the
 * first descriptor asks what there is, the second is the one to keep. */
static int probe(int flags, u64 *got)
{
	int fd = new_fd(flags), ret;

	if (fd < 0)
		return fd;
	ret = api(fd, 0, got);
	sys_close(fd);
	return ret;
}

int uffd_open(unsigned want, struct uffd_caps *caps)
{
	int flags = O_CLOEXEC | O_NONBLOCK, fd, ret;
	u64 have, ask = 0, got;

	memset(caps, 0, sizeof(*caps));
	ret = probe(flags, &have);
	if (ret < 0) {
		int only = probe(flags | UFFD_USER_MODE_ONLY, &have);

		if (only < 0)
			return ret;
		if (!(want & UFFD_WANT_USER_ONLY))
			return -ENOTSUP;
		flags |= UFFD_USER_MODE_ONLY;
		caps->user_only = true;
	}
	if (!(want & UFFD_NO_MOVE))
		ask |= have & UFFD_FEATURE_MOVE;
	if (!(want & UFFD_NO_POISON))
		ask |= have & UFFD_FEATURE_POISON;
	if (!(want & UFFD_NO_WP))
		ask |= have & UFFD_FEATURE_PAGEFAULT_FLAG_WP;
	if (want & UFFD_WANT_EVENTS)
		ask |= have & (UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP |
			       UFFD_FEATURE_EVENT_REMAP);
	if (want & UFFD_WANT_FORK)
		ask |= have & UFFD_FEATURE_EVENT_FORK;
	ask |= have & UFFD_FEATURE_THREAD_ID;
	if (want & UFFD_WANT_SIGBUS)
		ask |= have & UFFD_FEATURE_SIGBUS;

	for (;;) {
		fd = new_fd(flags);
		if (fd < 0)
			return fd;
		ret = api(fd, ask, &got);
		if (ret == 0)
			break;
		sys_close(fd);
		/* EVENT_FORK needs CAP_SYS_PTRACE; everything else does not. */
		if (ret == -EPERM && (ask & UFFD_FEATURE_EVENT_FORK)) {
			ask &= ~(u64)UFFD_FEATURE_EVENT_FORK;
			continue;
		}
		return ret;
	}
	caps->move = ask & UFFD_FEATURE_MOVE;
	caps->poison = ask & UFFD_FEATURE_POISON;
	caps->wp = ask & UFFD_FEATURE_PAGEFAULT_FLAG_WP;
	caps->events = (ask & UFFD_FEATURE_EVENT_UNMAP) && (ask & UFFD_FEATURE_EVENT_REMOVE) &&
		       (ask & UFFD_FEATURE_EVENT_REMAP);
	caps->event_fork = ask & UFFD_FEATURE_EVENT_FORK;
	caps->thread_id = ask & UFFD_FEATURE_THREAD_ID;
	caps->sigbus = ask & UFFD_FEATURE_SIGBUS;
	if ((want & UFFD_WANT_SIGBUS) && !caps->sigbus) {
		sys_close(fd);
		return -ENOSYS;
	}
	return fd;
}

int uffd_register(int fd, u64 start, u64 len, bool wp)
{
	struct uffdio_register r = {
		.range = { start, len },
		.mode = UFFDIO_REGISTER_MODE_MISSING | (wp ? UFFDIO_REGISTER_MODE_WP : 0),
	};

	return (int)sys_ioctl(fd, UFFDIO_REGISTER, &r);
}

int uffd_unregister(int fd, u64 start, u64 len)
{
	struct uffdio_range r = { start, len };

	return (int)sys_ioctl(fd, UFFDIO_UNREGISTER, &r);
}

int uffd_wake(int fd, u64 start, u64 len)
{
	struct uffdio_range r = { start, len };

	return (int)sys_ioctl(fd, UFFDIO_WAKE, &r);
}

/* The kernel reports a partial success as EAGAIN with the bytes done in the last field, and an error
 * on the first page as that error (the field then holds it, negative). */
static s64 result(long ret, s64 done, u64 len)
{
	if (ret == 0)
		return (s64)len;
	return done > 0 ? done : ret;
}

s64 uffd_copy(int fd, u64 dst, const void *src, u64 len, bool wake, bool wp)
{
	struct uffdio_copy c = {
		.dst = dst,
		.src = (u64)(uintptr_t)src,
		.len = len,
		.mode = (wake ? 0 : UFFDIO_COPY_MODE_DONTWAKE) | (wp ? UFFDIO_COPY_MODE_WP : 0),
	};
	long ret = sys_ioctl(fd, UFFDIO_COPY, &c);

	return result(ret, c.copy, len);
}

s64 uffd_zeropage(int fd, u64 dst, u64 len, bool wake)
{
	struct uffdio_zeropage z = {
		.range = { dst, len },
		.mode = wake ? 0 : UFFDIO_ZEROPAGE_MODE_DONTWAKE,
	};
	long ret = sys_ioctl(fd, UFFDIO_ZEROPAGE, &z);

	return result(ret, z.zeropage, len);
}

s64 uffd_move(int fd, u64 dst, u64 src, u64 len, bool wake)
{
	struct uffdio_move m = {
		.dst = dst,
		.src = src,
		.len = len,
		.mode = UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES | (wake ? 0 : UFFDIO_MOVE_MODE_DONTWAKE),
	};
	long ret = sys_ioctl(fd, UFFDIO_MOVE, &m);

	return result(ret, m.move, len);
}

int uffd_poison(int fd, u64 dst, u64 len)
{
	struct uffdio_poison p = { .range = { dst, len } };

	return (int)sys_ioctl(fd, UFFDIO_POISON, &p);
}

int uffd_writeprotect(int fd, u64 start, u64 len, bool on, bool wake)
{
	struct uffdio_writeprotect w = {
		.range = { start, len },
		.mode = (on ? UFFDIO_WRITEPROTECT_MODE_WP : 0) |
			(wake || on ? 0 : UFFDIO_WRITEPROTECT_MODE_DONTWAKE),
	};

	return (int)sys_ioctl(fd, UFFDIO_WRITEPROTECT, &w);
}
