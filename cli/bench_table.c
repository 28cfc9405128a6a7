/* SPDX-License-Identifier: MIT */
/*
 * bench_table.c - two or three sets of samples side by side: the table, and the test behind its
 * asterisks.
 *
 * Lower is better everywhere.  A percent is 100 * (first - this) / first: over 0 is better than the
 * first column.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define LEVEL	   0.05 /* of significance, two-sided */
#define NAME_WIDTH 24

enum row_kind {
	ROW_QUANTILE, /* param percent, between ranks in proportion */
	ROW_MAX,      /* largest of the fastest param percent */
	ROW_MEAN,     /* mean of the best param percent */
	ROW_STDDEV,
	ROW_VARIATION
};

static const struct row {
	const char *name;
	enum row_kind kind;
	unsigned param;
} rows[] = {
	{ "Min", ROW_QUANTILE, 0 },
	{ "1st-qrtle", ROW_QUANTILE, 25 },
	{ "2nd-qrtle", ROW_QUANTILE, 50 },
	{ "3rd-qrtle", ROW_QUANTILE, 75 },
	{ "Max-1", ROW_MAX, 1 },
	{ "Max-5", ROW_MAX, 5 },
	{ "Max-10", ROW_MAX, 10 },
	{ "Max-90", ROW_MAX, 90 },
	{ "Max-95", ROW_MAX, 95 },
	{ "Max-99", ROW_MAX, 99 },
	{ "Max", ROW_MAX, 100 },
	{ "Amean", ROW_MEAN, 100 },
	{ "Stddev", ROW_STDDEV, 0 },
	{ "CoeffVar", ROW_VARIATION, 0 },
	{ "BAmean-99", ROW_MEAN, 99 },
	{ "BAmean-95", ROW_MEAN, 95 },
	{ "BAmean-90", ROW_MEAN, 90 },
	{ "BAmean-75", ROW_MEAN, 75 },
	{ "BAmean-50", ROW_MEAN, 50 },
	{ "BAmean-25", ROW_MEAN, 25 },
};

static int cmp_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void bench_sort(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), cmp_double);
}

/* The fastest `percent` of n samples: at least one. */
static unsigned best_of(unsigned n, unsigned percent)
{
	unsigned k = (unsigned)((uint64_t)n * percent / 100);

	return k ? k : 1;
}

double bench_mean(const double *v, unsigned n)
{
	double sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += v[i];
	return sum / n;
}

static double sum_squares(const double *v, unsigned n)
{
	double m = bench_mean(v, n), s = 0;

	for (unsigned i = 0; i < n; i++)
		s += (v[i] - m) * (v[i] - m);
	return s;
}

double bench_stddev(const double *v, unsigned n)
{
	return n > 1 ? sqrt(sum_squares(v, n) / (n - 1)) : 0;
}

double bench_quantile(const double *sorted, unsigned n, double p)
{
	double at = p * (n - 1);
	unsigned i = (unsigned)at;

	return i + 1 < n ? sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

/*
 * The continued fraction of the incomplete beta function (DLMF 8.17.22), evaluated from the front
 * by the method of Lentz; converges fast for x < (a + 1) / (a + b + 2).
 */
static double beta_fraction(double a, double b, double x)
{
	const double tiny = 1e-300, close_enough = 1e-14;
	double f = 1, c = 1, d = 0;

	for (int i = 0; i <= 10000; i++) {
		double m = i / 2, num, step;

		if (i == 0)
			num = 1;
		else if (i % 2 == 0)
			num = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
		else
			num = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
		d = 1 + num * d;
		if (fabs(d) < tiny)
			d = tiny;
		d = 1 / d;
		c = 1 + num / c;
		if (fabs(c) < tiny)
			c = tiny;
		step = c * d;
		f *= step;
		if (fabs(step - 1) < close_enough)
			break;
	}
	return f - 1;
}

/* I_x(a, b), the regularised incomplete beta function. */
static double beta_inc(double a, double b, double x)
{
	int sign;
	double front;

	if (x <= 0)
		return 0;
	if (x >= 1)
		return 1;
	if (x > (a + 1) / (a + b + 2))
		return 1 - beta_inc(b, a, 1 - x);
	front = exp(lgamma_r(a + b, &sign) - lgamma_r(a, &sign) - lgamma_r(b, &sign) +
		    a * log(x) + b * log1p(-x));
	return front * beta_fraction(a, b, x) / a;
}

/* Probability of |T| >= |t| for Student's t with df degrees of freedom. */
double bench_t_two_sided(double t, double df)
{
	return beta_inc(df / 2, 0.5, df / (df + t * t));
}

/* Squared standard error of the mean of the best k of n sorted samples.  With k < n the others count
 * as equal to the last one that is in (winsorised), as in Yuen's test of trimmed means. */
static double error_squared(const double *sorted, unsigned n, unsigned k)
{
	double m = 0, s = 0;

	for (unsigned i = 0; i < n; i++)
		m += sorted[i < k ? i : k - 1];
	m /= n;
	for (unsigned i = 0; i < n; i++) {
		double d = sorted[i < k ? i : k - 1] - m;

		s += d * d;
	}
	return s / ((double)k * (k - 1));
}

/*
 * How probable a difference of the two means as large as this one is by chance: Welch's t test, which
 * does not suppose equal variances.  percent < 100: means of the best percent, by Yuen's form of the
 * same test.  1 when there are too few samples to say.
 */
double bench_difference(const double *a, unsigned na, const double *b, unsigned nb,
			unsigned percent)
{
	unsigned ka = best_of(na, percent), kb = best_of(nb, percent);
	double ea, eb, diff, df;

	if (ka < 2 || kb < 2)
		return 1;
	ea = error_squared(a, na, ka);
	eb = error_squared(b, nb, kb);
	diff = bench_mean(a, ka) - bench_mean(b, kb);
	if (ea + eb <= 0)
		return diff == 0 ? 1 : 0;
	df = (ea + eb) * (ea + eb) / (ea * ea / (ka - 1) + eb * eb / (kb - 1));
	return bench_t_two_sided(diff / sqrt(ea + eb), df);
}

static double row_value(const struct row *r, const double *v, unsigned n)
{
	double mean;

	switch (r->kind) {
	case ROW_QUANTILE:
		return bench_quantile(v, n, r->param / 100.0);
	case ROW_MAX:
		return v[best_of(n, r->param) - 1];
	case ROW_MEAN:
		return bench_mean(v, best_of(n, r->param));
	case ROW_STDDEV:
		return bench_stddev(v, n);
	default:
		mean = bench_mean(v, n);
		return mean != 0 ? 100 * bench_stddev(v, n) / mean : 0;
	}
}

/* Nanoseconds of whole operations are shown in larger units, if all of them are large. */
static double scale_of(const struct bench_column *c, unsigned n, const char **unit)
{
	double least = HUGE_VAL;

	if (strcmp(*unit, "ns"))
		return 1;
	for (unsigned i = 0; i < n; i++)
		least = fmin(least, bench_quantile(c[i].v, c[i].n, 0.5));
	if (least >= 1e7)
		return *unit = "ms", 1e6;
	if (least >= 1e3)
		return *unit = "us", 1e3;
	return 1;
}

static void print_cell(const struct row *r, const struct bench_column *first,
		       const struct bench_column *c, double scale)
{
	double base = row_value(r, first->v, first->n), x = row_value(r, c->v, c->n), percent;
	char mark = ' ';

	if (r->kind == ROW_VARIATION)
		scale = 1;
	if (c == first) {
		printf(" %12.2f           ", x / scale);
		return;
	}
	percent = base != 0 ? 100 * (base - x) / base : 0;
	if (r->kind == ROW_MEAN &&
	    bench_difference(first->v, first->n, c->v, c->n, r->param) < LEVEL)
		mark = '*';
	printf(" %12.2f %c%7.2f%%%c", x / scale, mark == '*' ? '*' : '(', percent,
	       mark == '*' ? '*' : ')');
}

void bench_print_columns(struct bench_column *c, unsigned n, const char *unit)
{
	double scale;

	for (unsigned i = 0; i < n; i++)
		bench_sort(c[i].v, c[i].n);
	scale = scale_of(c, n, &unit);
	printf("  %-10s", unit);
	for (unsigned i = 0; i < n; i++)
		printf(" %*.*s", NAME_WIDTH - 1, NAME_WIDTH - 1, c[i].name);
	putchar('\n');
	for (unsigned k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		printf("  %-10s", rows[k].name);
		for (unsigned i = 0; i < n; i++)
			print_cell(&rows[k], &c[0], &c[i], scale);
		putchar('\n');
	}
	printf("  %-10s", "samples");
	for (unsigned i = 0; i < n; i++)
		printf(" %12u           ", c[i].n);
	putchar('\n');
}
