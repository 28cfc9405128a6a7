/* SPDX-License-Identifier: MIT */
/* config.c - the PSWAP environment variable. */
#include "config.h"

#include <errno.h>

#include "log.h"

struct out {
	char *p, *end; /* end: the last byte, kept for the 0 */
	bool full;
};

static void put_char(struct out *o, char c)
{
	if (o->p >= o->end) {
		o->full = true;
		return;
	}
	*o->p++ = c;
}

static void put_raw(struct out *o, const char *s)
{
	while (*s)
		put_char(o, *s++);
}

static void put_value(struct out *o, const char *s)
{
	for (; *s; s++) {
		unsigned char c = *s;

		if (c > ' ' && c < 0x7f && c != ':' && c != ';' && c != '%') {
			put_char(o, c);
			continue;
		}
		put_char(o, '%');
		put_char(o, "0123456789ABCDEF"[c >> 4]);
		put_char(o, "0123456789ABCDEF"[c & 15]);
	}
}

size_t ps_config_build(char *buf, size_t size, const struct ps_config *c)
{
	struct out o = { buf, buf + size - 1, false };
	char num[24];

	put_raw(&o, "v1:shm=");
	put_value(&o, c->shm_path ? c->shm_path : "");
	ps_format(num, sizeof(num), "%u", c->limit_bytes);
	put_raw(&o, ":limit=");
	put_raw(&o, num);
	put_raw(&o, c->count == PS_COUNT_RESIDENT ? ":count=resident" : ":count=all");
	if (c->per_process)
		put_raw(&o, ":per-process=1");
	if (c->verbose)
		put_raw(&o, ":verbose=1");
	if (c->core)
		put_raw(&o, ":core=1");
	put_raw(&o, ":stores=");
	for (unsigned i = 0; i < c->nr_stores; i++) {
		if (i)
			put_char(&o, ';');
		put_value(&o, c->stores[i]);
	}
	*o.p = 0;
	return o.full ? 0 : (size_t)(o.p - buf);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/* Decodes %XX of a value in place. False: a % without two digits, or an encoded 0. */
static bool decode(char *s)
{
	char *w = s;

	for (; *s; s++) {
		int hi, lo;

		if (*s != '%') {
			*w++ = *s;
			continue;
		}
		hi = hex_digit(s[1]);
		lo = hi < 0 ? -1 : hex_digit(s[2]);
		if (lo < 0 || !(hi | lo))
			return false;
		*w++ = (char)(hi << 4 | lo);
		s += 2;
	}
	*w = 0;
	return true;
}

static bool parse_u64(const char *s, u64 *v)
{
	*v = 0;
	if (!*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9' || __builtin_mul_overflow(*v, (u64)10, v) ||
		    __builtin_add_overflow(*v, (u64)(*s - '0'), v))
			return false;
	}
	return true;
}

/* Cuts *rest at the next `sep` and returns the part before it. */
static char *cut(char **rest, char sep)
{
	char *s = *rest, *p = s;

	while (*p && *p != sep)
		p++;
	*rest = *p ? p + 1 : p;
	*p = 0;
	return s;
}

static bool equal(const char *a, const char *b)
{
	size_t n = strlen(a);

	return n == strlen(b) && !memcmp(a, b, n);
}

static const char *parse_stores(struct ps_config *c, char *value)
{
	while (*value) {
		char *spec = cut(&value, ';');

		if (c->nr_stores == PS_MAX_STORES)
			return "too many stores";
		if (!*spec || !decode(spec))
			return "stores: bad specification";
		c->stores[c->nr_stores++] = spec;
	}
	return NULL;
}

static const char *parse_key(struct ps_config *c, const char *key, char *value)
{
	if (equal(key, "stores"))
		return parse_stores(c, value);
	if (!decode(value))
		return "bad % sequence";
	if (equal(key, "shm")) {
		c->shm_path = value;
	} else if (equal(key, "limit")) {
		if (!parse_u64(value, &c->limit_bytes))
			return "limit: not a number";
	} else if (equal(key, "count")) {
		if (equal(value, "resident"))
			c->count = PS_COUNT_RESIDENT;
		else if (!equal(value, "all"))
			return "count: neither all nor resident";
	} else if (equal(key, "per-process")) {
		c->per_process = equal(value, "1");
	} else if (equal(key, "verbose")) {
		c->verbose = equal(value, "1");
	} else if (equal(key, "core")) {
		c->core = equal(value, "1");
	}
	return NULL;
}

int ps_config_parse(struct ps_config *c, const char *value, const char **why)
{
	size_t len = strlen(value);
	char *rest = c->text;

	c->limit_bytes = 0;
	c->count = PS_COUNT_ALL;
	c->per_process = c->verbose = c->core = false;
	c->nr_stores = 0;
	c->shm_path = "";
	if (len >= sizeof(c->text)) {
		*why = "too long";
		return -EINVAL;
	}
	memcpy(c->text, value, len + 1);
	if (!equal(cut(&rest, ':'), "v1")) {
		*why = "not of version v1";
		return -EINVAL;
	}
	while (*rest) {
		char *value_of = cut(&rest, ':');
		char *key = cut(&value_of, '=');

		*why = parse_key(c, key, value_of);
		if (*why)
			return -EINVAL;
	}
	return 0;
}

const char *ps_env(char *const *envp, const char *name)
{
	size_t n = strlen(name);

	for (; envp && *envp; envp++) {
		size_t i = 0;

		while (i < n && (*envp)[i] == name[i])
			i++;
		if (i == n && (*envp)[n] == '=')
			return *envp + n + 1;
	}
	return NULL;
}
