/* SPDX-License-Identifier: MIT */
/* api.h - what the files of libpswap share. */
#ifndef PS_API_H
#define PS_API_H

#include <signal.h>

#include "pswap.h"
#include "types.h"

/* Sets this thread's error line and errno; returns -1. */
int api_fail(int err, const char *fmt, ...);

/* Is ps open, in this process? */
bool api_is_open(struct pswap *ps);
#define CHECK_OPEN(ps)                                                                           \
	do {                                                                                     \
		if (!api_is_open(ps))                                                            \
			return api_fail(EINVAL, "not an open pswap of this process");            \
	} while (0)
/* 0, or -1 and errno: ps is not open, the range is not page-aligned, empty, or not all of ps. */
int api_check_range(struct pswap *ps, void *addr, size_t length);

/* A signal handler that touched a region while its thread holds our locks would wait for ever. */
sigset_t api_enter(void);
void api_leave(sigset_t old);

#define API_ADDRESS_SPACE (1ULL << 47)

/* The open engine that has such a group, or NULL. */
struct pswap *api_group_engine(const struct pswap_group *g);
/* Keeps g from being deleted; false: it is not a group of ps. */
bool api_group_get(struct pswap *ps, struct pswap_group *g);
void api_group_put(struct pswap_group *g);

/* Signal mode: serve faults of ps in the faulting thread. 0 or -errno. */
int api_signal_start(struct pswap *ps);
void api_signal_stop(struct pswap *ps);

#endif
