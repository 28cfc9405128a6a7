/* SPDX-License-Identifier: MIT */
/* learn.c - see learn.h. */
#include "learn.h"
#include "pagetable.h"

#define CLOSE 16	     /* ticks between two faults that belong together */
#define DENSE_FAULTS 6	     /* close faults in a row that prove a block dense */
#define EXTENT_DENSE_RUN 6   /* blocks in a row that prove an extent dense */
#define SEQ_SEEN 32	     /* a window that grew this far was a walk, even if it was cut short */
#define SEQ_DENSE_WINDOW 64  /* a sequential window of this many pages proves it too */
#define DENSITY_ONE 1024
#define DENSITY_RISE 16 /* a probe that was dense moves the average by a sixteenth, */
#define DENSITY_FALL 4	/* one that was not by a quarter */

static u32 next_random(struct ps_ctx *ctx)
{
	ctx->rng ^= ctx->rng << 13;
	ctx->rng ^= ctx->rng >> 17;
	ctx->rng ^= ctx->rng << 5;
	return ctx->rng;
}

static void density_note(struct pswap *ps, u32 outcome)
{
	u32 d = relaxed_load(&ps->density);

	if (outcome > d)
		d += (outcome - d) / DENSITY_RISE;
	else
		d -= (d - outcome) / DENSITY_FALL;
	relaxed_store(&ps->density, d);
}

static void prove_dense(struct extent *e)
{
	if (e->proven != LEARN_DENSE)
		density_note(e->mm->ps, DENSITY_ONE);
	e->proven = LEARN_DENSE;
	e->order = 9;
}

/* The order at which a stay of e begins. */
static unsigned start_order(struct ps_ctx *ctx, struct extent *e)
{
	u32 d = relaxed_load(&ctx->ps->density);
	struct extent *prev;

	switch (e->proven) {
	case LEARN_DENSE:
		return 9;
	case LEARN_BLOCKS:
		return 4;
	case LEARN_SCATTERED:
	case LEARN_PROBING:
		return 0;
	}
	/* Unknown: a walk inherits from the extent before, else what is usual here. */
	prev = pt_find(e->mm, e->addr - 1);
	if (prev && prev->proven == LEARN_DENSE)
		return 9;
	if (d > DENSITY_ONE * 7 / 8 && next_random(ctx) % 8)
		return 9;
	e->proven = LEARN_PROBING;
	return 0;
}

bool learn_may_map_all(struct extent *e)
{
	return !relaxed_load(&e->in_part);
}

static void publish(struct extent *e)
{
	relaxed_store(&e->in_part, e->proven != LEARN_DENSE && e->proven != LEARN_UNKNOWN &&
					    e->order != 9);
}

static void whole(unsigned *start, unsigned *end)
{
	*start = 0;
	*end = PTRS_PER_PMD;
}

static void block_of(unsigned b, unsigned *start, unsigned *end)
{
	*start = b * BLOCK_PAGES;
	*end = *start + BLOCK_PAGES;
}

/* A block came into use as a whole. True when the extent has had enough of them in a row. */
static bool run_is_dense(struct extent *e, u16 now)
{
	if ((u16)(now - e->run_tick) > CLOSE)
		e->run = 0;
	e->run_tick = now;
	return ++e->run >= EXTENT_DENSE_RUN;
}

/* Page by page: what the faults of one block say. */
static void window_of_block(struct extent *e, unsigned i, bool seen, u16 now, unsigned *start,
			    unsigned *end)
{
	unsigned b = i / BLOCK_PAGES;
	u32 bit = 1U << b;

	e->close[b] = seen && (u16)(now - e->tick[b]) <= CLOSE ? MIN(e->close[b] + 1, DENSE_FAULTS) : 0;
	if (e->close[b] == DENSE_FAULTS) {
		block_of(b, start, end);
		if (!(e->dense & bit) && run_is_dense(e, now)) {
			prove_dense(e);
			whole(start, end);
		}
		e->dense |= bit;
	}
}

void learn_window(struct ps_ctx *ctx, struct extent *e, unsigned i, u32 flags, unsigned *start,
		  unsigned *end)
{
	u16 now = (u16)relaxed_add(&ctx->ps->fault_clock, 1);
	unsigned b = i / BLOCK_PAGES;
	bool seen = e->touched >> b & 1;

	if (e->hits == 0) {
		e->order = start_order(ctx, e);
		e->probe_block = next_random(ctx) % EXTENT_BLOCKS;
	}
	e->hits += e->hits < UINT16_MAX;
	e->touched |= 1U << b;
	*start = i;
	*end = i + 1;
	if ((flags & REGION_RANDOM) || ctx->ps->cfg.around == 1 + 0)
		return;
	if (ctx->ps->cfg.around == 1 + 4) {
		block_of(b, start, end);
		return;
	}
	if ((flags & REGION_SEQ) || ctx->ps->cfg.around == 1 + 9 || e->order == 9) {
		whole(start, end);
		return;
	}
	if (e->window && i == e->next_page && (u16)(now - e->last_tick) <= CLOSE) {
		/* In order: double the window. */
		*end = MIN(i + MIN(e->window * 2U, PTRS_PER_PMD), PTRS_PER_PMD);
		if (*end - i >= SEQ_DENSE_WINDOW) {
			prove_dense(e);
			whole(start, end);
		}
	} else if (e->order == 4 && b != e->probe_block) {
		block_of(b, start, end);
		if (!seen && run_is_dense(e, now)) {
			prove_dense(e);
			whole(start, end);
		}
	} else {
		window_of_block(e, i, seen, now, start, end);
	}
	publish(e);
	e->tick[b] = e->last_tick = now;
	e->window = *end - i;
	e->next_page = *end;
}

/* The order that a stay which began at order 0 speaks for. */
static void judge_pages(struct extent *e)
{
	unsigned touched = __builtin_popcount(e->touched), dense = __builtin_popcount(e->dense);

	if (e->window >= SEQ_SEEN) {
		prove_dense(e); /* taken out in the middle of a walk */
	} else if (dense * 2 >= touched) {
		e->proven = LEARN_BLOCKS;
		density_note(e->mm->ps, DENSITY_ONE / 2);
	} else {
		if (e->proven != LEARN_SCATTERED)
			density_note(e->mm->ps, 0);
		e->proven = LEARN_SCATTERED;
	}
}

void learn_out(struct ps_ctx *ctx, struct extent *e)
{
	u32 d = relaxed_load(&ctx->ps->density), probe = 1U << e->probe_block;

	if (e->hits && e->proven == LEARN_DENSE) {
		/* Probe again: one in 16 stays, all when probes fail. */
		unsigned every = d > DENSITY_ONE * 7 / 8 ? 16 : d > DENSITY_ONE / 2 ? 4 : 1;

		if (next_random(ctx) % every == 0)
			e->proven = LEARN_PROBING;
	} else if (e->hits && e->order == 4) {
		if ((e->touched & probe) && !(e->dense & probe)) {
			e->proven = LEARN_SCATTERED;
			density_note(ctx->ps, 0);
		}
	} else if (e->hits && e->order == 0) {
		judge_pages(e);
	}
	publish(e);
	e->hits = 0;
	e->window = e->next_page = 0;
	e->run = 0;
	e->touched = e->dense = 0;
	e->full = false;
	memset(e->close, 0, sizeof(e->close));
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
	if (!(flags & REGION_NOHUGE) && !ctx->ps->cfg.no_thp && relaxed_load(&e->fill) == 0 &&
	    ((flags & REGION_HUGE) || (prev && prev->full))) {
		relaxed_store(&e->fill, ARRAY_SIZE(pages));
		e->full = true;
		*start = 0;
		*end = PTRS_PER_PMD;
		return;
	}
	if (relaxed_load(&e->fill) >= ARRAY_SIZE(pages)) {
		w = 16;
	} else {
		w = pages[relaxed_add(&e->fill, 1)];
		if (w == PTRS_PER_PMD)
			e->full = true;
	}
	if (ctx->ps->cfg.no_thp)
		w = MIN(w, PS_BUF_PAGES);
	*start = ALIGN_DOWN(i, w);
	*end = *start + w;
}
