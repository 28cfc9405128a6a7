/* SPDX-License-Identifier: MIT */
/*
 * codec.h - one page in, fewer bytes out: same-filled detection, LZ4, zstd, and the checksum that
 * every stored object carries.  Nothing here allocates after codec_init: a context belongs to one
 * worker and its memory comes from the arena.
 */
#ifndef PS_CODEC_H
#define PS_CODEC_H

#include "util.h"

enum codec_id { CODEC_LZ4, CODEC_ZSTD };

#define CODEC_ZSTD_LEVEL_MIN 1
#define CODEC_ZSTD_LEVEL_MAX 19
#define CODEC_ZSTD_LEVEL_DEFAULT 1

/* Room codec_compress needs at dst: what LZ4 may write for a page that does not compress. With that
 * much it runs without checks of the output limit, which is faster. */
#define CODEC_BOUND (PAGE_SIZE + PAGE_SIZE / 255 + 16)
/* A page that does not shrink below this is stored as it is: reading it back is then a copy. */
#define CODEC_MAX (PAGE_SIZE * 15 / 16)

struct codec {
	enum codec_id id;
	int level;
	void *cctx, *dctx; /* LZ4: cctx only */
	void *mem;
	size_t mem_size;
};

/* 0, -EINVAL (level out of range) or -ENOMEM. */
int codec_init(struct codec *c, enum codec_id id, int level);
void codec_fini(struct codec *c);

/* Is the page one 8-byte word, repeated?  Looks at a few words only when it is not. */
bool codec_same_filled(const void *page, u64 *word);
/* The opposite: fills the page with the word. */
void codec_fill(void *page, u64 word);

/*
 * Compresses a page to dst, which has CODEC_BOUND bytes of room (whatever the result, so much of
 * it may be overwritten).  Returns the length, at most CODEC_MAX, or 0 when the page does not get
 * that small.
 */
unsigned codec_compress(struct codec *c, const void *page, void *dst);
/* 0, or -EIO when the len bytes at src are not one whole compressed page. Reads nothing outside
 * them, writes nothing outside the page, whatever they are. */
int codec_decompress(struct codec *c, const void *src, size_t len, void *page);

/* 32-bit checksum of the bytes stored for a slot. The slot goes in too, so that one object put in
 * the place of another is found out. */
u32 codec_checksum(const void *p, size_t len, u64 slot);
/* XXH3 on a CPU with AVX2 (codec_avx2.c); codec_checksum uses it where there is one. */
u64 codec_xxh3_avx2(const void *p, size_t len);

#endif
