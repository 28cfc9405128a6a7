/* SPDX-License-Identifier: MIT */
/*
 * bench_out.c - the figures of a benchmark: as a table, or as the Bench JSON.
 */
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench_sets.h"
#include "cli.h"

static json_t *number(enum bench_kind kind, double v)
{
	/* Nanoseconds of a whole operation are whole; those of a page are not. */
	return bench_limited(kind) || kind == BENCH_TRUNCATE ? json_real(v) : json_integer((json_int_t)(v + 0.5));
}

static void put_u64(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer((json_int_t)v));
}

/* What truncate's sets have besides the common keys. */
static json_t *json_truncate_set(json_t *o, const struct out_set *s)
{
	const struct bench_sample *last = &s->set->samples[s->set->n - 1];
	double *v = malloc(s->set->n * sizeof(*v));

	for (unsigned i = 0; v && i < s->set->n; i++)
		v[i] = s->set->samples[i].value;
	if (v) {
		json_object_set_new(o, "amean", json_real(bench_mean(v, s->set->n)));
		json_object_set_new(o, "stddev", json_real(bench_stddev(v, s->set->n)));
	}
	free(v);
	if (!bench_side_drain(s->set->side) && s->f.median > 0) {
		json_object_set_new(o, "ns_per_page", json_real(s->f.median * (double)BENCH_PAGE /
								(double)BENCH_OBJECT));
		put_u64(o, "object_bytes", BENCH_OBJECT);
	}
	if (strncmp(s->name, "pswap", 5) == 0)
		json_object_set_new(o, "drains_per_object", json_real(last->drains));
	put_u64(o, "cpu_ns", last->cpu_ns);
	return o;
}

static json_t *json_set(const struct bench_result *r, const struct out_set *s)
{
	const struct bench_sample *last = &s->set->samples[s->set->n - 1];
	json_t *o = json_object(), *a = json_array();

	for (unsigned i = 0; i < s->set->n; i++)
		json_array_append_new(a, number(r->kind, bench_sample_value(s, i)));
	json_object_set_new(o, "unit", json_string(s->unit));
	json_object_set_new(o, "samples", a);
	json_object_set_new(o, "median", number(r->kind, s->f.median));
	json_object_set_new(o, "min", number(r->kind, s->f.min));
	json_object_set_new(o, "max", number(r->kind, s->f.max));
	json_object_set_new(o, "spread", json_real(s->f.spread));
	if (s->config)
		json_object_set_new(o, "config", json_string(s->config));
	if (r->kind == BENCH_TRUNCATE)
		return json_truncate_set(o, s);
	if (!bench_limited(r->kind) && r->kind != BENCH_FORK && s->f.median > 0) {
		double size = (double)r->opts->size;

		json_object_set_new(o, "ns_per_page",
				    json_real(s->f.median * (double)BENCH_PAGE / size));
		json_object_set_new(o, "bytes_per_s",
				    json_integer((json_int_t)(size * 1e9 / s->f.median)));
	}
	/* In run mode the engine is a process of its own, whose time nobody adds up. */
	if (r->kind != BENCH_FORK)
		put_u64(o, "cpu_ns", last->cpu_ns);
	put_u64(o, "swapped_pages", last->swapped_pages);
	put_u64(o, "pool_bytes", last->pool_bytes);
	if (r->kind == BENCH_MUNMAP)
		put_u64(o, "pool_after_bytes", last->pool_after_bytes);
	if (bench_limited(r->kind)) {
		put_u64(o, "limit_bytes", last->limit_bytes);
		put_u64(o, "peak_bytes", last->peak_bytes);
	}
	if (r->kind == BENCH_FORK && !bench_side_kernel(s->set->side))
		put_u64(o, "limit_bytes", last->limit_bytes);
	if (bench_side_kernel(s->set->side)) {
		put_u64(o, "folios_out", last->folios_out);
		put_u64(o, "retried", s->set->retried);
	} else {
		put_u64(o, "metadata_bytes", last->metadata_bytes);
		put_u64(o, "peak_pool_bytes", last->peak_pool_bytes);
	}
	return o;
}

static json_t *json_result(const struct bench_result *r)
{
	json_t *o = json_object(), *sets = json_object(), *ratio = json_object();
	const struct bench_sample *last;
	struct utsname un;
	struct out out;

	bench_derive(r, &out);
	json_object_set_new(o, "bench", json_string(bench_kind_name(r->kind)));
	put_u64(o, "size_bytes", r->opts->size);
	json_object_set_new(o, "fill", json_string(bench_fill_name(bench_used_fill(r->kind, r->opts))));
	put_u64(o, "rounds", r->opts->rounds);
	for (unsigned i = 0; i < out.n; i++)
		json_object_set_new(sets, out.sets[i].name, json_set(r, &out.sets[i]));
	json_object_set_new(o, "sets", sets);
	for (unsigned i = 0; i < out.n_ratio; i++)
		json_object_set_new(ratio, out.ratio[i].name, json_real(out.ratio[i].value));
	json_object_set_new(o, "ratio", ratio);
	json_object_set_new(o, "zram_why", *r->zram_why ? json_string(r->zram_why) : json_null());
	if (*r->zram_algorithm && !*r->zram_why)
		json_object_set_new(o, "zram_algorithm", json_string(r->zram_algorithm));

	last = &r->sets[0].samples[r->sets[0].n - 1]; /* the first set of every plan is pswap */
	put_u64(o, "metadata_bytes", last->metadata_bytes);
	put_u64(o, "swapped_pages", last->swapped_pages);
	put_u64(o, "pool_bytes", last->pool_bytes);
	json_object_set_new(o, "counted", json_string(bench_counted(r->kind)));
	if (!uname(&un))
		json_object_set_new(o, "kernel", json_string(un.release));
	put_u64(o, "cpus", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	if (r->n_notes) {
		json_t *notes = json_array();

		for (unsigned i = 0; i < r->n_notes; i++)
			json_array_append_new(notes, json_string(r->notes[i]));
		json_object_set_new(o, "notes", notes);
	}
	return o;
}

/* all: one object that holds the results of the benchmarks; else res[0] alone.  As bench_flush. */
int bench_print_json(const struct bench_opts *opts, struct bench_result *const *res, unsigned n,
		     bool all)
{
	json_t *o;
	int err;

	if (all) {
		json_t *a = json_array();

		for (unsigned i = 0; i < n; i++)
			json_array_append_new(a, json_result(res[i]));
		o = json_object();
		json_object_set_new(o, "bench", json_string("all"));
		put_u64(o, "size_bytes", opts->size);
		put_u64(o, "rounds", opts->rounds);
		json_object_set_new(o, "results", a);
		json_object_set_new(o, "zram_why",
				    *res[0]->zram_why ? json_string(res[0]->zram_why)
						      : json_null());
	} else {
		o = json_result(res[0]);
	}
	err = json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	json_decref(o);
	if (err) {
		cli_warn("bench: cannot write to standard output");
		return EXIT_PSWAP;
	}
	putchar('\n');
	return bench_flush();
}

/* 0, or the exit status after a line on standard error. */
int bench_flush(void)
{
	if (!fflush(stdout) && !ferror(stdout))
		return 0;
	cli_warn("bench: cannot write to standard output");
	return EXIT_PSWAP;
}

static const char *time_text(double ns, char *buf, size_t size)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	unsigned u = 0;

	while (ns >= 10000 && u < 3) {
		ns /= 1000;
		u++;
	}
	if (ns >= 10 && u < 3 && ns >= 1000) {
		ns /= 1000;
		u++;
	}
	snprintf(buf, size,
		 ns < 10 && u	 ? "%.2f %s"
		 : ns < 100 && u ? "%.1f %s"
				 : "%.0f %s",
		 ns, units[u]);
	return buf;
}

static const char *value_text(const struct out_set *s, double v, char *buf, size_t size)
{
	if (!s->figure->bytes)
		return time_text(v, buf, size);
	snprintf(buf, size, "%.2f MiB", v / (1 << 20));
	return buf;
}

static void print_wrapped(const char *text, unsigned width)
{
	while (*text) {
		size_t n = strlen(text), cut = n;

		if (n > width) {
			for (cut = width; cut && text[cut] != ' '; cut--)
				;
			if (!cut)
				cut = width;
		}
		printf("  %.*s\n", (int)cut, text);
		text += cut;
		while (*text == ' ')
			text++;
	}
}

/* The sets named, side by side; fewer than two: nothing. */
static void print_compared(const struct bench_result *r, const char *const *names)
{
	struct bench_column c[3];
	const char *unit = NULL;
	unsigned n = 0;

	for (unsigned i = 0; n < 3 && names[n] && i < r->n_sets; i++) {
		const struct bench_set *set = &r->sets[i];

		if (strcmp(set->name, names[n]))
			continue;
		if (set->dropped || !set->n)
			break;
		unit = bench_set_unit(r->kind, set);
		c[n] = (struct bench_column){ set->name, malloc(set->n * sizeof(double)), set->n };
		if (!c[n].v)
			abort();
		for (unsigned k = 0; k < set->n; k++)
			c[n].v[k] = set->samples[k].value;
		n++;
		i = UINT_MAX;
	}
	if (n > 1) {
		putchar('\n');
		bench_print_columns(c, n, unit);
	}
	while (n)
		free(c[--n].v);
}

static void print_truncate_table(const struct bench_result *r)
{
	static const char *const tables[][4] = {
		{ "pswap_every", "pswap" },
		{ "pswap_huge_every", "pswap_huge" },
		{ "memfd", "pswap", "pswap_huge" },
		{ "memfd_unmapped", "pswap", "pswap_huge" },
		{ "drain_0", "drain_1", "drain_8" },
	};
	struct out out;

	bench_derive(r, &out);
	printf("truncate, %lu objects of 4 MiB, fill %s, %u round%s\n",
	       (unsigned long)(r->opts->size / BENCH_OBJECT), bench_fill_name(bench_used_fill(r->kind, r->opts)),
	       r->opts->rounds, r->opts->rounds == 1 ? "" : "s");
	print_wrapped(bench_counted(r->kind), 92);
	for (unsigned i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		print_compared(r, tables[i]);
	putchar('\n');
	for (unsigned i = 0; i < out.n_ratio; i++)
		printf("%s%s %.2fx", i ? ", " : "  ", out.ratio[i].name, out.ratio[i].value);
	printf("  (medians; over 1: pswap is faster)\n");
	print_wrapped("Percent: over 0 is better than the first column. *...*: the means differ at the "
		      "5 % level (Welch's t test).",
		      92);
	for (unsigned i = 0; i < r->n_notes; i++)
		printf("  note: %s\n", r->notes[i]);
}

void bench_print_table(const struct bench_result *r)
{
	const struct bench_sample *last = &r->sets[0].samples[r->sets[0].n - 1];
	char a[32], b[32], c[32], d[32];
	struct out out;

	if (r->kind == BENCH_TRUNCATE) {
		print_truncate_table(r);
		return;
	}
	bench_derive(r, &out);
	printf("%s, %lu MiB, fill %s, %u round%s%s%s\n", bench_kind_name(r->kind),
	       (unsigned long)(r->opts->size >> 20), bench_fill_name(bench_used_fill(r->kind, r->opts)), r->opts->rounds,
	       r->opts->rounds == 1 ? "" : "s", *r->zram_why ? "" : ", peer: kernel swap on zram, ",
	       *r->zram_why ? "" : r->zram_algorithm);
	print_wrapped(bench_counted(r->kind), 92);
	printf("  %-18s %10s %10s %10s %7s %10s %9s %10s\n", "", "median", "min", "max", "spread",
	       "CPU", "swapped", "pool");
	for (unsigned i = 0; i < out.n; i++) {
		const struct out_set *s = &out.sets[i];
		const struct bench_sample *p = &s->set->samples[s->set->n - 1];

		if (s->config)
			continue;
		printf("  %-18s %10s %10s %10s %6.0f%% %10s %7luMi %8.1fMi\n", s->name,
		       value_text(s, s->f.median, a, sizeof(a)),
		       value_text(s, s->f.min, b, sizeof(b)), value_text(s, s->f.max, c, sizeof(c)),
		       100 * s->f.spread,
		       p->cpu_ns ? time_text((double)p->cpu_ns, d, sizeof(d)) : "",
		       (unsigned long)(p->swapped_pages * BENCH_PAGE >> 20),
		       (double)p->pool_bytes / (1 << 20));
	}
	for (unsigned i = 0; i < out.n_ratio; i++)
		printf("%s%s %.2fx", i ? ", " : "  ", out.ratio[i].name, out.ratio[i].value);
	if (out.n_ratio)
		printf("  (over 1: pswap takes less)\n");
	if (last->swapped_pages)
		printf("  pswap's metadata: %.2f%% of the swapped bytes\n",
		       100.0 * (double)last->metadata_bytes /
			       (double)(last->swapped_pages * BENCH_PAGE));
	if (*r->zram_why)
		printf("  no peer: %s\n", r->zram_why);
	for (unsigned i = 0; i < r->n_notes; i++)
		printf("  note: %s\n", r->notes[i]);
}
