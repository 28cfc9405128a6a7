/* SPDX-License-Identifier: MIT */
/* api.h - what the files of libpswap share. */
#ifndef PS_API_H
#define PS_API_H

#include "pswap.h"
#include "types.h"

/* Sets this thread's error line and errno; returns -1. */
int api_fail(int err, const char *fmt, ...);

/* Signal mode: serve faults of ps in the faulting thread. 0 or -errno. */
int api_signal_start(struct pswap *ps);
void api_signal_stop(struct pswap *ps);

#endif
