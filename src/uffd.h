/* SPDX-License-Identifier: MIT */
/*
 * uffd.h - the only place that knows userfaultfd's ioctls.  Headers of Debian 12 are older than the
 * kernels pswap runs on, so what they lack is defined here; what a kernel lacks is found by asking
 * it (uffd_open), and PSWAP_NO_* switches features off for the tests of the fallbacks.
 *
 * Every wrapper returns 0 or bytes done, or -errno.
 */
#ifndef PS_UFFD_H
#define PS_UFFD_H

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "sys.h"

#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_POISON
#define UFFD_FEATURE_POISON (1 << 14)
#define UFFDIO_POISON_SUPPLIED 1
struct uffdio_poison {
	struct uffdio_range range;
	__u64 mode;
	__s64 updated;
};
#define UFFDIO_POISON _IOWR(UFFDIO, 0x08, struct uffdio_poison)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFD_FEATURE_MOVE
#define UFFD_FEATURE_MOVE (1 << 16)
#define UFFDIO_MOVE_MODE_DONTWAKE (1ULL << 0)
#define UFFDIO_MOVE_MODE_ALLOW_SRC_HOLES (1ULL << 1)
struct uffdio_move {
	__u64 dst, src, len, mode;
	__s64 move;
};
#define UFFDIO_MOVE _IOWR(UFFDIO, 0x05, struct uffdio_move)
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW _IO(0xAA, 0x00)
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

enum uffd_want {
	UFFD_WANT_EVENTS = 1,	/* REMOVE, UNMAP, REMAP */
	UFFD_WANT_FORK = 2,	/* EVENT_FORK, dropped when not permitted */
	UFFD_WANT_SIGBUS = 4,	/* signal mode */
	UFFD_WANT_USER_ONLY = 8, /* accept a descriptor that does not serve kernel accesses */
	UFFD_NO_MOVE = 16,
	UFFD_NO_POISON = 32,
	UFFD_NO_WP = 64,
};

struct uffd_caps {
	bool move, poison, wp, wp_async, event_fork, events, sigbus, user_only, thread_id;
};

/* Opens and initialises a userfaultfd (close-on-exec, non-blocking). Returns the fd or -errno:
 * -EPERM, -ENOSYS; -ENOTSUP when only user-mode faults could be had and want has no USER_ONLY. */
int uffd_open(unsigned want, struct uffd_caps *caps);

/* wp: also deliver write-protect faults (the fallback without MOVE). */
int uffd_register(int fd, u64 start, u64 len, bool wp);
int uffd_unregister(int fd, u64 start, u64 len);
int uffd_wake(int fd, u64 start, u64 len);

/*
 * Bytes done from the start (0 .. len), or -errno when none was: -EAGAIN an event waits to be read,
 * -EEXIST first page is there already, -ENOENT a border of VMAs (or not ours), -EBUSY first page is
 * shared or pinned (MOVE), -EINVAL protection or lock differs (MOVE), -ESRCH the process is gone.
 * wake: wake those who wait for the range.
 */
s64 uffd_copy(int fd, u64 dst, const void *src, u64 len, bool wake, bool wp);
s64 uffd_zeropage(int fd, u64 dst, u64 len, bool wake);
s64 uffd_move(int fd, u64 dst, u64 src, u64 len, bool wake);
int uffd_poison(int fd, u64 dst, u64 len);
/* Does a VM event wait to be read?  COPY looks for one before anything else. */
static inline bool uffd_events_pending(int fd)
{
	return uffd_copy(fd, 0, NULL, 0, false, false) == -EAGAIN;
}
int uffd_writeprotect(int fd, u64 start, u64 len, bool on, bool wake);

#endif
