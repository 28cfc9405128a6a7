/* SPDX-License-Identifier: MIT */
/* test_config.c - the PSWAP environment variable: what is built is what is parsed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>

#include "config.h"

static struct ps_config in, out;
static char value[PS_ENV_MAX];
static const char *why;

static void round_trip(void **state)
{
	static const char *const stores[] = {
		"ram:codec=zstd:3,max=1G",
		"file:/tmp/with space;semi:colon%percent,size=2097152,encrypt=on",
		"file:/tmp/\xc3\xa4\n\x01",
	};
	size_t len;

	in = (struct ps_config){
		.limit_bytes = 536870912,
		.count = PS_COUNT_RESIDENT,
		.per_process = true,
		.verbose = true,
		.nr_stores = ARRAY_SIZE(stores),
		.shm_path = "/proc/123/fd/4",
	};
	for (unsigned i = 0; i < in.nr_stores; i++)
		in.stores[i] = stores[i];
	len = ps_config_build(value, sizeof(value), &in);
	assert_int_equal(len, strlen(value));
	assert_int_equal(ps_config_parse(&out, value, &why), 0);
	assert_int_equal(out.limit_bytes, in.limit_bytes);
	assert_int_equal(out.count, in.count);
	assert_true(out.per_process);
	assert_true(out.verbose);
	assert_string_equal(out.shm_path, in.shm_path);
	assert_int_equal(out.nr_stores, in.nr_stores);
	for (unsigned i = 0; i < in.nr_stores; i++)
		assert_string_equal(out.stores[i], stores[i]);
	/* One word of printable characters, whatever went in. */
	for (const char *c = value; *c; c++)
		assert_in_range((unsigned char)*c, 0x21, 0x7e);
}

static void largest_numbers(void **state)
{
	in = (struct ps_config){ .limit_bytes = UINT64_MAX, .shm_path = "" };
	assert_true(ps_config_build(value, sizeof(value), &in) > 0);
	assert_int_equal(ps_config_parse(&out, value, &why), 0);
	assert_true(out.limit_bytes == UINT64_MAX);
	assert_int_equal(out.nr_stores, 0);
	assert_string_equal(out.shm_path, "");
	assert_false(out.per_process);
}

static void bad_values(void **state)
{
	static const char *const bad[] = {
		"",
		"v2:limit=1",
		"limit=1",
		"v1:limit=",
		"v1:limit=12x",
		"v1:limit=-1",
		"v1:limit=18446744073709551616",
		"v1:count=some",
		"v1:shm=/a%2",
		"v1:shm=/a%zz",
		"v1:shm=/a%00b",
		"v1:stores=ram;;file",
		"v1:stores=;ram",
		"v1:stores=1;2;3;4;5;6;7;8;9",
		"/usr/bin/pswap",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		why = NULL;
		if (!ps_config_parse(&out, bad[i], &why))
			fail_msg("'%s' was taken", bad[i]);
		assert_non_null(why);
	}
}

static void unknown_keys(void **state)
{
	assert_int_equal(ps_config_parse(&out, "v1:colour=red:limit=7:x:stores=ram:", &why), 0);
	assert_int_equal(out.limit_bytes, 7);
	assert_int_equal(out.nr_stores, 1);
}

static void too_long(void **state)
{
	char *big = malloc(PS_ENV_MAX + 10);

	memset(big, 'a', PS_ENV_MAX + 9);
	memcpy(big, "v1:shm=", 7);
	big[PS_ENV_MAX + 9] = 0;
	assert_int_equal(ps_config_parse(&out, big, &why), -EINVAL);
	in = (struct ps_config){ .shm_path = big };
	assert_int_equal(ps_config_build(value, sizeof(value), &in), 0);
	/* The longest that fits. */
	big[PS_ENV_MAX - 1] = 0;
	assert_int_equal(ps_config_parse(&out, big, &why), 0);
	free(big);
}

static void environment(void **state)
{
	char *const envp[] = { "PSWAPX=1", "XPSWAP=2", "PSWAP=3", "EMPTY=", "PSWAP=4", NULL };

	assert_string_equal(ps_env(envp, "PSWAP"), "3");
	assert_string_equal(ps_env(envp, "EMPTY"), "");
	assert_null(ps_env(envp, "PSWA"));
	assert_null(ps_env(NULL, "PSWAP"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip), cmocka_unit_test(largest_numbers),
		cmocka_unit_test(bad_values), cmocka_unit_test(unknown_keys),
		cmocka_unit_test(too_long),   cmocka_unit_test(environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
