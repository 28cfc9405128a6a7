/* SPDX-License-Identifier: MIT */
/*
 * store_spec.h - the text forms that users write: sizes, and stores:
 *
 *	ram[:codec=lz4|zstd[:LEVEL]][,max=SIZE]
 *	file[:PATH][,size=SIZE][,encrypt=on|off]
 *
 * The keys come in any order; ':' and ',' may both stand before the first.  A PATH has no comma.
 */
#ifndef PS_STORE_SPEC_H
#define PS_STORE_SPEC_H

#include "codec.h"
#include "util.h"

enum store_kind { STORE_RAM, STORE_FILE };

#define STORE_PATH_MAX 4096
#define STORE_SIZE_MIN PMD_SIZE /* least max= and size=: one segment, one cluster */

struct store_spec {
	enum store_kind kind;
	/* ram */
	enum codec_id codec;
	int level;     /* zstd only, else 0 */
	u64 max_bytes; /* 0: not given */
	/* file */
	u64 size_bytes; /* 0: not given */
	bool encrypt;
	char path[STORE_PATH_MAX]; /* "": not given */
};

/*
 * 0, or -EINVAL with one line in err (no newline) that names what is wrong and what it takes, for
 * example: store 'ram:codec=gzip': codec takes lz4, zstd or zstd:LEVEL, not 'gzip'
 */
int store_spec_parse(const char *text, struct store_spec *spec, char *err, size_t err_size);

/* SIZE: a whole number of bytes above 0, or of K, M, G or T (powers of 1024; lower case as well).
 * 0, -EINVAL for anything else, -ERANGE when it does not fit in 63 bits. */
int ps_parse_size(const char *text, u64 *bytes);

#endif
