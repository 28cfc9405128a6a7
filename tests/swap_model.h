/* SPDX-License-Identifier: MIT */
/*
 * swap_model.h - for fuzz_swapfile.c: a plain model of swap files with their stores and swap
 * caches, the real ones that are driven beside it, and how the three are compared.
 */
#ifndef SWAP_MODEL_H
#define SWAP_MODEL_H

#include <stdio.h>

#include "swap_mock.h"
#include "swapfile_internal.h"

#define C	     SWAPFILE_CLUSTER
#define AREAS	     2
#define MAX_CLUSTERS 8
#define MAX_SLOTS    (MAX_CLUSTERS * C)
#define GROUPS	     4

/* A swap file with a store and a swap cache: folio[slot] is the folio that holds it, 0 for none. */
struct world {
	struct swapfile sf;
	struct mock_store *mock[AREAS];
	u32 folio[AREAS][MAX_SLOTS];
	s64 charge[GROUPS];
	u64 drops;
	u64 lookups; /* when groups were switched off */
};

/* The same as anybody would write it who does not care for speed. */
struct slot {
	u32 count, folio; /* folio != 0: has the cache flag */
	u16 owner;
	bool used, live;
};

static struct {
	struct slot slots[AREAS][MAX_SLOTS];
	u64 nr_slots[AREAS], used[AREAS], bad, drops;
	s64 charge[GROUPS];
	bool groups;
} M;

static struct world W[2]; /* batch, entry */
static u32 next_folio;
static u64 op_nr, seed0;

static void mismatch(const char *what, unsigned a, u64 s)
{
	fprintf(stderr, "fuzz_swapfile: operation %lu: %s (area %u, slot %lu)\n",
		(unsigned long)op_nr, what, a, (unsigned long)s);
#ifndef PS_LIBFUZZER
	fprintf(stderr, "reproduce: fuzz_swapfile %lu %lu 1\n", (unsigned long)seed0,
		(unsigned long)op_nr + 1);
	exit(1);
#else
	abort();
#endif
}

/* ---- the model ---- */

static void m_check_free(unsigned a, u64 s)
{
	struct slot *p = &M.slots[a][s];

	if (p->count || p->folio)
		return;
	M.charge[p->owner]--;
	M.used[a]--;
	*p = (struct slot){ 0 };
}

static void m_uncache(unsigned a, u64 s)
{
	M.slots[a][s].folio = 0;
	m_check_free(a, s);
}

/* The folio of a slot leaves the cache, unless it is one of those that are always busy. */
static bool folio_busy(u32 folio)
{
	return folio % 4 == 0;
}

static void m_drop(unsigned a, u64 s)
{
	u32 id = M.slots[a][s].folio;
	u64 start = s, end = s + 1;

	if (folio_busy(id))
		return;
	while (start % C && M.slots[a][start - 1].folio == id)
		start--;
	while (end % C && M.slots[a][end].folio == id)
		end++;
	M.drops++;
	for (; start < end; start++)
		m_uncache(a, start);
}

static void m_free_run(unsigned a, u64 s, unsigned nr)
{
	static bool left[MAX_SLOTS + 4 * C];
	bool bad = s + nr > M.nr_slots[a];

	for (unsigned i = 0; i < nr && !bad; i++)
		bad = M.slots[a][s + i].count == 0;
	if (bad) {
		M.bad++;
		return;
	}
	for (unsigned i = 0; i < nr; i++) {
		struct slot *p = &M.slots[a][s + i];

		p->count--;
		left[i] = p->count == 0 && p->folio;
		m_check_free(a, s + i);
	}
	for (unsigned i = 0; i < nr; i++) {
		if (left[i] && M.slots[a][s + i].folio)
			m_drop(a, s + i);
	}
}

static bool m_all_used(unsigned a, u64 s, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		if (!M.slots[a][s + i].used)
			return false;
	}
	return true;
}

/* ---- callbacks of the real ones ---- */

static unsigned on_drop(void *ctx, swp_entry_t e)
{
	struct world *w = ctx;
	u32 *folio = w->folio[swp_type(e)];
	u64 s = swp_offset(e), start = s, end = s + 1;
	u32 id = folio[s];

	if (!id)
		mismatch("cache_drop of a slot that is not in the cache", swp_type(e), s);
	if (folio_busy(id))
		return 0;
	while (start % C && folio[start - 1] == id)
		start--;
	while (end % C && folio[end] == id)
		end++;
	w->drops++;
	memset(&folio[start], 0, (end - start) * sizeof(*folio));
	if (start < s)
		swapcache_free(&w->sf, swp_entry(swp_type(e), start), s - start);
	return end - s;
}

static void on_uncharge(void *ctx, u16 group, unsigned nr)
{
	((struct world *)ctx)->charge[group] -= nr;
}

static void no_log(const char *line, size_t len)
{
	(void)line;
	(void)len;
}

/* ---- comparing ---- */

static u8 m_byte(unsigned a, u64 s)
{
	struct slot *p = &M.slots[a][s];
	u8 b = p->count > SWAP_MAP_MAX ? SWAP_MAP_MAX | SWAP_CONT : p->count;

	return b | (p->folio ? SWAP_HAS_CACHE : 0);
}

static void compare_slots(unsigned a, u64 s, unsigned nr)
{
	struct swap_info *x = W[0].sf.areas[a], *y = W[1].sf.areas[a];

	for (u64 end = MIN(s + nr, M.nr_slots[a]); s < end; s++) {
		if (swap_map_byte(x, s) != m_byte(a, s))
			mismatch("batch: map differs from the model", a, s);
		if (swap_map_byte(y, s) != m_byte(a, s))
			mismatch("entry: map differs from the model", a, s);
		if (W[0].mock[a]->live[s] != M.slots[a][s].live)
			mismatch("batch: store differs from the model", a, s);
		if (W[1].mock[a]->live[s] != M.slots[a][s].live)
			mismatch("entry: store differs from the model", a, s);
	}
}

static void compare_clusters(unsigned a)
{
	struct swap_info *x = W[0].sf.areas[a], *y = W[1].sf.areas[a];

	for (u64 c = 0; c < x->nr_clusters; c++) {
		struct swap_cluster_info *p = &x->clusters[c], *q = &y->clusters[c];

		if (p->count != q->count || p->nr_cont != q->nr_cont || p->list != q->list ||
		    p->order_index != q->order_index)
			mismatch("clusters differ", a, c * C);
		if (p->cont && memcmp(p->cont, q->cont, SWAP_CONT_BYTES))
			mismatch("overflow tables differ", a, c * C);
		for (unsigned i = 0; p->cont && i < C; i++) {
			if (p->cont[i] && M.slots[a][c * C + i].count != p->cont[i] + SWAP_MAP_MAX)
				mismatch("overflowed count differs from the model", a, c * C + i);
		}
	}
	for (unsigned l = 0; l < SWAP_NR_LISTS; l++) {
		struct swap_cluster_info *p = x->lists[l].first, *q = y->lists[l].first;

		for (; p && q; p = p->next, q = q->next) {
			if (p - x->clusters != q - y->clusters)
				mismatch("order of a list differs", a, l);
		}
		if (p || q)
			mismatch("length of a list differs", a, l);
	}
	for (unsigned i = 0; i < SWAP_MAX_CPUS; i++) {
		for (unsigned o = 0; o < SWAP_NR_ORDERS; o++) {
			if (x->cpus[i].current[o] != y->cpus[i].current[o])
				mismatch("current clusters differ", a, i);
		}
	}
}

static void compare_all(void)
{
	for (unsigned k = 0; k < 2; k++) {
		if (W[k].sf.bad_frees != M.bad)
			mismatch("number of bad runs", 0, k);
		if (W[k].drops != M.drops)
			mismatch("number of folios dropped", 0, k);
		if (!M.groups && W[k].sf.owner_lookups != W[k].lookups)
			mismatch("owner looked up without groups", 0, k);
		if (memcmp(W[k].charge, M.charge, sizeof(M.charge)))
			mismatch("charges of groups", 0, k);
	}
	for (unsigned a = 0; a < AREAS; a++) {
		compare_slots(a, 0, M.nr_slots[a]);
		compare_clusters(a);
		for (unsigned k = 0; k < 2; k++) {
			struct swap_info *si = W[k].sf.areas[a];
			u16 *owner = si->owner;

			if (si->slots_used != M.used[a])
				mismatch("slots in use", a, k);
			for (u64 s = 0; s < M.nr_slots[a]; s++) {
				if (W[k].folio[a][s] != M.slots[a][s].folio)
					mismatch("swap cache", a, s);
				if (owner && owner[s] != M.slots[a][s].owner)
					mismatch("owner", a, s);
			}
		}
	}
}

static void self_check(void)
{
	for (unsigned k = 0; k < 2; k++) {
		const char *wrong = swapfile_check(&W[k].sf);

		if (wrong)
			mismatch(wrong, 0, k);
	}
}

#endif
