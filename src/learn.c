/* SPDX-License-Identifier: MIT */
/* learn.c - see learn.h. */
#include "learn.h"
#include "pagetable.h"

#define BLOCK_DENSE_HITS 3   /* single faults in a block that prove it dense */
#define EXTENT_DENSE_BLOCKS 6 /* dense blocks that prove an extent dense */
#define SEQ_SEEN 32	     /* a window that grew this far was a walk, even if it was cut short */
#define SEQ_DENSE_WINDOW 64  /* a sequential window of this many pages proves it too */
#define DENSITY_ONE 1024
#define DENSITY_WEIGHT 16 /* a probe moves the average by a sixteenth */

static u32 next_random(struct ps_ctx *ctx)
{
	ctx->rng ^= ctx->rng << 13;
	ctx->rng ^= ctx->rng >> 17;
	ctx->rng ^= ctx->rng << 5;
	return ctx->rng;
}

static void density_note(struct pswap *ps, bool dense)
{
	u32 d = relaxed_load(&ps->density);

	d = dense ? d + (DENSITY_ONE - d) / DENSITY_WEIGHT : d - d / DENSITY_WEIGHT;
	relaxed_store(&ps->density, d);
}

static void prove_dense(struct extent *e)
{
	if (e->proven != LEARN_DENSE) {
		if (e->proven == LEARN_PROBING || e->proven == LEARN_UNKNOWN)
			density_note(e->mm->ps, true);
		e->proven = LEARN_DENSE;
	}
	e->order = 9;
}

/* The order at which a stay of e begins, when nothing has been seen in this stay yet. */
static unsigned start_order(struct ps_ctx *ctx, struct extent *e)
{
	u32 d = relaxed_load(&ctx->ps->density);

	switch (e->proven) {
	case LEARN_DENSE:
		return e->order;
	case LEARN_SCATTERED:
	case LEARN_PROBING:
		return 0;
	}
	/* Unknown: a sequential walk inherits from the extent before, else what is usual here. */
	{
		struct extent *prev = pt_find(e->mm, e->addr - 1);

		if (prev && prev->proven == LEARN_DENSE)
			return 9;
	}
	if (d > DENSITY_ONE * 3 / 4 && next_random(ctx) % 8)
		return 9;
	e->proven = LEARN_PROBING;
	return 0;
}

void learn_window(struct ps_ctx *ctx, struct extent *e, unsigned i, u32 flags, unsigned *start,
		  unsigned *end)
{
	unsigned b = i / BLOCK_PAGES;

	if (e->hits == 0)
		e->order = start_order(ctx, e);
	e->hits += e->hits < UINT16_MAX;
	*start = i;
	*end = i + 1;
	if (flags & REGION_RANDOM)
		return;
	if ((flags & REGION_SEQ) || e->order == 9) {
		*start = 0;
		*end = PTRS_PER_PMD;
		return;
	}
	if (i == e->next_page && e->window) {
		/* In order: double the window. */
		unsigned w = MIN(e->window * 2U, PTRS_PER_PMD);

		*end = MIN(i + w, PTRS_PER_PMD);
		if (w >= SEQ_DENSE_WINDOW) {
			prove_dense(e);
			*start = 0;
			*end = PTRS_PER_PMD;
		}
	} else if (++e->block_hits[b] >= BLOCK_DENSE_HITS) {
		*start = b * BLOCK_PAGES;
		*end = *start + BLOCK_PAGES;
		if (e->block_hits[b] == BLOCK_DENSE_HITS && ++e->dense_blocks >= EXTENT_DENSE_BLOCKS) {
			prove_dense(e);
			*start = 0;
			*end = PTRS_PER_PMD;
		}
	}
	e->window = *end - i;
	e->next_page = *end;
}

/* Most of the blocks that were asked for at all proved dense. */
static bool mostly_dense(struct extent *e)
{
	unsigned touched = 0;

	for (unsigned b = 0; b < EXTENT_BLOCKS; b++)
		touched += e->block_hits[b] != 0;
	return e->dense_blocks >= 3 && e->dense_blocks * 3U > touched * 2U;
}

void learn_out(struct ps_ctx *ctx, struct extent *e)
{
	struct pswap *ps = ctx->ps;
	u32 d = relaxed_load(&ps->density);

	if (e->proven == LEARN_PROBING && e->hits && (e->window >= SEQ_SEEN || mostly_dense(e))) {
		/* Taken out in the middle of a walk. */
		prove_dense(e);
	} else if (e->proven == LEARN_PROBING && e->hits) {
		/* The probe did not become dense. */
		density_note(ps, false);
		e->proven = LEARN_SCATTERED;
		e->order = 0;
	} else if (e->proven == LEARN_DENSE) {
		/* Probe a dense one again: one in 32 stays, up to every second when probes fail. */
		unsigned every = d > DENSITY_ONE * 7 / 8 ? 32 : d > DENSITY_ONE / 2 ? 4 : 1;

		if (e->hits && next_random(ctx) % every == 0)
			e->proven = LEARN_PROBING;
	}
	e->hits = 0;
	e->window = 0;
	e->next_page = 0;
	e->dense_blocks = 0;
	e->full = false;
	memset(e->block_hits, 0, sizeof(e->block_hits));
}

/*
 * First touches.  A region that asked for huge pages gets one at once, as the kernel would do.  Else
 * the extent behind a filled one is filled whole (a program walks up its memory), and inside an
 * extent windows grow: a page, 4, 16, 64, then the rest. Sparse memory stays sparse.
 */
void learn_fill(struct ps_ctx *ctx, struct extent *e, unsigned i, u32 flags, unsigned *start,
		unsigned *end)
{
	static const u16 pages[] = { 1, 4, 16, 64, 128, PTRS_PER_PMD };
	struct extent *prev = pt_find(e->mm, e->addr - 1);
	unsigned w;

	if (flags & REGION_RANDOM) {
		*start = i;
		*end = i + 1;
		return;
	}
	if (!(flags & REGION_NOHUGE) && !ctx->ps->cfg.no_thp && e->fill == 0 &&
	    ((flags & REGION_HUGE) || (prev && prev->full))) {
		e->fill = ARRAY_SIZE(pages);
		e->full = true;
		*start = 0;
		*end = PTRS_PER_PMD;
		return;
	}
	if (e->fill >= ARRAY_SIZE(pages)) {
		w = 16;
	} else {
		w = pages[e->fill++];
		if (w == PTRS_PER_PMD)
			e->full = true;
	}
	if (ctx->ps->cfg.no_thp)
		w = MIN(w, PS_BUF_PAGES);
	*start = ALIGN_DOWN(i, w);
	*end = *start + w;
}
