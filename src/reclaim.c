/* SPDX-License-Identifier: MIT */
/*
 * reclaim.c - see reclaim.h: choosing what to do, the workers, throttling.  The two halves of a
 * page-out are in pageout.c.
 */
#include "reclaim.h"
#include "account.h"
#include "cow.h"
#include "event.h"
#include "folio_batch.h"
#include "group.h"
#include "handoff.h"
#include "log.h"
#include "lru.h"
#include "pageout.h"
#include "pagetable.h"
#include "rescan.h"
#include "workingset.h"
#include "writeback.h"

#define CANDIDATES 16		     /* extents looked at in one step before giving up */
#define FULL_NS 50000000ULL	     /* full stores are not tried again for so long */
#define STUCK_NS 5000000000ULL	     /* a throttled thread waits no longer without progress */
#define EMPTY_PASSES 8		     /* workers' vain passes after which nothing is to be had */
#define EMPTY_NS 200000000ULL	     /* and for how long */
#define SLOW_NS 1000000LL	     /* ... but a little: more is no help, and the program a crawl */
#define GIVE_UP_NS 1000000000ULL     /* then nobody waits for so long */
#define SAMPLE_AGE_NS 1000000ULL     /* how old a look at the footprint may be */
#define IDLE_NS 100000000LL
#define TIGHT_NS 10000000LL	     /* other members may need what is ours */
#define LOOMING_NS 2000000LL	     /* shared pages may be copied at any moment */
#define GROUP_STEPS   4 /* for one group, before a worker looks at the others and the engine */

/* Frames are the inactive list: pages wait there for a second chance, which costs a fault. A sixteenth of
 * what is in memory and not compressed. */
static u64 inactive_target(struct pswap *ps)
{
	s64 memory = relaxed_load(&ps->footprint);

	if (ps->cfg.count != PS_COUNT_RESIDENT)
		memory -= (s64)relaxed_load(&ps->pool_bytes);
	return MAX((u64)MAX(memory, 0) / 16 >> PAGE_SHIFT, (u64)PTRS_PER_PMD);
}

/*
 * The n-th lruvec that this thread reclaims from: all there are, or, for a group that is full, its
 * own and that of the extents it shares with others (whose pages stay).  NULL past the last.
 */
static struct lruvec *source(struct ps_ctx *ctx, unsigned n)
{
	struct pswap *ps = ctx->ps;

	if (!ctx->only)
		return group_lruvec(ps, n);
	return n == 0 ? &ps->groups.table[ctx->only].lruvec : n == 1 ? &ps->groups.mixed : NULL;
}

/* Entries in all lists of that kind. */
static u32 list_nr(struct ps_ctx *ctx, enum lru_list list)
{
	struct lruvec *vec;
	u32 nr = 0;

	for (unsigned n = 0; (vec = source(ctx, n)); n++)
		nr += lruvec_nr(vec, list);
	return nr;
}

/* The tail of a list.  With several, each has a chance in proportion to its entries, so that groups
 * give what they have and a small one is not emptied for a large one. */
static struct extent *next_victim(struct ps_ctx *ctx, enum lru_list list)
{
	struct pswap *ps = ctx->ps;
	struct lruvec *vec, *chosen = &ps->lru.root;
	struct folio *f;

	if (ctx->only || groups_on(ps)) {
		u32 nr = list_nr(ctx, list), at;

		ctx->rng = ctx->rng * 1664525 + 1013904223;
		at = nr ? (u32)((u64)ctx->rng * nr >> 32) : 0;
		for (unsigned n = 0; (vec = source(ctx, n)); n++) {
			u32 here = lruvec_nr(vec, list);

			if (here)
				chosen = vec;
			if (at < here)
				break;
			at -= here;
		}
		if (!nr)
			return NULL;
	}
	f = lru_rotate(&ps->lru, chosen, list);
	return f ? folio_extent(f) : NULL;
}

static unsigned try_write(struct ps_ctx *ctx)
{
	unsigned passed = 0, all = ctx->only ? list_nr(ctx, LRU_INACTIVE) : 0;

	for (unsigned i = 0; i < CANDIDATES; i++) {
		struct extent *e = next_victim(ctx, LRU_INACTIVE);
		int n;

		if (!e)
			return 0;
		if (ctx->only && !group_has_pages(e, ctx->only, true)) {
			i -= passed++ < all;
			continue;
		}
		n = extent_write_out(ctx, e, false);
		if (n > 0)
			return n;
		if (n == -ENOSPC) {
			relaxed_store(&ctx->ps->full_until, ps_now_ns() + FULL_NS);
			return 0;
		}
	}
	return 0;
}

static unsigned try_take(struct ps_ctx *ctx)
{
	unsigned spared = 0, passed = 0, all = list_nr(ctx, LRU_ACTIVE);

	for (unsigned i = 0; i < CANDIDATES; i++) {
		struct extent *e = next_victim(ctx, LRU_ACTIVE);
		unsigned n;

		if (!e)
			return 0;
		if (ctx->only && !group_has_pages(e, ctx->only, false)) {
			i -= passed++ < all;
			continue;
		}
		/* Pages came into it since it was last here: a second chance. */
		if (relaxed_load(&e->referenced) && spared < all) {
			relaxed_store(&e->referenced, false);
			spared++;
			i--;
			continue;
		}
		/* Thrown out too early last time. */
		if (spared < 2 * all && workingset_spare(e)) {
			spared++;
			i--;
			continue;
		}
		if (e->skip) {
			e->skip--;
			continue;
		}
		n = extent_take_out(ctx, e, false);
		if (n)
			return n;
	}
	return 0;
}

/* How many pages are in frames, and how many should be: by that it is decided which half comes next. */
struct frames {
	u64 cached, target;
};

static struct frames frames_of(struct pswap *ps, struct pswap_group *g)
{
	if (g)
		return (struct frames){ lruvec_pages(&g->lruvec, LRU_INACTIVE),
					MAX(relaxed_load(&g->limit) / 8, (u64)PTRS_PER_PMD) };
	return (struct frames){ relaxed_load(&ps->cache.nr_pages), inactive_target(ps) };
}

/* One step for everybody (g is NULL), or of the pages of one group. */
static unsigned step(struct ps_ctx *ctx, struct pswap_group *g, bool *progress)
{
	struct pswap *ps = ctx->ps;
	bool full = ps_now_ns() < relaxed_load(&ps->full_until);
	struct frames f;
	unsigned n = 0;

	*progress = false;
	if (reclaim_is_off(ps))
		return 0;
	lru_add_drain_all(&ps->lru);
	ctx->only = g ? g->id : 0;
	/* Handlers take out, workers write: each writer has a segment of its own open. */
	full |= ctx->id < PS_MAX_HANDLERS && ps->cfg.nr_workers;
	f = frames_of(ps, g);
	if (!full && (f.cached > f.target || list_nr(ctx, LRU_ACTIVE) == 0))
		n = try_write(ctx);
	if (!n && f.cached <= 2 * f.target)
		*progress = try_take(ctx) > 0;
	if (!n && !*progress && !full)
		n = try_write(ctx);
	ctx->only = 0;
	if (n) {
		*progress = true;
		ps_event_wake(&ps->freed_ev);
	}
	return n;
}

unsigned reclaim_step(struct ps_ctx *ctx, bool *progress)
{
	return step(ctx, NULL, progress);
}

/* ---- groups ---- */

unsigned reclaim_group_step(struct ps_ctx *ctx, struct pswap_group *g, bool *progress)
{
	unsigned n = step(ctx, g, progress);

	relaxed_add(&g->reclaimed, n);
	return n;
}

static void warn_group(struct pswap_group *g)
{
	if (!atomic_exchange(&g->warned, 1))
		ps_log("a group's limit of %u MiB cannot be kept: %u MiB are in memory and no more "
		       "can be taken out; going on above it",
		       relaxed_load(&g->limit) >> (20 - PAGE_SHIFT),
		       (u64)MAX(relaxed_load(&g->resident), 0) >> (20 - PAGE_SHIFT));
}

void reclaim_throttle_group(struct ps_ctx *ctx, struct pswap_group *g, s64 bytes)
{
	struct pswap *ps = ctx->ps;
	s64 least = INT64_MAX;
	u64 stuck = 0, start;

	relaxed_add(&g->reserved, bytes >> PAGE_SHIFT);
	if (group_room(g) >= 0 || relaxed_load(&ps->swapoff))
		return;
	start = ps_now_ns();
	while (group_room(g) < 0 && relaxed_load(&g->live)) {
		u32 seen = ps_event_get(&ps->freed_ev);
		bool progress;

		ps_event_wake(&ps->reclaim_ev);
		reclaim_group_step(ctx, g, &progress);
		if (progress || relaxed_load(&g->resident) < least) {
			stuck = 0;
			least = relaxed_load(&g->resident);
			if (progress)
				continue;
		}
		if (group_room(g) >= 0)
			break;
		if (ctx->id < PS_MAX_HANDLERS && relaxed_load(&ps->pending_events))
			break;
		if (relaxed_load(&ps->freeze.writers) || relaxed_load(&ps->stop))
			break;
		if (ps_now_ns() < relaxed_load(&g->give_up_until)) {
			ps_event_wait(&ps->freed_ev, seen, SLOW_NS);
			break;
		}
		if (!stuck) {
			stuck = ps_now_ns();
		} else if (ps_now_ns() - stuck > EMPTY_NS) {
			relaxed_store(&g->give_up_until, ps_now_ns() + GIVE_UP_NS);
			warn_group(g);
			break;
		}
		ps_event_wait(&ps->freed_ev, seen, 2000000);
	}
	relaxed_add(&g->throttled_ns, ps_now_ns() - start);
}

void reclaim_group(struct ps_ctx *ctx, struct pswap_group *g)
{
	bool progress = true;

	while (progress && group_room(g) < 0)
		reclaim_group_step(ctx, g, &progress);
}

/* Room for the groups that have little left, some steps each: a group that thrashes must not keep
 * workers from all else. Workers only. True: something was done. */
static bool reclaim_groups(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;
	bool busy = false;

	for (unsigned id = 1; groups_on(ps) && id < relaxed_load(&ps->groups.top); id++) {
		struct pswap_group *g = group_by_id(ps, id);
		bool progress = g && group_room(g) < group_slack(g);

		for (unsigned n = 0; n < GROUP_STEPS && progress && !relaxed_load(&ps->stop) &&
				     relaxed_load(&g->live) && group_room(g) < 2 * group_slack(g);
		     n++) {
			ps_rwlock_read_lock(&ps->freeze);
			reclaim_group_step(ctx, g, &progress);
			ps_rwlock_read_unlock(&ps->freeze);
			busy |= progress;
		}
	}
	return busy;
}

/* Nothing can be had: the workers have said so for a while, or do not get to say anything for long. */
static bool hopeless(struct pswap *ps, u64 since_ns, u32 since_passes)
{
	u64 ns = ps_now_ns() - since_ns;

	return (relaxed_load(&ps->empty_passes) - since_passes >= EMPTY_PASSES && ns > EMPTY_NS) ||
	       ns > STUCK_NS;
}

static void warn_exceeded(struct pswap *ps)
{
	if (ps_warn_once(ps, WARN_EXCEED))
		ps_log("the limit of %u MiB cannot be kept: %u MiB are in use and no more can be "
		       "taken out; going on above it",
		       (u64)account_hard(ps) >> 20, (u64)relaxed_load(&ps->footprint) >> 20);
}

void reclaim_throttle(struct ps_ctx *ctx, s64 bytes)
{
	struct pswap *ps = ctx->ps;
	u64 stuck = 0, start;
	u32 passes = 0;

	relaxed_add(&ps->reserved, bytes);
	if (relaxed_load(&ps->swapoff))
		return;
	if (account_footprint(ps, SAMPLE_AGE_NS) + relaxed_load(&ps->reserved) <= account_gate(ps))
		return;
	start = ps_now_ns();
	/* Alone, a fault may always have what it needs below the limit: others' reservations end. */
	while (account_refresh(ps) + relaxed_load(&ps->reserved) > account_gate(ps)) {
		u32 seen = ps_event_get(&ps->freed_ev);
		bool progress;

		ps_event_wake(&ps->reclaim_ev);
		reclaim_step(ctx, &progress);
		if (progress) {
			stuck = 0;
			continue;
		}
		/* An event keeps pages from being moved: go and read it, the fault waits. */
		if (ctx->id < PS_MAX_HANDLERS && relaxed_load(&ps->pending_events))
			break;
		/* A fork waits for everybody; the workers wait for it. */
		if (relaxed_load(&ps->freeze.writers))
			break;
		/* Given up already: go on, but slowly. */
		if (ps_now_ns() < relaxed_load(&ps->give_up_until)) {
			ps_event_wait(&ps->freed_ev, seen, SLOW_NS);
			break;
		}
		if (!stuck) {
			stuck = ps_now_ns();
			passes = relaxed_load(&ps->empty_passes);
		} else if (hopeless(ps, stuck, passes)) {
			relaxed_store(&ps->give_up_until, ps_now_ns() + GIVE_UP_NS);
			warn_exceeded(ps);
			break;
		}
		ps_event_wait(&ps->freed_ev, seen, 2000000);
	}
	stat_add(ps->stat, throttled_ns, ps_now_ns() - start);
}

/* ---- requested page-out ---- */

static void job_work(struct ps_ctx *ctx)
{
	struct ps_job *job = &ctx->ps->job;

	atomic_fetch_add(&job->running, 1);
	for (;;) {
		u64 addr = atomic_fetch_add(&job->next, PMD_SIZE);
		struct extent *e;
		int ret = 0;

		if (addr >= relaxed_load(&job->end))
			break;
		e = pt_find(job->mm, addr);
		if (!e)
			continue;
		extent_take_out(ctx, e, true);
		if (relaxed_load(&job->write))
			ret = extent_write_out(ctx, e, true);
		if (ret < 0)
			relaxed_store(&job->error, ret);
		if (relaxed_load(&ctx->ps->footprint) > 0 && (addr >> PMD_SHIFT) % 8 == 0)
			account_footprint(ctx->ps, SAMPLE_AGE_NS);
	}
	if (atomic_fetch_sub(&job->running, 1) == 1)
		ps_event_wake(&job->done_ev);
}

int reclaim_range(struct ps_ctx *ctx, struct ps_mm *mm, u64 start, u64 end, bool write)
{
	struct pswap *ps = ctx->ps;
	struct ps_job *job = &ps->job;
	int err;

	ps_mutex_lock(&job->lock);
	job->mm = mm;
	relaxed_store(&job->start, start);
	relaxed_store(&job->end, end);
	relaxed_store(&job->write, write);
	relaxed_store(&job->error, 0);
	atomic_store(&job->next, start & PMD_MASK);
	ps_event_wake(&ps->reclaim_ev);
	job_work(ctx);
	for (;;) {
		u32 seen = ps_event_get(&job->done_ev);

		if (atomic_load(&job->running) == 0)
			break;
		ps_event_wait(&job->done_ev, seen, 10000000);
	}
	err = relaxed_load(&job->error);
	ps_mutex_unlock(&job->lock);
	account_refresh(ps);
	return err == -ENOSPC ? -ENOMEM : err;
}

/* ---- workers ---- */

static bool job_waiting(struct pswap *ps)
{
	return atomic_load(&ps->job.next) < relaxed_load(&ps->job.end);
}

static void housekeep(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;
	bool more = true;

	while (more && !relaxed_load(&ps->stop)) {
		more = false;
		for (unsigned i = 0; i < ps->nr_stores; i++) {
			ps_rwlock_read_lock(&ps->freeze);
			if (ps->stores[i]->ops->housekeep &&
			    (i == ps->ram_area || !relaxed_load(&ps->files_held)))
				more |= ps->stores[i]->ops->housekeep(ps->stores[i], ctx->id);
			ps_rwlock_read_unlock(&ps->freeze);
		}
		if (relaxed_load(&ps->footprint) > account_high(ps))
			break;
	}
}

/* Dead memory in the pool is cheaper to have than memory of the program. One step of it. */
static void tidy_pool(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;

	if (ps->cfg.count == PS_COUNT_RESIDENT)
		return;
	ps_rwlock_read_lock(&ps->freeze);
	for (unsigned i = 0; i < ps->nr_stores; i++) {
		const struct store_ops *ops = ps->stores[i]->ops;

		if (ps->stores[i]->counts_as_memory && ops->wasteful && ops->wasteful(ps->stores[i]) &&
		    ops->housekeep(ps->stores[i], ctx->id))
			ps_event_wake(&ps->freed_ev);
	}
	ps_rwlock_read_unlock(&ps->freeze);
}

static void reap_list(struct ps_ctx *ctx, struct lruvec *vec)
{
	struct pswap *ps = ctx->ps;

	for (u32 n = lruvec_nr(vec, LRU_INACTIVE); n; n--) {
		struct folio *folio = lru_rotate(&ps->lru, vec, LRU_INACTIVE);
		struct extent *e = folio ? folio_extent(folio) : NULL;
		struct frame *f;
		bool dead;

		if (!e)
			break;
		ps_mutex_lock(&e->lock);
		f = e->frame;
		dead = !f || f->nr_live == 0;
		ps_mutex_unlock(&e->lock);
		if (dead)
			extent_write_out(ctx, e, true);
	}
}

/* Frames whose pages were all unmapped: they are at the end of the queue. */
static void reap_frames(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;
	struct lruvec *vec;

	lru_add_drain_all(&ps->lru);
	for (unsigned v = 0; (vec = group_lruvec(ps, v)); v++)
		reap_list(ctx, vec);
}

/* A fault waits for room, though the footprint is in bounds. */
static bool waited_for(struct pswap *ps)
{
	s64 reserved = relaxed_load(&ps->reserved);

	return reserved && relaxed_load(&ps->footprint) + reserved > account_gate(ps);
}

/* When the first worker looks again, if nobody wakes it. */
static s64 idle_ns(struct pswap *ps)
{
	return cow_looming(ps) ? LOOMING_NS : account_tight(ps) ? TIGHT_NS : IDLE_NS;
}

/* The first worker has the clock of the engine: gauges, housekeeping. */
void reclaim_worker(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;
	bool first = ctx->id == PS_MAX_HANDLERS;

	relaxed_store(&ctx->tid, (s32)sys_gettid());
	while (!relaxed_load(&ps->stop)) {
		u32 seen = ps_event_get(&ps->reclaim_ev);
		bool busy = false;

		if (job_waiting(ps)) {
			ps_rwlock_read_lock(&ps->freeze);
			job_work(ctx);
			ps_rwlock_read_unlock(&ps->freeze);
			busy = true;
		}
		if (atomic_exchange(&ps->reap, 0)) {
			ps_rwlock_read_lock(&ps->freeze);
			reap_frames(ctx);
			ps_rwlock_read_unlock(&ps->freeze);
		}
		if (first) {
			handoff_tick(ps);
			cow_tick(ctx);
			event_age_inflight(ps);
			rescan_due(ctx);
		}
		if ((account_refresh(ps) > account_high(ps) || waited_for(ps)) &&
		    !handoff_spare(ctx)) {
			bool progress = true;

			while (progress && !relaxed_load(&ps->stop) &&
			       (account_footprint(ps, SAMPLE_AGE_NS) > account_low(ps) ||
				waited_for(ps))) {
				if (first) {
					cow_tick(ctx);
					tidy_pool(ctx);
				}
				ps_rwlock_read_lock(&ps->freeze);
				reclaim_step(ctx, &progress);
				if (writeback_due(ps))
					progress |= writeback_step(ctx);
				ps_rwlock_read_unlock(&ps->freeze);
				busy |= progress;
				if (groups_on(ps))
					busy |= reclaim_groups(ctx);
			}
			if (!progress)
				relaxed_add(&ps->empty_passes, 1);
		}
		if (groups_on(ps))
			busy |= reclaim_groups(ctx);
		if (first)
			housekeep(ctx);
		if (!busy)
			ps_event_wait(&ps->reclaim_ev, seen, first ? idle_ns(ps) : 10 * IDLE_NS);
	}
}
