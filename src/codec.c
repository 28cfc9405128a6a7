/* SPDX-License-Identifier: MIT */
/* codec.c - see codec.h. */
#include "codec.h"

#include <errno.h>
#define LZ4_STATIC_LINKING_ONLY /* LZ4_compress_fast_extState_fastReset */
#include <lz4.h>
#include <xxhash.h>
#define ZSTD_STATIC_LINKING_ONLY /* contexts in the caller's memory */
#include <zstd.h>

#include "arena.h"

_Static_assert(CODEC_BOUND >= LZ4_COMPRESSBOUND(PAGE_SIZE), "LZ4 must not need limit checks");

/* 16-byte vectors: what every x86-64 and arm64 has, without special compiler flags. may_alias:
 * pages hold whatever the program put there. */
typedef u64 vec __attribute__((vector_size(16), may_alias));
#define VECS_PER_PAGE (PAGE_SIZE / sizeof(vec))

bool codec_same_filled(const void *page, u64 *word)
{
	const vec *v = page;
	u64 w = v[0][0];
	vec pattern = { w, w };

	/* Most pages differ here: the ends and the middle of a page are seldom alike by chance. */
	if (v[0][1] != w || v[VECS_PER_PAGE - 1][1] != w || v[VECS_PER_PAGE / 2][0] != w)
		return false;
	for (unsigned i = 0; i < VECS_PER_PAGE; i += 8) {
		vec d = (v[i] ^ pattern) | (v[i + 1] ^ pattern);

		d |= (v[i + 2] ^ pattern) | (v[i + 3] ^ pattern);
		d |= (v[i + 4] ^ pattern) | (v[i + 5] ^ pattern);
		d |= (v[i + 6] ^ pattern) | (v[i + 7] ^ pattern);
		if (d[0] | d[1])
			return false;
	}
	*word = w;
	return true;
}

void codec_fill(void *page, u64 word)
{
	vec *v = page;
	vec pattern = { word, word };

	/* memset has the better instructions for zeros, which are by far the most frequent. */
	if (word == (word & 0xff) * 0x0101010101010101ULL) {
		memset(page, (int)(word & 0xff), PAGE_SIZE);
		return;
	}
	for (unsigned i = 0; i < VECS_PER_PAGE; i++)
		v[i] = pattern;
}

static bool set_params(ZSTD_CCtx *cctx, const ZSTD_compressionParameters *p)
{
	/* A header byte saved is saved a million times: no magic, no size, no checksum (ours covers
	 * the compressed bytes, which also keeps bad input from the decoder). */
	const struct {
		ZSTD_cParameter what;
		int value;
	} set[] = {
		{ ZSTD_c_format, ZSTD_f_zstd1_magicless },
		{ ZSTD_c_contentSizeFlag, 0 },
		{ ZSTD_c_checksumFlag, 0 },
		{ ZSTD_c_dictIDFlag, 0 },
		{ ZSTD_c_windowLog, (int)p->windowLog },
		{ ZSTD_c_hashLog, (int)p->hashLog },
		{ ZSTD_c_chainLog, (int)p->chainLog },
		{ ZSTD_c_searchLog, (int)p->searchLog },
		{ ZSTD_c_minMatch, (int)p->minMatch },
		{ ZSTD_c_targetLength, (int)p->targetLength },
		{ ZSTD_c_strategy, (int)p->strategy },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(set); i++)
		if (ZSTD_isError(ZSTD_CCtx_setParameter(cctx, set[i].what, set[i].value)))
			return false;
	return true;
}

static int init_zstd(struct codec *c)
{
	/* Parameters for a source of one page: the tables are small, whatever the level. */
	ZSTD_compressionParameters p = ZSTD_getCParams(c->level, PAGE_SIZE, 0);
	size_t csize = ZSTD_estimateCCtxSize_usingCParams(p);
	size_t dsize = ZSTD_estimateDCtxSize();

	if (ZSTD_isError(csize) || ZSTD_isError(dsize))
		return -EINVAL;
	csize = ALIGN_UP(csize, (size_t)PS_CACHELINE);
	c->mem_size = csize + dsize;
	c->mem = arena_map(c->mem_size);
	if (!c->mem)
		return -ENOMEM;
	c->cctx = ZSTD_initStaticCCtx(c->mem, csize);
	c->dctx = ZSTD_initStaticDCtx((char *)c->mem + csize, dsize);
	if (!c->cctx || !c->dctx || !set_params(c->cctx, &p) ||
	    ZSTD_isError(ZSTD_DCtx_setParameter(c->dctx, ZSTD_d_format, ZSTD_f_zstd1_magicless))) {
		codec_fini(c);
		return -EINVAL;
	}
	return 0;
}

int codec_init(struct codec *c, enum codec_id id, int level)
{
	memset(c, 0, sizeof(*c));
	c->id = id;
	switch (id) {
	case CODEC_LZ4:
		c->mem_size = sizeof(LZ4_stream_t);
		c->mem = arena_map(c->mem_size);
		if (!c->mem)
			return -ENOMEM;
		c->cctx = LZ4_initStream(c->mem, c->mem_size);
		return 0;
	case CODEC_ZSTD:
		c->level = level ? level : CODEC_ZSTD_LEVEL_DEFAULT;
		if (c->level < CODEC_ZSTD_LEVEL_MIN || c->level > CODEC_ZSTD_LEVEL_MAX)
			return -EINVAL;
		return init_zstd(c);
	}
	return -EINVAL;
}

void codec_fini(struct codec *c)
{
	arena_unmap(c->mem, c->mem_size);
	memset(c, 0, sizeof(*c));
}

unsigned codec_compress(struct codec *c, const void *page, void *dst)
{
	size_t n;

	if (c->id == CODEC_LZ4) {
		/* fastReset: the 16 KiB hash table is cleared once in 16 pages, not for each. It is
		 * safe because a call with CODEC_BOUND of room cannot fail and leave it dirty. */
		n = (size_t)LZ4_compress_fast_extState_fastReset(c->cctx, page, dst, PAGE_SIZE,
								 CODEC_BOUND, 1);
		return n <= CODEC_MAX ? (unsigned)n : 0;
	}
	n = ZSTD_compress2(c->cctx, dst, CODEC_MAX, page, PAGE_SIZE);
	return ZSTD_isError(n) ? 0 : (unsigned)n;
}

/*
 * Piece by piece, as zstd asks for them: ZSTD_decompressDCtx reads up to 3 bytes past the end of
 * an input of this format that is cut short (1.5.4 looks for the 4-byte mark of a skippable frame).
 */
static int zstd_decompress(ZSTD_DCtx *dctx, const u8 *src, size_t len, u8 *page)
{
	size_t out = 0, n;

	if (ZSTD_isError(ZSTD_decompressBegin(dctx)))
		return -EIO;
	while ((n = ZSTD_nextSrcSizeToDecompress(dctx)) != 0) {
		size_t got;

		if (n > len)
			return -EIO;
		got = ZSTD_decompressContinue(dctx, page + out, PAGE_SIZE - out, src, n);
		if (ZSTD_isError(got))
			return -EIO;
		out += got;
		src += n;
		len -= n;
	}
	return out == PAGE_SIZE && !len ? 0 : -EIO;
}

int codec_decompress(struct codec *c, const void *src, size_t len, void *page)
{
	if (!len || len > CODEC_MAX)
		return -EIO;
	if (c->id == CODEC_LZ4) {
		int n = LZ4_decompress_safe(src, page, (int)len, PAGE_SIZE);

		return n == (int)PAGE_SIZE ? 0 : -EIO;
	}
	return zstd_decompress(c->dctx, src, len, page);
}

static u64 xxh3(const void *p, size_t len)
{
#if defined(__x86_64__)
	/* Reads a word of libgcc's that is set before main. Short input has no vector loop. */
	if (len > 240 && __builtin_cpu_supports("avx2"))
		return codec_xxh3_avx2(p, len);
#endif
	return XXH3_64bits(p, len);
}

u32 codec_checksum(const void *p, size_t len, u64 slot)
{
	return (u32)xxh3(p, len) ^ (u32)((slot * 0x9e3779b97f4a7c15ULL) >> 32);
}
