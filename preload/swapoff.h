/* SPDX-License-Identifier: MIT */
/*
 * swapoff.h - all of a program's memory back in, for whoever looks at it without waiting for a fault:
 * a core dump writes zeros for a page that is missing, and a debugger gets EIO.
 */
#ifndef PS_PRELOAD_SWAPOFF_H
#define PS_PRELOAD_SWAPOFF_H

#include "state.h"

/* In the engine's control thread, every now and then: does what `pswap swapoff` and `pswap swapon`
 * asked for, some of it at a time. True: there is more to do at once. */
bool swapoff_tick(struct ps_ctx *ctx);

/* The whole of it, for a program that is about to dump core. No lock held. */
void swapoff_now(struct ps_ctx *ctx);

/* Catches the signals that dump core and that the program has not taken itself. Before main(). */
void coredump_install(void);

#endif
