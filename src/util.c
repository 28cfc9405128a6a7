/* SPDX-License-Identifier: MIT */
/* util.c - clock, log lines and the end of the road. */
#include "log.h"
#include "sys.h"

u64 ps_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000ULL + (u64)ts.tv_nsec;
}

static void log_to_stderr(const char *line, size_t len)
{
	sys_write(2, line, len);
}

static ps_log_fn log_sink = log_to_stderr;

void ps_log_to(ps_log_fn fn)
{
	log_sink = fn ? fn : log_to_stderr;
}

static char *put_str(char *p, const char *end, const char *s)
{
	while (*s && p < end)
		*p++ = *s++;
	return p;
}

static char *put_num(char *p, const char *end, u64 v, unsigned base)
{
	char digits[24];
	int n = 0;

	do {
		digits[n++] = "0123456789abcdef"[v % base];
		v /= base;
	} while (v);
	while (n && p < end)
		*p++ = digits[--n];
	return p;
}

size_t ps_vformat(char *buf, size_t size, const char *fmt, va_list ap)
{
	char *p = buf, *end = buf + size - 1;

	for (; *fmt && p < end; fmt++) {
		if (*fmt != '%') {
			*p++ = *fmt;
			continue;
		}
		switch (*++fmt) {
		case 's':
			p = put_str(p, end, va_arg(ap, const char *));
			break;
		case 'd': {
			s64 v = va_arg(ap, s64);

			if (v < 0)
				p = put_str(p, end, "-");
			p = put_num(p, end, v < 0 ? -(u64)v : (u64)v, 10);
			break;
		}
		case 'u':
			p = put_num(p, end, va_arg(ap, u64), 10);
			break;
		case 'x':
			p = put_str(p, end, "0x");
			p = put_num(p, end, va_arg(ap, u64), 16);
			break;
		case '%':
			p = put_str(p, end, "%");
			break;
		default:
			p = put_str(p, end, "?");
			break;
		}
	}
	*p = 0;
	return p - buf;
}

size_t ps_format(char *buf, size_t size, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	n = ps_vformat(buf, size, fmt, ap);
	va_end(ap);
	return n;
}

void ps_log(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	size_t n = ps_format(line, sizeof(line), "pswap: ");

	va_start(ap, fmt);
	n += ps_vformat(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	line[n++] = '\n';
	log_sink(line, n);
}

void ps_bug(const char *file, int line, const char *what)
{
	ps_log("internal error, the process cannot go on: %s:%d: %s", file, (s64)line, what);
	sys_call2(SYS_kill, sys_getpid(), 6 /* SIGABRT */);
	for (;;)
		sys_call1(SYS_exit_group, 134);
}
