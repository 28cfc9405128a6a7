/* SPDX-License-Identifier: MIT */
/* args.c - options, errors in one line, sizes for people. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

static void vsay(const char *fmt, va_list ap)
{
	char line[1024];
	int n = snprintf(line, sizeof(line), "pswap: ");
	int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);

	n = m < 0 ? n : (int)MIN((size_t)n + (size_t)m, sizeof(line) - 2);
	line[n++] = '\n';
	/* One write, so that lines of several processes do not mix. */
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

void cli_warn(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsay(fmt, ap);
	va_end(ap);
}

void cli_fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsay(fmt, ap);
	va_end(ap);
	exit(EXIT_PSWAP);
}

pid_t cli_pid(const char *name, const char *text)
{
	char *end;
	long pid;

	errno = 0;
	pid = strtol(text, &end, 10);
	if (errno || *end || end == text || pid < 1 || pid > INT32_MAX)
		cli_fail("%s: '%s' is no process id", name, text);
	return (pid_t)pid;
}

const char *cli_size(u64 bytes)
{
	static char bufs[8][24];
	static unsigned next;
	char *buf = bufs[next++ % 8];
	const char *unit = "BKMGT";
	double v = (double)bytes;

	while (v >= 1024 && unit[1]) {
		v /= 1024;
		unit++;
	}
	if (*unit == 'B')
		snprintf(buf, sizeof(bufs[0]), "%llu", (unsigned long long)bytes);
	else if (v < 10 && v != (double)(u64)v)
		snprintf(buf, sizeof(bufs[0]), "%.1f%c", v, *unit);
	else
		snprintf(buf, sizeof(bufs[0]), "%.0f%c", v, *unit);
	return buf;
}

/* An option as a person writes it: "-m SIZE", "--count=WHAT". */
static void option_text(const struct argp_option *o, bool is_long, char *buf, size_t size)
{
	bool is_short = o->key > ' ' && o->key < 0x7f && !is_long;

	if (is_short)
		snprintf(buf, size, "-%c%s%s", o->key, o->arg ? " " : "", o->arg ? o->arg : "");
	else
		snprintf(buf, size, "--%s%s%s", o->name, o->arg ? "=" : "", o->arg ? o->arg : "");
}

static bool shown(const struct argp_option *o)
{
	return (o->name || o->key) && !(o->flags & (OPTION_HIDDEN | OPTION_ALIAS | OPTION_DOC));
}

static const struct argp_option *option_short(const struct argp *argp, int key)
{
	for (const struct argp_option *o = argp->options; o->name || o->key || o->doc; o++) {
		if (shown(o) && o->key == key)
			return o;
	}
	return NULL;
}

/* The option that `word` is wrong about, or NULL if it names none. */
static const struct argp_option *option_of(const struct argp *argp, const char *word)
{
	const struct argp_option *o = NULL;
	size_t n = strcspn(word, "=");

	if (strncmp(word, "--", 2)) {
		/* Letters in a row, the last with a value perhaps. */
		for (const char *c = word + 1; *c; c++) {
			o = option_short(argp, *c);
			if (!o)
				return NULL;
		}
		return o;
	}
	for (o = argp->options; o->name || o->key || o->doc; o++) {
		if (n > 2 && shown(o) && o->name && !strncmp(o->name, word + 2, n - 2))
			return o;
	}
	return NULL;
}

static _Noreturn void bad_option(const struct argp *argp, const char *name, const char *word)
{
	const struct argp_option *o = option_of(argp, word);
	char all[400] = "", one[80];
	size_t n = 0;

	if (!strcmp(word, "--help") || !strcmp(word, "-?")) {
		snprintf(all, sizeof(all), "pswap %s", name);
		argp_help(argp, stdout, ARGP_HELP_STD_HELP & ~ARGP_HELP_EXIT_OK, all);
		exit(0);
	}
	if (o) {
		option_text(o, word[1] == '-', one, sizeof(one));
		if (o->arg)
			cli_fail("%s: option '%s' needs a value: %s", name, word, one);
		cli_fail("%s: option '%s' takes no value: %s", name, word, one);
	}
	for (o = argp->options; o->name || o->key || o->doc; o++) {
		if (!shown(o) || n >= sizeof(all) - sizeof(one) - 2)
			continue;
		option_text(o, false, one, sizeof(one));
		if (!*one)
			continue;
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", one);
	}
	cli_fail("%s: unknown option '%s'; there are: %s, --help", name, word, all);
}

/* argp does not tell where it stopped, so each option that was understood leaves a mark. */
struct tracked {
	const struct argp *inner;
	void *input;
	int next; /* the argument after the last one that was understood */
};

static error_t parse_tracked(int key, char *arg, struct argp_state *state)
{
	struct tracked *t = state->input;
	error_t err;

	if (!t->inner->parser)
		return ARGP_ERR_UNKNOWN;
	state->input = t->input;
	err = t->inner->parser(key, arg, state);
	state->input = t;
	if (!err)
		t->next = MAX(state->next, 1);
	return err;
}

void cli_parse(const struct argp *argp, const char *name, int argc, char **argv, bool in_order,
	       void *input)
{
	/* argp's own messages take two lines and do not say what the options are. */
	unsigned flags =
		ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT | (in_order ? ARGP_IN_ORDER : 0);
	struct tracked t = { argp, input, 1 };
	struct argp outer = { .options = argp->options, .parser = parse_tracked };

	if (argp_parse(&outer, argc, argv, flags, NULL, &t))
		bad_option(argp, name, argv[MIN(t.next, argc - 1)]);
}
