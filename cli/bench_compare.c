/* SPDX-License-Identifier: MIT */
/* bench_compare.c - `pswap bench compare`: saved results (--json) side by side. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cli.h"

#define MAX_FILES   3
#define MAX_COLUMNS 3

struct compare {
	const char *files[MAX_FILES];
	json_t *roots[MAX_FILES];
	unsigned n_files;
	char *sets[MAX_COLUMNS];
	unsigned n_sets;
	bool check; /* the first pass: everything is read, nothing printed */
	unsigned printed;
};

enum {
	OPT_SETS = 256
};

static const struct argp_option options[] = {
	{ "sets", OPT_SETS, "A,B[,C]", 0,
	  "The sets to show; with one FILE: two or three, side by side", 0 },
	{ 0 },
};

static void parse_sets(struct compare *c, char *arg)
{
	char *save, *name = strtok_r(strdup(arg), ",", &save);

	for (; name; name = strtok_r(NULL, ",", &save)) {
		if (c->n_sets == MAX_COLUMNS)
			cli_fail("bench compare: --sets %s: takes at most three names", arg);
		c->sets[c->n_sets++] = name;
	}
	if (!c->n_sets)
		cli_fail("bench compare: --sets: takes names of sets: A,B[,C]");
}

static error_t parse_opt(int key, char *arg, struct argp_state *state)
{
	struct compare *c = state->input;

	switch (key) {
	case OPT_SETS:
		parse_sets(c, arg);
		return 0;
	case ARGP_KEY_ARG:
		if (c->n_files == MAX_FILES)
			cli_fail("bench compare: %s: takes at most three files", arg);
		c->files[c->n_files++] = arg;
		return 0;
	case ARGP_KEY_END:
		if (!c->n_files || (c->n_files == 1 && c->n_sets < 2))
			cli_fail("bench compare: takes two or three files of `pswap bench --json`, "
				 "or one and --sets A,B");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse_opt,
	.args_doc = "FILE [FILE [FILE]]",
	.doc = "Compares results that `pswap bench NAME --json` wrote: the sets that all files have, "
	       "a column for each file; or sets of one file, a column for each set.\v"
	       "Percentages are of the first column; over 0 is better.  Asterisks in place of "
	       "brackets: the means differ at the 5 % level by Welch's t test (means of the best N "
	       "percent: by Yuen's form of it).",
};

static const char *bench_of(const char *file, json_t *o)
{
	const char *name = json_string_value(json_object_get(o, "bench"));

	if (!name)
		cli_fail("bench compare: %s: not a result of `pswap bench --json`", file);
	return name;
}

static void load(struct compare *c, unsigned i)
{
	json_error_t err;

	c->roots[i] = json_load_file(c->files[i], 0, &err);
	if (!c->roots[i] && err.line > 0)
		cli_fail("bench compare: %s: broken JSON in line %d: %s", c->files[i], err.line,
			 err.text);
	if (!c->roots[i])
		cli_fail("bench compare: %s", err.text); /* names the file */
	if (strcmp(bench_of(c->files[0], c->roots[0]), bench_of(c->files[i], c->roots[i])))
		cli_fail("bench compare: %s is of %s, %s of %s", c->files[0],
			 bench_of(c->files[0], c->roots[0]), c->files[i],
			 bench_of(c->files[i], c->roots[i]));
}

static const char *unit_of(json_t *set)
{
	const char *unit = json_string_value(json_object_get(set, "unit"));

	return unit ? unit : "";
}

static void read_samples(const char *file, const char *name, json_t *set, struct bench_column *c)
{
	json_t *a = json_object_get(set, "samples"), *v;
	size_t i;

	if (!json_array_size(a) || json_array_size(a) > 100000000)
		cli_fail("bench compare: %s: set %s has no samples", file, name);
	c->n = (unsigned)json_array_size(a);
	c->v = malloc(c->n * sizeof(*c->v));
	if (!c->v)
		cli_fail("bench compare: out of memory");
	json_array_foreach(a, i, v) {
		if (!json_is_number(v) || !isfinite(json_number_value(v)))
			cli_fail("bench compare: %s: set %s: a sample is not a number", file, name);
		c->v[i] = json_number_value(v);
	}
}

static void print_and_free(struct compare *c, struct bench_column *col, unsigned n,
			   const char *unit, const char *bench, const char *what)
{
	if (!c->check) {
		printf("%s%s: %s\n", c->printed ? "\n" : "", bench, what);
		bench_print_columns(col, n, unit);
	}
	for (unsigned i = 0; i < n; i++)
		free(col[i].v);
	c->printed++;
}

static bool wanted(const struct compare *c, const char *set)
{
	for (unsigned i = 0; i < c->n_sets; i++)
		if (!strcmp(c->sets[i], set))
			return true;
	return !c->n_sets;
}

static void say_if_different(const struct compare *c, json_t *const *res, const char *key)
{
	for (unsigned i = 1; i < c->n_files && !c->check; i++)
		if (!json_equal(json_object_get(res[0], key), json_object_get(res[i], key)))
			printf("note: %s differs\n", key);
}

/* One benchmark, of each file: a table for each set that all have. */
static void compare_files(struct compare *c, json_t *const *res)
{
	json_t *sets = json_object_get(res[0], "sets"), *set;
	const char *name;

	say_if_different(c, res, "size_bytes");
	say_if_different(c, res, "fill");
	json_object_foreach(sets, name, set) {
		struct bench_column col[MAX_FILES];
		unsigned n = 0;

		if (!wanted(c, name))
			continue;
		for (; n < c->n_files; n++) {
			json_t *s = json_object_get(json_object_get(res[n], "sets"), name);

			if (!s)
				break;
			if (strcmp(unit_of(s), unit_of(set)))
				cli_fail("bench compare: set %s: unit %s in %s, %s in %s", name,
					 unit_of(set), c->files[0], unit_of(s), c->files[n]);
			col[n].name = c->files[n];
			read_samples(c->files[n], name, s, &col[n]);
		}
		if (n < c->n_files)
			continue;
		/* Names of files that are too long: the end tells them apart. */
		for (unsigned i = 0; i < n; i++)
			if (strlen(col[i].name) > BENCH_COLUMN)
				col[i].name += strlen(col[i].name) - BENCH_COLUMN;
		print_and_free(c, col, n, unit_of(set), bench_of(c->files[0], res[0]), name);
	}
}

/* The sets of one file side by side. */
static void compare_sets(struct compare *c, json_t *res)
{
	struct bench_column col[MAX_COLUMNS];
	const char *unit = NULL;

	for (unsigned i = 0; i < c->n_sets; i++) {
		json_t *s = json_object_get(json_object_get(res, "sets"), c->sets[i]);

		if (!s)
			return;
		if (unit && strcmp(unit, unit_of(s)))
			cli_fail("bench compare: --sets: %s is in %s, %s in %s", c->sets[0], unit,
				 c->sets[i], unit_of(s));
		unit = unit_of(s);
		col[i].name = c->sets[i];
		read_samples(c->files[0], c->sets[i], s, &col[i]);
	}
	print_and_free(c, col, c->n_sets, unit, bench_of(c->files[0], res), c->files[0]);
}

static void compare_one(struct compare *c, json_t *const *res)
{
	if (c->n_files == 1)
		compare_sets(c, res[0]);
	else
		compare_files(c, res);
}

/* `bench all`: the benchmarks that all files have, by name. */
static void compare_all(struct compare *c)
{
	json_t *list = json_object_get(c->roots[0], "results"), *first;
	size_t k;

	json_array_foreach(list, k, first) {
		json_t *res[MAX_FILES] = { first };
		const char *name = bench_of(c->files[0], first);
		unsigned n = 1;

		for (; n < c->n_files; n++) {
			json_t *o;
			size_t i;

			json_array_foreach(json_object_get(c->roots[n], "results"), i, o) {
				if (!strcmp(bench_of(c->files[n], o), name))
					res[n] = o;
			}
			if (!res[n])
				break;
		}
		if (n == c->n_files)
			compare_one(c, res);
	}
}

static void compare_results(struct compare *c)
{
	if (!strcmp(bench_of(c->files[0], c->roots[0]), "all"))
		compare_all(c);
	else
		compare_one(c, c->roots);
}

int cmd_bench_compare(int argc, char **argv)
{
	struct compare c = { 0 };

	/* In order, so that an error names the right word. */
	cli_parse(&argp, "bench compare", argc, argv, true, &c);
	for (unsigned i = 0; i < c.n_files; i++)
		load(&c, i);
	c.check = true;
	compare_results(&c);
	if (!c.printed && c.n_sets)
		cli_fail("bench compare: --sets: no result has all of these sets");
	if (!c.printed)
		cli_fail("bench compare: the files have no set in common");
	c.check = false;
	c.printed = 0;
	compare_results(&c);
	for (unsigned i = 0; i < c.n_files; i++)
		json_decref(c.roots[i]);
	return bench_flush();
}
