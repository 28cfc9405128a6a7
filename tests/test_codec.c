/* SPDX-License-Identifier: MIT */
/* The codec: same-filled pages, all levels there and back, and that no input makes it overrun. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <xxhash.h>

#include "codec.h"

static u64 rng = 88172645463325252ULL;

static u64 next_random(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

/* len bytes that end where the next touch is a fault. */
static u8 *guarded(size_t len)
{
	size_t size = ALIGN_UP(len, PAGE_SIZE);
	u8 *p = mmap(NULL, size + PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		     -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(mprotect(p + size, PAGE_SIZE, PROT_NONE), 0);
	return p + size - len;
}

static void unguard(u8 *p, size_t len)
{
	size_t size = ALIGN_UP(len, PAGE_SIZE);

	munmap(p + len - size, size + PAGE_SIZE);
}

enum kind { TEXT, QUARTER, RECORDS, RANDOM, NR_KINDS };

static void make_page(u8 *p, enum kind kind)
{
	for (unsigned i = 0; i < PAGE_SIZE; i++) {
		switch (kind) {
		case TEXT:
			p[i] = (u8) "swap slots of one cluster are freed together; "[i % 46];
			break;
		case QUARTER:
			p[i] = i < PAGE_SIZE / 4 ? (u8)next_random() : (u8)(i / 64);
			break;
		case RECORDS:
			p[i] = i % 16 < 3 ? (u8)next_random() : (u8)(i % 16);
			break;
		default:
			p[i] = (u8)next_random();
			break;
		}
	}
}

static void test_same_filled(void **state)
{
	static const u64 words[] = { 0, ~0ULL, 0x1111111111111111ULL, 0x0123456789abcdefULL,
				     0x8000000000000000ULL, 1, 0xdeadbeefdeadbeefULL };
	u64 *page = (u64 *)guarded(PAGE_SIZE), w;

	for (unsigned k = 0; k < ARRAY_SIZE(words); k++) {
		codec_fill(page, words[k]);
		for (unsigned i = 0; i < 512; i++)
			assert_true(page[i] == words[k]);
		w = 77;
		assert_true(codec_same_filled(page, &w));
		assert_true(w == words[k]);
		/* One bit anywhere makes it another page. */
		for (unsigned i = 0; i < 512; i++) {
			page[i] ^= 1ULL << next_random() % 64;
			assert_false(codec_same_filled(page, &w));
			page[i] = words[k];
		}
	}
	/* Periods other than 8 bytes do not count. */
	for (unsigned i = 0; i < 512; i++)
		page[i] = i % 2;
	assert_false(codec_same_filled(page, &w));
	unguard((u8 *)page, PAGE_SIZE);
}

static void there_and_back(struct codec *c)
{
	u8 *page = guarded(PAGE_SIZE), *back = guarded(PAGE_SIZE), *dst = guarded(CODEC_BOUND);
	u8 *src;
	unsigned n;

	/* Many in a row: the LZ4 state is not cleared between pages. */
	for (unsigned round = 0; round < 100; round++) {
		enum kind kind = (enum kind)(round % NR_KINDS);

		make_page(page, kind);
		n = codec_compress(c, page, dst);
		if (kind == RANDOM) {
			assert_int_equal(n, 0);
			continue;
		}
		assert_in_range(n, 1, CODEC_MAX);
		src = guarded(n);
		memcpy(src, dst, n);
		memset(back, 0x5a, PAGE_SIZE);
		assert_int_equal(codec_decompress(c, src, n, back), 0);
		assert_memory_equal(back, page, PAGE_SIZE);
		unguard(src, n);
	}
	unguard(page, PAGE_SIZE);
	unguard(back, PAGE_SIZE);
	unguard(dst, CODEC_BOUND);
}

static void test_levels(void **state)
{
	struct codec c;
	unsigned before = 0;

	assert_int_equal(codec_init(&c, CODEC_LZ4, 0), 0);
	there_and_back(&c);
	codec_fini(&c);
	for (int level = CODEC_ZSTD_LEVEL_MIN; level <= CODEC_ZSTD_LEVEL_MAX; level++) {
		u8 page[PAGE_SIZE], dst[CODEC_BOUND];
		unsigned n;

		assert_int_equal(codec_init(&c, CODEC_ZSTD, level), 0);
		there_and_back(&c);
		rng = 4711;
		make_page(page, RECORDS);
		n = codec_compress(&c, page, dst);
		if (level == 1)
			before = n;
		codec_fini(&c);
		assert_null(c.mem);
		if (level == CODEC_ZSTD_LEVEL_MAX)
			assert_true(n <= before);
	}
	/* 0 means the default. */
	assert_int_equal(codec_init(&c, CODEC_ZSTD, 0), 0);
	assert_int_equal(c.level, CODEC_ZSTD_LEVEL_DEFAULT);
	codec_fini(&c);
	assert_int_equal(codec_init(&c, CODEC_ZSTD, 20), -EINVAL);
	assert_int_equal(codec_init(&c, CODEC_ZSTD, -1), -EINVAL);
	assert_int_equal(codec_init(&c, (enum codec_id)7, 1), -EINVAL);
}

/* Whatever comes in, the answer is a page or -EIO, and the guard pages stay untouched. */
static void hostile(struct codec *c)
{
	u8 page[PAGE_SIZE], dst[CODEC_BOUND], *out = guarded(PAGE_SIZE);
	unsigned refused = 0;

	for (unsigned round = 0; round < 3000; round++) {
		unsigned n, len, flips = 1 + round % 5;
		u8 *src;
		int ret;

		make_page(page, round % 3 ? RECORDS : QUARTER);
		n = codec_compress(c, page, dst);
		len = round % 4 == 1 ? n - 1 - (unsigned)(next_random() % n) : n;
		src = guarded(MAX(len, 1U));
		memcpy(src, dst, len);
		if (round % 4 == 2) {
			for (unsigned i = 0; i < len; i++)
				src[i] = (u8)next_random();
		} else if (round % 4 != 1) {
			for (; flips; flips--)
				src[next_random() % len] ^= (u8)(1U << next_random() % 8);
		}
		ret = codec_decompress(c, src, len, out);
		assert_true(ret == 0 || ret == -EIO);
		refused += ret == -EIO;
		if (round % 4 == 1)
			assert_int_equal(ret, -EIO);
		unguard(src, MAX(len, 1U));
	}
	assert_true(refused > 750);
	assert_int_equal(codec_decompress(c, dst, 0, out), -EIO);
	assert_int_equal(codec_decompress(c, dst, CODEC_MAX + 1, out), -EIO);
	/* It still works after all that. */
	unguard(out, PAGE_SIZE);
	there_and_back(c);
}

static void test_corrupt(void **state)
{
	struct codec c;

	codec_init(&c, CODEC_LZ4, 0);
	hostile(&c);
	codec_fini(&c);
	codec_init(&c, CODEC_ZSTD, 1);
	hostile(&c);
	codec_fini(&c);
}

static void test_trailing(void **state)
{
	struct codec c;
	u8 page[PAGE_SIZE], dst[CODEC_BOUND + PAGE_SIZE], out[PAGE_SIZE];
	unsigned n;

	for (int id = CODEC_LZ4; id <= CODEC_ZSTD; id++) {
		codec_init(&c, (enum codec_id)id, 1);
		make_page(page, TEXT);
		n = codec_compress(&c, page, dst);
		memset(dst + n, 0, 16);
		assert_int_equal(codec_decompress(&c, dst, n + 1, out), -EIO);
		assert_int_equal(codec_decompress(&c, dst, n + 16, out), -EIO);
		assert_int_equal(codec_decompress(&c, dst, n - 1, out), -EIO);
		assert_int_equal(codec_decompress(&c, dst, n, out), 0);
		codec_fini(&c);
	}
}

static void test_checksum(void **state)
{
	u8 p[300], big[PAGE_SIZE];
	u32 sum;

	/* The form for AVX2 gives what the library gives. */
	make_page(big, RANDOM);
	for (unsigned len = 241; __builtin_cpu_supports("avx2") && len <= PAGE_SIZE; len += 13)
		assert_true(codec_xxh3_avx2(big + PAGE_SIZE - len, len) ==
			    XXH3_64bits(big + PAGE_SIZE - len, len));

	for (unsigned i = 0; i < sizeof(p); i++)
		p[i] = (u8)next_random();
	sum = codec_checksum(p, sizeof(p), 5);
	assert_int_equal(sum, codec_checksum(p, sizeof(p), 5));
	assert_int_not_equal(sum, codec_checksum(p, sizeof(p), 6));
	assert_int_not_equal(sum, codec_checksum(p, sizeof(p) - 1, 5));
	for (unsigned i = 0; i < sizeof(p) * 8; i++) {
		p[i / 8] ^= (u8)(1U << i % 8);
		assert_int_not_equal(sum, codec_checksum(p, sizeof(p), 5));
		p[i / 8] ^= (u8)(1U << i % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_filled), cmocka_unit_test(test_levels),
		cmocka_unit_test(test_corrupt),	    cmocka_unit_test(test_trailing),
		cmocka_unit_test(test_checksum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
