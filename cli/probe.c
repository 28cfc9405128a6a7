/* SPDX-License-Identifier: MIT */
/* probe.c - which kind of userfaultfd this process can have. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli.h"
#include "uffd.h"

static int open_device(int *err)
{
	int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), fd = -1;

	*err = errno;
	if (dev < 0)
		return -1;
	fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);
	*err = errno;
	close(dev);
	return fd;
}

static int open_syscall(int flags, int *err)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | flags);

	*err = errno;
	return fd;
}

static int open_again(const struct uffd_probe *p)
{
	int err;

	switch (p->access) {
	case UFFD_SYSCALL:
		return open_syscall(0, &err);
	case UFFD_DEVICE:
		return open_device(&err);
	case UFFD_USER_ONLY:
		return open_syscall(UFFD_USER_MODE_ONLY, &err);
	case UFFD_NONE:
		break;
	}
	return -1;
}

void uffd_probe(struct uffd_probe *p)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd, err;

	memset(p, 0, sizeof(*p));
	fd = open_syscall(0, &p->error_syscall);
	p->access = UFFD_SYSCALL;
	if (fd < 0) {
		fd = open_device(&p->error_device);
		p->access = UFFD_DEVICE;
	}
	if (fd < 0) {
		fd = open_syscall(UFFD_USER_MODE_ONLY, &err);
		p->access = UFFD_USER_ONLY;
	}
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) {
		p->access = UFFD_NONE;
	} else {
		p->features = api.features;
		p->ioctls = api.ioctls;
		p->move = api.features & UFFD_FEATURE_MOVE;
		p->poison = api.features & UFFD_FEATURE_POISON;
		p->wp_async = api.features & UFFD_FEATURE_WP_ASYNC;
	}
	if (fd >= 0)
		close(fd);
	/* Features are asked for once per descriptor, and this one takes a capability. */
	fd = open_again(p);
	if (fd >= 0) {
		api = (struct uffdio_api){ .api = UFFD_API, .features = UFFD_FEATURE_EVENT_FORK };
		p->event_fork = !ioctl(fd, UFFDIO_API, &api);
		close(fd);
	}
}

void uffd_cure(const struct uffd_probe *p, char *buf, size_t size)
{
	const char *why = p->access == UFFD_USER_ONLY
				  ? "userfaultfd serves only user-mode faults here"
			  : p->error_syscall == ENOSYS && p->error_device == ENOENT
				  ? "this kernel has no userfaultfd (or a sandbox hides it)"
				  : "userfaultfd is not permitted here";

	snprintf(buf, size,
		 "%s; in a container start it with --device /dev/userfaultfd (docker, podman), "
		 "elsewhere as root: sysctl vm.unprivileged_userfaultfd=1, or make "
		 "/dev/userfaultfd accessible",
		 why);
}
