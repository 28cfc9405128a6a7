/* SPDX-License-Identifier: MIT */
/* bench_sets.h - the sets of a benchmark as they are reported (bench_sets.c). */
#ifndef BENCH_SETS_H
#define BENCH_SETS_H

#include "bench.h"

#define OUT_SETS  24 /* fork has 21: five figures of three sets and of the better one, and one */
#define OUT_RATIO 8

/* One of the figures that a sample has. */
struct out_figure {
	const char *suffix; /* of the set's name */
	size_t at;	    /* of the double in a struct bench_sample */
	bool bytes;	    /* or the benchmark's unit */
};

/* Sets as they are reported: the sampled ones and those made of them. */
struct out_set {
	char name[24];
	const struct bench_set *set;
	const struct out_figure *figure;
	const char *unit;
	const char *config; /* the set that this one repeats, as the best of several */
	struct bench_figures f;
};

struct out {
	struct out_set sets[OUT_SETS];
	unsigned n;
	struct {
		const char *name;
		double value;
	} ratio[OUT_RATIO];
	unsigned n_ratio;
};

const char *bench_set_unit(enum bench_kind kind, const struct bench_set *set);
double bench_sample_value(const struct out_set *s, unsigned i);
/* What r has to say. */
void bench_derive(const struct bench_result *r, struct out *o);
/* A sentence that says what the figures are. */
const char *bench_counted(enum bench_kind kind);

#endif
