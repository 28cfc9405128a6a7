/* SPDX-License-Identifier: MIT */
/*
 * log.h - one-line messages from a place without stdio.  All integer arguments are 64 bits wide:
 * %d takes s64, %u and %x take u64, %s a string.  Nothing else is understood.
 */
#ifndef PS_LOG_H
#define PS_LOG_H

#include <stdarg.h>

#include "util.h"

typedef void (*ps_log_fn)(const char *line, size_t len);

/* Where lines go; NULL: standard error. Not thread-safe, set once at start. */
void ps_log_to(ps_log_fn fn);

/* Writes "pswap: ", the message and a newline in one call of the sink. */
void ps_log(const char *fmt, ...);

/* The same formatting into buf (always ended with a 0); returns the length without the 0. */
size_t ps_format(char *buf, size_t size, const char *fmt, ...);
size_t ps_vformat(char *buf, size_t size, const char *fmt, va_list ap);

#endif
