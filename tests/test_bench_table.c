/* SPDX-License-Identifier: MIT */
/* test_bench_table.c - the figures and the t test of `pswap bench`'s comparison table.  Expected
 * values are from tables of Student's t, and computed with 50 digits elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench_table.c"

static void near(double a, double b, double eps)
{
	if (!(fabs(a - b) <= eps * fmax(1, fabs(b))))
		fail_msg("%.12g is not %.12g", a, b);
}

/* Two-sided 5 % and 1 % critical values. */
static void test_student(void **state)
{
	(void)state;
	near(bench_t_two_sided(12.7062047362, 1), 0.05, 1e-9);
	near(bench_t_two_sided(2.7764451052, 4), 0.05, 1e-9);
	near(bench_t_two_sided(-2.2281388520, 10), 0.05, 1e-9);
	near(bench_t_two_sided(3.1692726726, 10), 0.01, 1e-9);
	near(bench_t_two_sided(1.9623390808, 1000), 0.05, 1e-9);
	near(bench_t_two_sided(1.9599639845, 1e9), 0.05, 1e-6);
	near(bench_t_two_sided(0, 7.3), 1, 1e-12);
	near(bench_t_two_sided(1, 1), 0.5, 1e-12);
	assert_true(bench_t_two_sided(200, 500) < 1e-100);
}

static void test_welch(void **state)
{
	/* Unequal sizes and variances. */
	double a[] = { 3.0, 4.0, 1.0, 2.1 };
	double b[] = { 490.2, 340.0, 433.9 };
	double same[] = { 5, 5, 5, 5 }, other[] = { 6, 6, 6 };

	(void)state;
	bench_sort(a, 4);
	bench_sort(b, 3);
	near(bench_difference(a, 4, b, 3, 100), 0.010751139, 1e-6);
	near(bench_difference(b, 3, a, 4, 100), 0.010751139, 1e-6);
	near(bench_difference(a, 4, a, 4, 100), 1, 1e-12);
	near(bench_difference(same, 4, same, 4, 100), 1, 0);
	near(bench_difference(same, 4, other, 3, 100), 0, 0);
	/* One sample says nothing about its spread. */
	near(bench_difference(a, 1, b, 3, 100), 1, 0);
	near(bench_difference(a, 4, b, 3, 25), 1, 0);
}

/* Trimmed by half: the slow half counts as the last one that is in. */
static void test_best_half(void **state)
{
	double a[8] = { 10, 11, 12, 13, 50, 60, 70, 5000 };
	double b[8] = { 20, 21, 22, 23, 24, 25, 26, 27 };
	double wa[8] = { 10, 11, 12, 13, 13, 13, 13, 13 };
	double s = sum_squares(wa, 8);

	(void)state;
	near(error_squared(a, 8, 4), s / (4 * 3), 1e-12);
	near(error_squared(a, 8, 8), sum_squares(a, 8) / (8 * 7), 1e-12);
	assert_true(bench_difference(a, 8, b, 8, 50) < 0.05);
	assert_true(bench_difference(a, 8, b, 8, 100) > 0.05);
}

static void test_rows(void **state)
{
	double v[100];

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		v[i] = 100 - i;
	bench_sort(v, 100);
	for (unsigned i = 0; i < 100; i++)
		near(v[i], i + 1, 0);
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double x = row_value(&rows[i], v, 100);
		const char *name = rows[i].name;

		if (!strcmp(name, "Min"))
			near(x, 1, 0);
		else if (!strcmp(name, "1st-qrtle"))
			near(x, 25.75, 1e-12);
		else if (!strcmp(name, "2nd-qrtle"))
			near(x, 50.5, 1e-12);
		else if (!strncmp(name, "Max-", 4))
			near(x, atoi(name + 4), 0);
		else if (!strcmp(name, "Max"))
			near(x, 100, 0);
		else if (!strcmp(name, "Amean"))
			near(x, 50.5, 1e-12);
		else if (!strcmp(name, "Stddev"))
			near(x, 29.011491975882, 1e-12);
		else if (!strcmp(name, "CoeffVar"))
			near(x, 100 * 29.011491975882 / 50.5, 1e-12);
		else if (!strncmp(name, "BAmean-", 7))
			near(x, (atoi(name + 7) + 1) / 2.0, 1e-12);
	}
	near(best_of(3, 1), 1, 0);
	near(bench_stddev(v, 1), 0, 0);
	near(bench_quantile(v, 1, 0.75), 1, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_student),
		cmocka_unit_test(test_welch),
		cmocka_unit_test(test_best_half),
		cmocka_unit_test(test_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
