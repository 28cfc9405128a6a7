/* SPDX-License-Identifier: MIT */
/* store_spec.c - see store_spec.h. */
#include "store_spec.h"

#include <errno.h>

#include "log.h"

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Value and how many characters it takes; 0 characters: no number there or too large. */
static size_t parse_number(const char *s, size_t len, u64 *value, int *err)
{
	size_t i;
	u64 v = 0;

	for (i = 0; i < len && is_digit(s[i]); i++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (u64)(s[i] - '0'), &v)) {
			*err = -ERANGE;
			return 0;
		}
	}
	*value = v;
	*err = i ? 0 : -EINVAL;
	return i;
}

static int parse_size(const char *s, size_t len, u64 *bytes)
{
	unsigned shift = 0;
	int err;
	u64 v;
	size_t n = parse_number(s, len, &v, &err);

	if (err)
		return err;
	if (n < len) {
		switch (s[n++]) {
		case 'K':
		case 'k':
			shift = 10;
			break;
		case 'M':
		case 'm':
			shift = 20;
			break;
		case 'G':
		case 'g':
			shift = 30;
			break;
		case 'T':
		case 't':
			shift = 40;
			break;
		default:
			return -EINVAL;
		}
	}
	if (n != len || !v)
		return -EINVAL;
	if (v > (u64)INT64_MAX >> shift)
		return -ERANGE;
	*bytes = v << shift;
	return 0;
}

int ps_parse_size(const char *text, u64 *bytes)
{
	return parse_size(text, strlen(text), bytes);
}

/* A piece of the text being parsed; not ended with a 0. */
struct piece {
	const char *s;
	size_t len;
};

static bool piece_is(struct piece p, const char *word)
{
	return strlen(word) == p.len && !memcmp(p.s, word, p.len);
}

static bool piece_starts(struct piece p, const char *word)
{
	return strlen(word) <= p.len && !memcmp(p.s, word, strlen(word));
}

struct parser {
	const char *text;
	struct store_spec *spec;
	char *err;
	size_t err_size;
	unsigned seen; /* bit for each key */
};

/* For messages: the piece ended with a 0, and cut when it is long. */
struct quoted {
	char s[64];
};

static struct quoted quote(struct piece p)
{
	struct quoted q;
	size_t n = MIN(p.len, sizeof(q.s) - 4);

	memcpy(q.s, p.s, n);
	memcpy(q.s + n, "...", 4);
	if (n == p.len)
		q.s[n] = 0;
	/* One line, whatever was given. */
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)q.s[i] < ' ' || q.s[i] == 0x7f)
			q.s[i] = '?';
	return q;
}

static int bad(struct parser *p, const char *what, const char *takes, struct piece got)
{
	struct quoted text = quote((struct piece){ p->text, strlen(p->text) });
	struct quoted value = quote(got);

	ps_format(p->err, p->err_size, "store '%s': %s%s%s%s'", text.s, what, takes,
		  *takes ? ", not '" : " '", value.s);
	return -EINVAL;
}

static int parse_codec(struct parser *p, struct piece v)
{
	static const char takes[] = " takes lz4, zstd or zstd:LEVEL";
	static const char level_takes[] = " takes a level from 1 to 19";
	struct piece level;
	int err;
	u64 n;

	if (piece_is(v, "lz4")) {
		p->spec->codec = CODEC_LZ4;
		return 0;
	}
	if (!piece_starts(v, "zstd"))
		return bad(p, "codec", takes, v);
	p->spec->codec = CODEC_ZSTD;
	p->spec->level = CODEC_ZSTD_LEVEL_DEFAULT;
	if (v.len == 4)
		return 0;
	if (v.s[4] != ':')
		return bad(p, "codec", takes, v);
	level = (struct piece){ v.s + 5, v.len - 5 };
	if (parse_number(level.s, level.len, &n, &err) != level.len || err ||
	    n < CODEC_ZSTD_LEVEL_MIN || n > CODEC_ZSTD_LEVEL_MAX)
		return bad(p, "codec=zstd", level_takes, level);
	p->spec->level = (int)n;
	return 0;
}

static int parse_size_value(struct parser *p, const char *key, struct piece v, u64 *bytes)
{
	static const char takes[] = " takes a size of at least 2M: a number, or one with K, M, G or T";
	int err = parse_size(v.s, v.len, bytes);

	if (err == -ERANGE)
		return bad(p, key, " takes a size below 8388608T", v);
	return err || *bytes < STORE_SIZE_MIN ? bad(p, key, takes, v) : 0;
}

static int parse_encrypt(struct parser *p, struct piece v)
{
	if (!piece_is(v, "on") && !piece_is(v, "off"))
		return bad(p, "encrypt", " takes on or off", v);
	p->spec->encrypt = piece_is(v, "on");
	return 0;
}

enum key { KEY_CODEC, KEY_MAX, KEY_SIZE, KEY_ENCRYPT };

static const struct {
	const char *prefix;
	enum store_kind kind;
} keys[] = {
	[KEY_CODEC] = { "codec=", STORE_RAM },
	[KEY_MAX] = { "max=", STORE_RAM },
	[KEY_SIZE] = { "size=", STORE_FILE },
	[KEY_ENCRYPT] = { "encrypt=", STORE_FILE },
};

static int find_key(enum store_kind kind, struct piece p)
{
	for (unsigned i = 0; i < ARRAY_SIZE(keys); i++)
		if (keys[i].kind == kind && piece_starts(p, keys[i].prefix))
			return (int)i;
	return -1;
}

static int parse_option(struct parser *p, struct piece opt)
{
	int key = find_key(p->spec->kind, opt);
	size_t skip;
	struct piece v;

	if (key < 0)
		return bad(p,
			   p->spec->kind == STORE_RAM ?
				   "ram takes codec=lz4|zstd[:LEVEL] and max=SIZE" :
				   "file takes a path, size=SIZE and encrypt=on|off",
			   ", each once", opt);
	if (p->seen & 1U << key)
		return bad(p, "given twice:", "", opt);
	p->seen |= 1U << key;
	skip = strlen(keys[key].prefix);
	v = (struct piece){ opt.s + skip, opt.len - skip };
	switch ((enum key)key) {
	case KEY_CODEC:
		return parse_codec(p, v);
	case KEY_MAX:
		return parse_size_value(p, "max", v, &p->spec->max_bytes);
	case KEY_SIZE:
		return parse_size_value(p, "size", v, &p->spec->size_bytes);
	case KEY_ENCRYPT:
		return parse_encrypt(p, v);
	}
	return -EINVAL;
}

static int parse_path(struct parser *p, struct piece path)
{
	if (!path.len || path.len >= STORE_PATH_MAX)
		return bad(p, "file:PATH", " takes a directory, or a file to create", path);
	memcpy(p->spec->path, path.s, path.len);
	return 0;
}

int store_spec_parse(const char *text, struct store_spec *spec, char *err, size_t err_size)
{
	struct parser p = { .text = text, .spec = spec, .err = err, .err_size = err_size };
	size_t len = strcspn(text, ":,");
	struct piece name = { text, len };
	const char *s = text + len;
	bool first = *s == ':';

	memset(spec, 0, sizeof(*spec));
	spec->encrypt = true;
	if (piece_is(name, "ram")) {
		spec->kind = STORE_RAM;
	} else if (piece_is(name, "file")) {
		spec->kind = STORE_FILE;
	} else if (piece_is(name, "nbd") || piece_is(name, "nbds") || piece_is(name, "nbd+unix") ||
		   piece_is(name, "nbds+unix")) {
		return bad(&p, "not supported in this version:", "", name);
	} else {
		return bad(&p, "a store", " is ram or file, with options", name);
	}
	for (; *s; first = false) {
		struct piece opt = { s + 1, strcspn(s + 1, ",") };
		/* A path may look like anything but one of our own keys. */
		bool path = first && spec->kind == STORE_FILE && find_key(STORE_FILE, opt) < 0;
		int ret = path ? parse_path(&p, opt) : parse_option(&p, opt);

		if (ret)
			return ret;
		s = opt.s + opt.len;
	}
	return 0;
}
