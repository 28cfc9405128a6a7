/* SPDX-License-Identifier: MIT */
/*
 * test_group_mt.c - eight threads at extents, folio batches, lists, groups and clones, as the
 * engine's own threads would be, but without a userfaultfd: faults, page-outs, unmaps, clones,
 * moves between groups, groups that come and go.  Written for ThreadSanitizer; what each page holds
 * is checked all the time, and at the end that each folio is on one list, charges sum up and no
 * count is lost.
 *
 * OPS=n in the environment: operations in all (default 400,000, under ThreadSanitizer 120,000;
 * FULL=1: 10^7).
 *
 * timeout: 3600
 */
#include "api_fixture.h"

#include <pthread.h>

#include "arena.h"
#include "clone.h"
#include "region.h"
#include "swap_cache.h"
#include "swap_mock.h"
#include "zap.h"

#define THREADS	     8
#define EXTENTS	     48U
#define BASE	     (1ULL << 33)
#define PAGES_IN_ALL (EXTENTS * PTRS_PER_PMD)
#define CLUSTERS     128U
#define NR_GROUPS    6U
#ifdef __SANITIZE_THREAD__
#define DEFAULT_OPS 120000
#else
#define DEFAULT_OPS 400000
#endif

static struct pswap engine;
static struct ps_member member;
static struct mock_store *mock;
static struct pswap_group *group[NR_GROUPS];

/* What each page holds, and what each slot does. Pages: of who holds extent.io and the gate, or the
 * gate exclusively. Slots: of who owns their data. */
static u32 value[PAGES_IN_ALL];
static u32 content[CLUSTERS * SWAPFILE_CLUSTER];
static _Atomic u32 next_value;
static _Atomic s64 ops_left;
static _Atomic unsigned failures;
static _Atomic u64 done[6], evicted;

#define CHECK(x)                                                        \
	do {                                                            \
		if (!(x) && relaxed_add(&failures, 1) == 0)             \
			fprintf(stderr, "line %d: %s\n", __LINE__, #x); \
	} while (0)

static u32 rnd(u64 *s, u32 n)
{
	*s += 0x9e3779b97f4a7c15ULL;
	return (u32)(mix(*s) >> 33) % n;
}

static struct extent *extent(unsigned k)
{
	struct extent *e = pt_get(&ps->mm, BASE + k * PMD_SIZE);

	CHECK(e);
	return e;
}

static u32 *values(const struct extent *e)
{
	return &value[(e->addr - BASE) >> PAGE_SHIFT];
}

/* A range of pages in an extent: one, a block, or all. */
static void range(u64 *seed, unsigned *i, unsigned *last)
{
	static const u16 sizes[] = { 1, 3, 16, 16, 50, 200, 512 };
	unsigned n = sizes[rnd(seed, ARRAY_SIZE(sizes))];

	*i = rnd(seed, PTRS_PER_PMD - n + 1);
	*last = *i + n;
}

/* One page is asked for. False: its slot is being read. io and gate held. */
static bool bring_back(struct extent *e, unsigned i)
{
	swp_entry_t entry;
	pte_t pte;

	ps_mutex_lock(&e->lock);
	pte = pte_get(e, i);
	ps_mutex_unlock(&e->lock);
	if (pte_kind(pte) == PTE_NONE) {
		CHECK(present_test(e, i) || values(e)[i] == 0);
	} else if (pte_kind(pte) == PTE_SWAP) {
		entry = pte_to_swp(pte);
		if (swapcache_prepare(&ps->swap, entry, 1))
			return false;
		CHECK(mock->live[swp_offset(entry)]);
		CHECK(content[swp_offset(entry)] == values(e)[i]);
		ps_mutex_lock(&e->lock);
		pte_set(e, i, pte_make(PTE_NONE));
		group_count_in(e, i, groups_on(ps) ? 1 : 0);
		ps_mutex_unlock(&e->lock);
		swapcache_free(&ps->swap, entry, 1);
		free_swap_and_cache_nr(&ps->swap, entry, 1);
	} else {
		ps_mutex_lock(&e->lock);
		pte_set(e, i, pte_make(PTE_NONE));
		ps_mutex_unlock(&e->lock);
	}
	ps_mutex_lock(&e->lock);
	present_set(e, i, 1);
	ps_mutex_unlock(&e->lock);
	return true;
}

/* The frame of e is empty, or is to be. io held, gate not. */
static void drop_frame(struct extent *e)
{
	struct frame *f = e->frame;

	ps_mutex_lock(&e->lock);
	extent_set_frame(e, NULL);
	ps_mutex_unlock(&e->lock);
	frame_release(ps, f);
}

/* Its frame has no page left: an unmap may have taken the last one. io held. */
static bool frame_dead(struct extent *e, bool *present)
{
	bool dead;

	ps_mutex_lock(&e->lock);
	dead = e->frame && !e->frame->nr_live;
	*present = e->nr_present;
	ps_mutex_unlock(&e->lock);
	return dead;
}

static void fault(u64 *seed)
{
	bool present;
	struct extent *e = extent(rnd(seed, EXTENTS));
	unsigned i, last;

	range(seed, &i, &last);
	ps_mutex_lock(&e->io);
	ps_rwlock_read_lock(&ps->mm.gate);
	if (groups_on(ps) && !relaxed_load(&e->grouped))
		group_sync(e);
	for (; i < last; i++)
		if (bring_back(e, i) && rnd(seed, 2))
			values(e)[i] = relaxed_add(&next_value, 1) + 1;
	ps_rwlock_read_unlock(&ps->mm.gate);
	if (frame_dead(e, &present)) {
		drop_frame(e);
		folio_activate(&ps->lru, &e->folio);
	}
	folio_add_lru(&ps->lru, &e->folio);
	ps_mutex_unlock(&e->io);
}

/* Pages of a group, or of all, go into a frame. io held. */
static unsigned take(struct extent *e, u16 only)
{
	struct frame *f = frame_alloc(ps, e);
	unsigned n = 0;

	CHECK(f);
	ps_rwlock_read_lock(&ps->mm.gate);
	ps_mutex_lock(&e->lock);
	extent_set_frame(e, f);
	if (!e->groups && !only && e->nr_present == PTRS_PER_PMD && e->pmd == PMD_NONE) {
		present_clear(e, 0, PTRS_PER_PMD);
		pmd_set_cached(e);
		n = PTRS_PER_PMD;
	}
	for (unsigned i = 0; i < PTRS_PER_PMD && !n; i++)
		if (present_test(e, i) && (!only || extent_group(e, i) == only)) {
			present_clear(e, i, 1);
			pte_set(e, i, pte_make(PTE_CACHED));
		}
	n = f->nr_live;
	f->nr_pages = n;
	relaxed_add(&ps->cache.nr_pages, n);
	ps_mutex_unlock(&e->lock);
	ps_rwlock_read_unlock(&ps->mm.gate);
	if (!n)
		drop_frame(e);
	else
		folio_deactivate(&ps->lru, &e->folio);
	return n;
}

/* As install() in page_io.c. io held. */
static void write_out(struct ps_ctx *ctx, struct extent *e)
{
	struct swapfile *sf = &ps->swap;
	unsigned n = 0, got;

	ps_rwlock_read_lock(&ps->mm.gate);
	ps_mutex_lock(&e->lock);
	for (unsigned i = 0; i < PTRS_PER_PMD; i++)
		if (pte_kind(pte_get(e, i)) == PTE_CACHED)
			ctx->index[n++] = i;
	ps_mutex_unlock(&e->lock);
	ps_rwlock_read_unlock(&ps->mm.gate);
	got = n ? swap_alloc_pages(sf, 0, ctx->id, n, ctx->entries) : 0;
	for (unsigned k = 0; k < got; k++)
		mock_write(&mock->st, swp_offset(ctx->entries[k]), 1);
	ps_rwlock_read_lock(&ps->mm.gate);
	ps_mutex_lock(&e->lock);
	if (got == PTRS_PER_PMD && e->pmd == PMD_CACHED &&
	    ctx->entries[511].val == ctx->entries[0].val + 511) {
		for (unsigned k = 0; k < got; k++)
			content[swp_offset(ctx->entries[k])] = values(e)[k];
		CHECK(swap_duplicate(sf, ctx->entries[0], got) == 0);
		pmd_set_swap(e, ctx->entries[0]);
		if (groups_on(ps))
			group_charge_swap(e, 0, ctx->entries[0], got);
	}
	for (unsigned k = 0; k < got && e->pmd != PMD_SWAP; k++) {
		if (pte_kind(pte_get(e, ctx->index[k])) != PTE_CACHED)
			continue;
		content[swp_offset(ctx->entries[k])] = values(e)[ctx->index[k]];
		CHECK(swap_duplicate(sf, ctx->entries[k], 1) == 0);
		pte_set(e, ctx->index[k], pte_swap(ctx->entries[k]));
		if (groups_on(ps))
			group_charge_swap(e, ctx->index[k], ctx->entries[k], 1);
	}
	ps_mutex_unlock(&e->lock);
	ps_rwlock_read_unlock(&ps->mm.gate);
	for (unsigned k = 0, nr; k < got; k += nr) {
		nr = swap_entry_batch(sf, ctx->entries + k, got - k);
		swapcache_free(sf, ctx->entries[k], nr);
	}
	relaxed_add(&evicted, got);
}

static void evict(struct ps_ctx *ctx, u64 *seed)
{
	struct lruvec *vec = group_lruvec(ps, rnd(seed, NR_GROUPS + 2));
	struct folio *f = vec ? lru_rotate(&ps->lru, vec, LRU_ACTIVE + rnd(seed, 2)) : NULL;
	struct extent *e = f ? folio_extent(f) : extent(rnd(seed, EXTENTS));
	struct pswap_group *g;
	bool present;
	u16 only = 0;

	if (rnd(seed, 3) == 0 && (g = group_by_id(ps, 1 + rnd(seed, NR_GROUPS))))
		only = g->id;
	if (!ps_mutex_trylock(&e->io))
		return;
	if (!e->frame)
		take(e, only);
	if (e->frame && rnd(seed, 3))
		write_out(ctx, e);
	if (frame_dead(e, &present)) {
		drop_frame(e);
		if (present)
			folio_activate(&ps->lru, &e->folio);
		else
			folio_del_lru(&e->folio);
	}
	ps_mutex_unlock(&e->io);
}

static void unmap_some(u64 *seed)
{
	unsigned first = rnd(seed, PAGES_IN_ALL), n = 1 + rnd(seed, rnd(seed, 8) ? 100 : 1200);
	u64 start = BASE + PAGES(first);

	n = MIN(n, PAGES_IN_ALL - first);
	ps_rwlock_write_lock(&ps->mm.gate);
	zap_range(&ps->mm, start, start + PAGES(n), 0);
	memset(value + first, 0, n * sizeof(u32));
	ps_rwlock_write_unlock(&ps->mm.gate);
}

static void clone_some(struct ps_ctx *ctx, u64 *seed)
{
	struct extent *e = extent(rnd(seed, EXTENTS)), *d = extent(rnd(seed, EXTENTS));
	u64 rest[PTRS_PER_PMD / 64];
	unsigned i, last;

	if (e == d)
		return;
	range(seed, &i, &last);
	/* The engine needs no lock of d: nobody knows the address. Here everybody does. */
	ps_mutex_lock(e < d ? &e->io : &d->io);
	ps_mutex_lock(e < d ? &d->io : &e->io);
	ps_rwlock_write_lock(&ps->mm.gate);
	zap_range(&ps->mm, pt_addr(d, i), pt_addr(d, i) + PAGES(last - i), 0);
	memset(values(d) + i, 0, (last - i) * sizeof(u32));
	ps_rwlock_write_unlock(&ps->mm.gate);
	ps_rwlock_read_lock(&ps->mm.gate);
	CHECK(clone_share(ctx, e, d, i, last, rest) == 0);
	for (; i < last; i++)
		if (!(rest[i / 64] >> (i % 64) & 1))
			values(d)[i] = values(e)[i];
	ps_rwlock_read_unlock(&ps->mm.gate);
	ps_mutex_unlock(&e->io);
	ps_mutex_unlock(&d->io);
}

static void move_some(u64 *seed)
{
	unsigned first = rnd(seed, PAGES_IN_ALL), n = 1 + rnd(seed, rnd(seed, 4) ? 64 : 1500), k;
	struct pswap_group *g = NULL;

	n = MIN(n, PAGES_IN_ALL - first);
	k = rnd(seed, NR_GROUPS + 1);
	ps_mutex_lock(&ps->groups.lock);
	if (k < NR_GROUPS)
		g = group[k];
	ps_rwlock_write_lock(&ps->mm.gate);
	if (groups_on(ps))
		CHECK(group_move_range(&ps->mm, BASE + PAGES(first), BASE + PAGES(first + n), g) ==
		      0);
	ps_rwlock_write_unlock(&ps->mm.gate);
	ps_mutex_unlock(&ps->groups.lock);
}

static void regroup(u64 *seed)
{
	unsigned k = rnd(seed, NR_GROUPS);
	bool none = rnd(seed, 20) == 0;

	ps_mutex_lock(&ps->groups.lock);
	for (unsigned i = 0; i < NR_GROUPS; i++) {
		if (group[i] && (none || i == k)) {
			group_delete(group[i]);
			group[i] = NULL;
		} else if (i == k) {
			CHECK(group_create(ps, MiB(8), &group[k]) == 0);
		}
	}
	ps_mutex_unlock(&ps->groups.lock);
}

static void *worker(void *arg)
{
	struct ps_ctx *ctx = arg;
	u64 seed = ctx->id * 1000003 + 1;

	while (relaxed_sub(&ops_left, 1) > 0) {
		unsigned what = rnd(&seed, 128), op;

		op = what < 60	  ? 0
		     : what < 100 ? 1
		     : what < 106 ? 2
		     : what < 120 ? 3
		     : what < 126 ? 4
				  : 5;
		switch (op) {
		case 0:
			fault(&seed);
			break;
		case 1:
			evict(ctx, &seed);
			break;
		case 2:
			unmap_some(&seed);
			break;
		case 3:
			clone_some(ctx, &seed);
			break;
		case 4:
			move_some(&seed);
			break;
		default:
			if (rnd(&seed, 8) == 0)
				regroup(&seed);
		}
		relaxed_add(&done[op], 1);
	}
	return NULL;
}

/* Each slot is referred to by as many ptes as its count says, each folio on the list it should be.
 */
static void check_end(void)
{
	static u32 uses[CLUSTERS * SWAPFILE_CLUSTER];
	u64 on_lists = 0, listed = 0;
	struct lruvec *vec;

	memset(uses, 0, sizeof(uses));
	check_all();
	for (unsigned k = 0; k < EXTENTS; k++) {
		struct extent *e = extent(k);

		folio_recount(&e->folio);
		assert_int_equal(relaxed_load(&e->folio.pending), 0);
		if (relaxed_load(&e->folio.list) != LRU_NONE)
			assert_int_equal(e->folio.list, e->folio.want);
		else
			assert_true(!relaxed_load(&e->folio.pages) || !e->folio.want);
		listed += relaxed_load(&e->folio.list) != LRU_NONE;
		for (unsigned i = 0; i < PTRS_PER_PMD; i++) {
			pte_t pte = pte_get(e, i);

			if (pte_kind(pte) != PTE_SWAP)
				continue;
			uses[swp_offset(pte_to_swp(pte))]++;
			assert_int_equal(content[swp_offset(pte_to_swp(pte))], values(e)[i]);
		}
	}
	for (unsigned s = 0; s < CLUSTERS * SWAPFILE_CLUSTER; s++) {
		assert_int_equal(swap_count(&ps->swap, swp_entry(0, s), NULL), uses[s]);
		assert_int_equal(mock->live[s], uses[s] != 0);
	}
	for (unsigned n = 0; (vec = group_lruvec(ps, n)); n++)
		on_lists += lruvec_nr(vec, LRU_ACTIVE) + lruvec_nr(vec, LRU_INACTIVE);
	assert_int_equal(on_lists, listed);
}

static void run_threads(enum swap_free_mode mode)
{
	const char *full = getenv("FULL"), *ops = getenv("OPS");
	struct ps_ctx *ctx[THREADS];
	pthread_t t[THREADS];
	struct swapfile_stat st;
	u64 total = 0;

	memset(&engine, 0, sizeof(engine));
	memset(&member, 0, sizeof(member));
	memset(value, 0, sizeof(value));
	memset((void *)done, 0, sizeof(done));
	evicted = 0;
	ps = &engine;
	ps->stat = &member;
	ps->mm.ps = ps;
	ps->mm.uffd = -1;
	ps->swap.free_mode = mode;
	ps->swap.uncharge = group_uncharge_swap;
	ps->swap.ctx = ps;
	mock = mock_open(CLUSTERS * SWAPFILE_CLUSTER);
	assert_int_equal(swapfile_add_area(&ps->swap, &mock->st), 0);
	assert_int_equal(pt_init(&ps->mm), 0);
	assert_int_equal(region_add(&ps->mm, BASE, BASE + PAGES(PAGES_IN_ALL), 0), 0);
	relaxed_store(&ops_left, (s64)(ops    ? strtoull(ops, NULL, 10)
				       : full ? 10000000
					      : DEFAULT_OPS) /
					 2);
	for (unsigned i = 0; i < THREADS; i++) {
		ctx[i] = arena_map(sizeof(*ctx[i]));
		assert_non_null(ctx[i]);
		ctx[i]->ps = ps;
		ctx[i]->id = i;
		assert_int_equal(pthread_create(&t[i], NULL, worker, ctx[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (unsigned i = 0; i < 6; i++)
		total += done[i];
	printf("%lu operations: %lu faults, %lu evictions, %lu unmaps, %lu clones, %lu moves; %lu "
	       "pages "
	       "written, %lu shared\n",
	       (unsigned long)total, (unsigned long)done[0], (unsigned long)done[1],
	       (unsigned long)done[2], (unsigned long)done[3], (unsigned long)done[4],
	       (unsigned long)evicted, (unsigned long)ps->pages_cloned);
	assert_int_equal(failures, 0);
	assert_true(total && ps->pages_cloned && evicted);
	check_end();
	for (unsigned i = 0; i < NR_GROUPS; i++) {
		if (group[i])
			group_delete(group[i]);
		group[i] = NULL;
	}
	check_end();
	zap_range(&ps->mm, BASE, BASE + PAGES(PAGES_IN_ALL), 0);
	swapfile_stat(&ps->swap, &st);
	assert_int_equal(st.slots_used, 0);
	assert_int_equal(st.bad_frees, 0);
	assert_int_equal(mock_live(mock), 0);
	assert_int_equal(member.swapped_pages, 0);
	assert_int_equal(ps->nr_resident, 0);
	for (unsigned i = 1; ps->groups.table && i < PS_MAX_GROUPS; i++)
		assert_int_equal(ps->groups.table[i].swap, 0);
	pt_free(&ps->mm);
	region_free(&ps->mm);
	swapfile_close(&ps->swap);
	mock_close(mock);
	arena_unmap(ps->groups.table, PS_MAX_GROUPS * sizeof(struct pswap_group));
	for (unsigned i = 0; i < THREADS; i++)
		arena_unmap(ctx[i], sizeof(*ctx[i]));
}

static void test_threads_batch(void **state)
{
	(void)state;
	run_threads(SWAP_FREE_BATCH);
}

static void test_threads_entry(void **state)
{
	(void)state;
	run_threads(SWAP_FREE_ENTRY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_batch),
		cmocka_unit_test(test_threads_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
