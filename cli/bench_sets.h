/* SPDX-License-Identifier: MIT */
/* bench_sets.h - the sets of a benchmark as they are reported (bench_sets.c). */
#ifndef BENCH_SETS_H
#define BENCH_SETS_H

#include "bench.h"

/* Sets as they are reported: the sampled ones and those made of them. */
struct out_set {
	const char *name;
	const struct bench_set *set;
	bool returned;	    /* samples are bench_sample.returned */
	const char *config; /* the set that this one repeats, as the best of several */
	struct bench_figures f;
};

struct out {
	struct out_set sets[BENCH_MAX_SETS + 3];
	unsigned n;
	struct {
		const char *name;
		double value;
	} ratio[8];
	unsigned n_ratio;
};

double bench_sample_value(const struct out_set *s, unsigned i);
/* What r has to say. */
void bench_derive(const struct bench_result *r, struct out *o);
/* A sentence that says what the figures are. */
const char *bench_counted(enum bench_kind kind);

#endif
