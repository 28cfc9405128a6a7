/* SPDX-License-Identifier: MIT */
/* Sizes and store specifications: what is taken, what is refused, and that refusals say why. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store_spec.h"

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		u64 bytes;
	} good[] = {
		{ "1", 1 },	       { "4096", 4096 },
		{ "1K", 1024 },	       { "3k", 3072 },
		{ "16M", 16 << 20 },   { "2G", 2ULL << 30 },
		{ "007m", 7 << 20 },   { "1T", 1ULL << 40 },
		{ "8388607T", 8388607ULL << 40 },
		{ "9223372036854775807", INT64_MAX },
	};
	static const char *const bad[] = { "",	   "0",	   "0G",    "-1",   "+1",  " 1",  "1 ",
					   "K",	   "1KB",  "1KiB",  "1.5G", "1e9", "0x10", "G1",
					   "1GG",  "ten",  "1P",    "--2",  "1,5", "\n",  "1\n" };
	static const char *const large[] = { "8388608T", "9223372036854775808",
					     "18446744073709551616", "99999999999999999999999T",
					     "9007199254740992K" };
	u64 v;

	for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
		v = 0;
		assert_int_equal(ps_parse_size(good[i].text, &v), 0);
		assert_true(v == good[i].bytes);
	}
	v = 77;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(ps_parse_size(bad[i], &v), -EINVAL);
	for (unsigned i = 0; i < ARRAY_SIZE(large); i++)
		assert_int_equal(ps_parse_size(large[i], &v), -ERANGE);
	assert_true(v == 77);
}

static struct store_spec spec;
static char err[512];

static void parse(const char *text)
{
	if (store_spec_parse(text, &spec, err, sizeof(err)))
		fail_msg("%s: %s", text, err);
}

static void test_ram(void **state)
{
	parse("ram");
	assert_int_equal(spec.kind, STORE_RAM);
	assert_int_equal(spec.codec, CODEC_LZ4);
	assert_true(spec.max_bytes == 0);
	parse("ram:codec=lz4");
	assert_int_equal(spec.codec, CODEC_LZ4);
	parse("ram:codec=zstd");
	assert_int_equal(spec.codec, CODEC_ZSTD);
	assert_int_equal(spec.level, CODEC_ZSTD_LEVEL_DEFAULT);
	parse("ram:codec=zstd:19,max=3G");
	assert_int_equal(spec.level, 19);
	assert_true(spec.max_bytes == GiB(3));
	parse("ram,max=64M");
	assert_true(spec.max_bytes == MiB(64));
	parse("ram:max=2M,codec=zstd:3");
	assert_true(spec.max_bytes == MiB(2));
	assert_int_equal(spec.level, 3);
}

static void test_file(void **state)
{
	parse("file");
	assert_int_equal(spec.kind, STORE_FILE);
	assert_string_equal(spec.path, "");
	assert_true(spec.encrypt);
	assert_true(spec.size_bytes == 0);
	parse("file:/var/tmp");
	assert_string_equal(spec.path, "/var/tmp");
	parse("file:/a:b/c=d,size=1T,encrypt=off");
	assert_string_equal(spec.path, "/a:b/c=d");
	assert_true(spec.size_bytes == 1ULL << 40);
	assert_false(spec.encrypt);
	parse("file,encrypt=on,size=10G");
	assert_string_equal(spec.path, "");
	assert_true(spec.encrypt);
	assert_true(spec.size_bytes == GiB(10));
	parse("file:size=4M");
	assert_string_equal(spec.path, "");
	assert_true(spec.size_bytes == MiB(4));
	parse("file:./size=4M");
	assert_string_equal(spec.path, "./size=4M");
}

static void test_refusals(void **state)
{
	static const struct {
		const char *text, *says;
	} t[] = {
		{ "", "a store is ram or file, with options, not ''" },
		{ "zram", "a store is ram or file, with options, not 'zram'" },
		{ "RAM", "not 'RAM'" },
		{ "ramx:codec=lz4", "not 'ramx'" },
		{ "nbd://host", "not supported in this version: 'nbd'" },
		{ "nbds://host/x", "not supported in this version: 'nbds'" },
		{ "nbd+unix:///x?socket=/s", "not supported in this version: 'nbd+unix'" },
		{ "ram:", "ram takes codec=lz4|zstd[:LEVEL] and max=SIZE, each once, not ''" },
		{ "ram:codec=lz4,", "not ''" },
		{ "ram:size=1G", "not 'size=1G'" },
		{ "ram:codec", "not 'codec'" },
		{ "ram:codec=gzip", "codec takes lz4, zstd or zstd:LEVEL, not 'gzip'" },
		{ "ram:codec=", "not ''" },
		{ "ram:codec=lz4:1", "not 'lz4:1'" },
		{ "ram:codec=zstdx", "not 'zstdx'" },
		{ "ram:codec=zstd:0", "codec=zstd takes a level from 1 to 19, not '0'" },
		{ "ram:codec=zstd:20", "not '20'" },
		{ "ram:codec=zstd:", "not ''" },
		{ "ram:codec=zstd:3x", "not '3x'" },
		{ "ram:codec=zstd:-3", "not '-3'" },
		{ "ram:codec=zstd:99999999999999999999999", "not '9999" },
		{ "ram:codec=lz4,codec=lz4", "given twice: 'codec=lz4'" },
		{ "ram:max=1M", "max takes a size of at least 2M: a number, or one with K, M, G or T, "
				"not '1M'" },
		{ "ram,max=0", "not '0'" },
		{ "ram,max=-5G", "not '-5G'" },
		{ "ram,max=lots", "not 'lots'" },
		{ "ram,max=9999999999T", "max takes a size below 8388608T, not '9999999999T'" },
		{ "file:", "file:PATH takes a directory, or a file to create, not ''" },
		{ "file:/x,/y", "file takes a path, size=SIZE and encrypt=on|off, each once, not '/y'" },
		{ "file:/x,size=", "size takes" },
		{ "file:/x,size=1", "not '1'" },
		{ "file:/x,encrypt=yes", "encrypt takes on or off, not 'yes'" },
		{ "file:/x,encrypt=on,encrypt=off", "given twice: 'encrypt=off'" },
		{ "file:/x,codec=lz4", "not 'codec=lz4'" },
		{ "ram:a\nb", "not 'a?b'" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		err[0] = 0;
		assert_int_equal(store_spec_parse(t[i].text, &spec, err, sizeof(err)), -EINVAL);
		if (!strstr(err, t[i].says) || strncmp(err, "store '", 7) || strchr(err, '\n'))
			fail_msg("%s: '%s' should say '%s'", t[i].text, err, t[i].says);
	}
}

static void test_long(void **state)
{
	static char text[2 * STORE_PATH_MAX] = "file:/";
	char small[16];

	memset(text + 6, 'x', STORE_PATH_MAX - 2);
	parse(text);
	assert_int_equal(strlen(spec.path), STORE_PATH_MAX - 1);
	memset(text + 6, 'x', STORE_PATH_MAX);
	assert_int_equal(store_spec_parse(text, &spec, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "..."));
	assert_int_equal(store_spec_parse(text, &spec, small, sizeof(small)), -EINVAL);
	assert_int_equal(strlen(small), sizeof(small) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes), cmocka_unit_test(test_ram),
		cmocka_unit_test(test_file),  cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
