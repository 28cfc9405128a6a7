/* SPDX-License-Identifier: MIT */
/*
 * fuzz_swapfile.c - random operations on two swap files in lock step, one that frees in batches and
 * one that frees entry by entry, and on a plain model of what a swap file is.  After any sequence
 * both must have the same maps, counts, live objects and cluster membership; here even the order
 * of the lists is the same, so both hand out the same slots.
 *
 * fuzz_swapfile [SEED [OPS [EVERY]]]: all is compared each EVERY operations (default 256), touched
 * slots always.  With -DPS_LIBFUZZER the same interpreter is driven by libFuzzer's bytes.
 */
#include "log.h"
#include "swap_model.h"

#define RESTART_OPS 200000 /* a new world, of another shape */

static u64 target; /* slots that the mix of operations tries to keep in use */
enum fuzz_total {
	ALLOCS,
	DUPS,
	PREPARES,
	UNCACHES,
	FREES,
	BAD,
	BATCHES,
	CLUSTERS,
	OVERFLOWS,
	WRITTEN_OUT, /* uniform clusters in use became not so */
	UNIFORM,     /* and the other way round: empty again */
	NR_TOTALS,
};
static u64 totals[NR_TOTALS];
static bool coarse; /* this world's slots mostly come and go by whole clusters */

/* ---- where decisions come from ---- */

#ifdef PS_LIBFUZZER
static const u8 *input;
static size_t input_left;

static u32 draw(u32 n)
{
	u32 v = 0;

	for (unsigned bytes = n > 256 ? 2 : 1; bytes && input_left; bytes--, input_left--)
		v = v << 8 | *input++;
	return v % n;
}
#else
static u64 rng;

static u32 draw(u32 n)
{
	u64 z = rng += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return (u32)((z >> 32) * n >> 32);
}
#endif

/* ---- operations ---- */

/* New folios in the cache of all three: mostly one. */
static void set_folio(unsigned a, u64 s, unsigned nr)
{
	unsigned size = draw(4) ? nr : 1 + draw(nr);

	for (unsigned i = 0; i < nr; i++) {
		next_folio += i % size == 0;
		M.slots[a][s + i].folio = W[0].folio[a][s + i] = W[1].folio[a][s + i] = next_folio;
	}
}

static void set_owner(unsigned a, u64 s, unsigned nr, u16 group)
{
	for (unsigned i = 0; i < nr; i++) {
		u16 *owner = &M.slots[a][s + i].owner;

		for (unsigned k = 0; k < 2; k++) {
			W[k].charge[*owner]--;
			W[k].charge[group]++;
		}
		M.charge[*owner]--;
		M.charge[group]++;
		*owner = group;
	}
	for (unsigned k = 0; k < 2; k++)
		swap_group_record(&W[k].sf, swp_entry(a, s), nr, group);
}

static void do_duplicate(unsigned a, u64 s, unsigned nr)
{
	bool ok = nr && s + nr <= M.nr_slots[a] && s % C + nr <= C && m_all_used(a, s, nr);

	totals[DUPS]++;
	for (unsigned k = 0; k < 2; k++) {
		if (swap_duplicate(&W[k].sf, swp_entry(a, s), nr) != (ok ? 0 : -EINVAL))
			mismatch("swap_duplicate", a, s);
	}
	for (unsigned i = 0; i < nr && ok; i++)
		M.slots[a][s + i].count++;
	totals[OVERFLOWS] += ok && M.slots[a][s].count == SWAP_MAP_MAX + 1;
}

static void do_uncache(unsigned a, u64 s, unsigned nr)
{
	bool bad = nr == 0 || s + nr > M.nr_slots[a] || s % C + nr > C;

	totals[UNCACHES]++;
	/* What the callers of the swap file know: which slots are no longer theirs. */
	for (unsigned k = 0; k < 2; k++) {
		if (!bad)
			memset(&W[k].folio[a][s], 0, nr * sizeof(u32));
		swapcache_free(&W[k].sf, swp_entry(a, s), nr);
	}
	if (bad) {
		M.bad++;
		return;
	}
	for (unsigned i = 0; i < nr; i++) {
		bad |= !M.slots[a][s + i].folio;
		if (M.slots[a][s + i].folio)
			m_uncache(a, s + i);
	}
	M.bad += bad;
}

static void do_prepare(unsigned a, u64 s, unsigned nr)
{
	int want = 0;

	totals[PREPARES]++;
	for (unsigned i = 0; i < nr && s + i < M.nr_slots[a]; i++) {
		if (M.slots[a][s + i].folio)
			want = -EEXIST;
	}
	if (nr == 0 || s + nr > M.nr_slots[a] || s % C + nr > C)
		want = -EINVAL;
	else if (!m_all_used(a, s, nr))
		want = -ENOENT;
	for (unsigned k = 0; k < 2; k++) {
		if (swapcache_prepare(&W[k].sf, swp_entry(a, s), nr) != want)
			mismatch("swapcache_prepare", a, s);
	}
	if (!want)
		set_folio(a, s, nr);
}

static bool m_all_counted(unsigned a, u64 s, unsigned nr)
{
	if (s + nr > M.nr_slots[a])
		return false;
	for (unsigned i = 0; i < nr; i++)
		if (!M.slots[a][s + i].count)
			return false;
	return true;
}

static void do_free(unsigned a, u64 s, unsigned nr)
{
	bool runs = draw(8) == 0 && m_all_counted(a, s, nr);
	u64 split = W[0].sf.split_batches;

	totals[FREES]++;
	for (unsigned k = 0; k < 2; k++) {
		if (runs)
			swap_free_runs(&W[k].sf, swp_entry(a, s), nr);
		else
			free_swap_and_cache_nr(&W[k].sf, swp_entry(a, s), nr);
	}
	/* What is cut at owners spans none. A folio that is dropped may. */
	if (runs && W[0].drops == M.drops && W[0].sf.split_batches != split)
		mismatch("a run that was cut spans two groups", a, s);
	if (nr)
		m_free_run(a, s, nr);
}

/* What a page-out does with new slots, or the first steps of it. */
static void new_run(unsigned a, u64 s, unsigned nr)
{
	for (unsigned i = 0; i < nr; i++) {
		if (s + i >= M.nr_slots[a] || M.slots[a][s + i].used)
			mismatch("a slot in use was allocated", a, s + i);
		M.slots[a][s + i].used = true;
	}
	M.used[a] += nr;
	M.charge[0] += nr;
	W[0].charge[0] += nr;
	W[1].charge[0] += nr;
	set_folio(a, s, nr);
	if (M.groups)
		set_owner(a, s, nr, draw(GROUPS));
	if (draw(8)) {
		for (unsigned k = 0; k < 2; k++)
			mock_write(&W[k].mock[a]->st, s, nr);
		for (unsigned i = 0; i < nr; i++)
			M.slots[a][s + i].live = true;
	}
	if (draw(8))
		do_duplicate(a, s, nr);
	if (draw(4))
		do_uncache(a, s, nr);
	/* And the program exits at once. */
	if (nr == C && draw(2))
		do_free(a, s, nr);
	compare_slots(a, s, nr);
}

static void do_alloc_order(void)
{
	static const u8 orders[4] = { 0, 4, 4, 9 };
	unsigned first = draw(8) == 0, cpu = draw(3);
	unsigned order = coarse && draw(4) ? 9 : orders[draw(4)];
	swp_entry_t e[2];
	int ret[2];

	totals[ALLOCS]++;
	for (unsigned k = 0; k < 2; k++)
		ret[k] = swap_alloc_order(&W[k].sf, first, cpu, order, &e[k]);
	if (ret[0] != ret[1] || (ret[0] && ret[0] != -ENOSPC))
		mismatch("swap_alloc_order: results differ", first, order);
	if (ret[0]) {
		/* For the ends of the range it is known when there is no space. */
		for (unsigned a = first; a < AREAS; a++) {
			if (order == 0 && M.used[a] < M.nr_slots[a])
				mismatch("swap_alloc_order: no slot though one is free", a, 0);
			for (u64 c = 0; c < M.nr_slots[a] / C && order == 9; c++) {
				if (!W[0].sf.areas[a]->clusters[c].count)
					mismatch("swap_alloc_order: empty cluster left", a, c);
			}
		}
		return;
	}
	if (e[0].val != e[1].val)
		mismatch("swap_alloc_order: slots differ", swp_type(e[0]), swp_offset(e[0]));
	if (swp_offset(e[0]) % (1 << order) || swp_type(e[0]) < first)
		mismatch("swap_alloc_order: not aligned", swp_type(e[0]), swp_offset(e[0]));
	new_run(swp_type(e[0]), swp_offset(e[0]), 1U << order);
}

static unsigned draw_length(void)
{
	switch (draw(8)) {
	case 0:
		return 1 + draw(C);
	case 1:
		return C;
	case 2:
	case 3:
		return 1 + draw(64);
	default:
		return 1 + draw(16);
	}
}

static void do_alloc_pages(void)
{
	unsigned first = draw(8) == 0, cpu = draw(3), nr = draw_length(), got[2];
	static swp_entry_t e[2][C];
	u64 room = 0;

	totals[ALLOCS]++;
	for (unsigned a = first; a < AREAS; a++)
		room += M.nr_slots[a] - M.used[a];
	for (unsigned k = 0; k < 2; k++)
		got[k] = swap_alloc_pages(&W[k].sf, first, cpu, nr, e[k]);
	if (got[0] != MIN(nr, room) || got[0] != got[1])
		mismatch("swap_alloc_pages: number of slots", first, got[0]);
	if (memcmp(e[0], e[1], got[0] * sizeof(e[0][0])))
		mismatch("swap_alloc_pages: slots differ", first, swp_offset(e[0][0]));
	for (unsigned i = 0, n; i < got[0]; i += n) {
		for (n = 1; i + n < got[0] && e[0][i + n].val == e[0][i].val + n &&
			    swp_offset(e[0][i + n]) % C;)
			n++;
		new_run(swp_type(e[0][i]), swp_offset(e[0][i]), n);
	}
}

/* A run of one cluster from s on that is referred to, or is in the cache. */
static unsigned stretch(unsigned a, u64 s, bool cached)
{
	unsigned n = 0, room = C - s % C;

	while (n < room && (cached ? M.slots[a][s + n].folio != 0 : M.slots[a][s + n].count != 0))
		n++;
	return n;
}

/* Every reference and every cached page of some slots goes, in as large runs as there are. */
static void give_back_slots(unsigned a, u64 s, u64 end)
{
	while (s < end) {
		unsigned refs = stretch(a, s, false), cached;

		if (refs)
			do_free(a, s, refs);
		cached = stretch(a, s, true);
		if (cached)
			do_uncache(a, s, cached);
		if (!refs && !cached)
			s++;
	}
}

/* The program ends. */
static void give_back(void)
{
	for (unsigned a = 0; a < AREAS; a++)
		give_back_slots(a, 0, M.nr_slots[a]);
}

/* The nearest slot from a random one on that has references (or is in the cache), if there is one
 * near. */
static u64 pick_slot(unsigned a, bool cached)
{
	u64 n = M.nr_slots[a], s = draw(n), from;

	if (draw(4) == 0)
		s = ALIGN_DOWN(s, draw(2) ? C : 16);
	from = s;
	for (unsigned i = 0; i < 2 * C; i++, s = s + 1 == n ? 0 : s + 1) {
		struct slot *p = &M.slots[a][s];

		if (cached ? p->folio != 0 : p->count != 0)
			return s;
	}
	return from;
}

/* How long a run from s on is asked for: often what a caller would, sometimes too long. */
static unsigned pick_run(unsigned a, u64 s, bool cached)
{
	unsigned n;

	switch (draw(16)) {
	case 0:
		return draw(40);
	case 1:
		return draw(2 * C);
	case 2:
	case 3:
	case 4:
		return 1;
	default:
		break;
	}
	n = stretch(a, s, cached);
	return draw(2) || n < 2 ? n : 1 + draw(n);
}

static void do_entry_batch(unsigned a, u64 s)
{
	swp_entry_t ents[64];
	unsigned nr = 1 + draw(64), want = 1;

	for (unsigned i = 0; i < nr; i++)
		ents[i] = swp_entry(a, s + i);
	if (draw(4) == 0)
		ents[draw(nr)] = swp_entry(draw(AREAS), draw(M.nr_slots[1]));
	s = swp_offset(ents[0]);
	a = swp_type(ents[0]);
	while (want < nr && swp_type(ents[want]) == a && swp_offset(ents[want]) == s + want &&
	       (s + want) / C == s / C &&
	       (!M.groups || M.slots[a][s + want].owner == M.slots[a][s].owner))
		want++;
	for (unsigned k = 0; k < 2; k++) {
		if (swap_entry_batch(&W[k].sf, ents, nr) != want)
			mismatch("swap_entry_batch", a, s);
	}
}

static void do_count(unsigned a, u64 s)
{
	for (unsigned k = 0; k < 2; k++) {
		bool cached;

		if (swap_count(&W[k].sf, swp_entry(a, s), &cached) != M.slots[a][s].count ||
		    cached != (M.slots[a][s].folio != 0))
			mismatch("swap_count", a, s);
		if (swap_group_lookup(&W[k].sf, swp_entry(a, s)) != M.slots[a][s].owner)
			mismatch("swap_group_lookup", a, s);
	}
}

/* Far up and down again in the count of one slot or a few, or of a whole cluster. */
static void do_many(unsigned a, u64 s, unsigned nr)
{
	unsigned times = 50 + draw(100);
	bool up = draw(2);

	for (unsigned i = 0; i < times && m_all_used(a, s, nr); i++) {
		if (up)
			do_duplicate(a, s, nr);
		else
			do_free(a, s, nr);
	}
}

static void do_move_owner(unsigned a, u64 s)
{
	unsigned n = 0, max = draw_length();

	while (n < max && s + n < M.nr_slots[a] && M.slots[a][s + n].used)
		n++;
	if (M.groups && n)
		set_owner(a, s, n, draw(GROUPS));
}

/* Slots of one group, of some, become another's. */
static void do_change_owner(unsigned a, u64 s)
{
	unsigned nr = MIN(draw_length(), (unsigned)(C - s % C)), n = 0;
	u16 from = draw(GROUPS), to = draw(GROUPS);

	if (s + nr > M.nr_slots[a])
		return;
	for (unsigned i = 0; i < nr && M.groups; i++)
		if (M.slots[a][s + i].used && M.slots[a][s + i].owner == from) {
			M.slots[a][s + i].owner = to;
			n++;
		}
	M.charge[from] -= n;
	M.charge[to] += n;
	for (unsigned k = 0; k < 2; k++) {
		W[k].charge[from] -= n;
		W[k].charge[to] += n;
		if (swap_group_change(&W[k].sf, swp_entry(a, s), nr, from, to) != n)
			mismatch("swap_group_change", a, s);
	}
}

/* Something that is done to a whole cluster, or is tried; mostly to one that is all in use. */
static void do_cluster(unsigned a)
{
	u64 n = M.nr_slots[a] / C, s = draw(n) * C;

	for (u64 i = 0; i < n && draw(8) && !m_all_used(a, s, C); i++)
		s = s + C == M.nr_slots[a] ? 0 : s + C;
	switch (draw(128)) {
	case 0:
		if (draw(4) == 0)
			do_many(a, s, C);
		break;
	case 1:
	case 2:
	case 3:
	case 4:
		give_back_slots(a, s, s + C);
		break;
	case 5:
	case 6:
		if (M.groups && m_all_used(a, s, C))
			set_owner(a, s, C, draw(GROUPS));
		break;
	default:
		switch (draw(16)) {
		case 0:
		case 1:
		case 2:
			do_duplicate(a, s, C);
			break;
		case 3:
		case 4:
			do_prepare(a, s, C);
			break;
		case 5:
		case 6:
		case 7:
			do_uncache(a, s, C);
			break;
		default:
			do_free(a, s, C);
		}
	}
	compare_slots(a, s, C);
}

/* ---- worlds ---- */

/* How often clusters become uniform or cease to be; the two swap files may differ in that. */
static void note_uniform(void)
{
	static bool was[AREAS][MAX_CLUSTERS];

	for (unsigned a = 0; a < AREAS; a++)
		for (u64 c = 0; c < M.nr_slots[a] / C; c++) {
			bool now = !W[0].sf.areas[a]->clusters[c].in_map;

			if (now != was[a][c])
				totals[now ? UNIFORM : WRITTEN_OUT]++;
			was[a][c] = now;
		}
}

/* All groups go, and with them the owners. */
static void disable_groups(void)
{
	for (u16 g = 1; g < GROUPS && M.groups; g++) {
		u64 n = 0;

		for (unsigned a = 0; a < AREAS; a++)
			for (u64 s = 0; s < M.nr_slots[a]; s++)
				if (M.slots[a][s].owner == g) {
					M.slots[a][s].owner = 0;
					n++;
				}
		M.charge[g] -= n;
		M.charge[0] += n;
		for (unsigned k = 0; k < 2; k++) {
			W[k].charge[g] -= n;
			W[k].charge[0] += n;
			if (swap_group_replace(&W[k].sf, g, 0) != n)
				mismatch("swap_group_replace", 0, g);
		}
	}
	M.groups = false;
	for (unsigned k = 0; k < 2; k++) {
		swapfile_disable_groups(&W[k].sf);
		W[k].lookups = W[k].sf.owner_lookups;
	}
}

static void enable_groups(void)
{
	M.groups = true;
	for (unsigned k = 0; k < 2; k++) {
		if (swapfile_enable_groups(&W[k].sf))
			mismatch("swapfile_enable_groups", 0, k);
	}
}

static void open_worlds(void)
{
	memset(&M, 0, sizeof(M));
	next_folio = 0;
	M.nr_slots[0] = (1 + draw(MAX_CLUSTERS)) * C;
	M.nr_slots[1] = (1 + draw(3)) * C;
	target = M.nr_slots[0];
	coarse = draw(2);
	for (unsigned k = 0; k < 2; k++) {
		struct world *w = &W[k];

		memset(w, 0, sizeof(*w));
		w->sf.free_mode = k ? SWAP_FREE_ENTRY : SWAP_FREE_BATCH;
		w->sf.cache_drop = on_drop;
		w->sf.uncharge = on_uncharge;
		w->sf.ctx = w;
		for (unsigned a = 0; a < AREAS; a++) {
			w->mock[a] = mock_open(M.nr_slots[a]);
			if (swapfile_add_area(&w->sf, &w->mock[a]->st))
				mismatch("swapfile_add_area", a, k);
		}
	}
	if (draw(2))
		enable_groups();
}

/* All must be as new at the end. */
static void close_worlds(void)
{
	compare_all();
	give_back();
	compare_all();
	self_check();
	for (unsigned k = 0; k < 2; k++) {
		struct swapfile_stat st;

		swapfile_stat(&W[k].sf, &st);
		if (st.slots_used || M.used[0] || M.used[1])
			mismatch("slots in use at the end", 0, k);
		totals[BAD] += st.bad_frees;
		if (k == 0) {
			totals[BATCHES] += st.batch_frees;
			totals[CLUSTERS] += st.cluster_frees;
		} else if (st.batch_frees || st.cluster_frees) {
			mismatch("entry by entry, yet in batches", 0, k);
		}
		for (unsigned a = 0; a < AREAS; a++) {
			if (mock_live(W[k].mock[a]))
				mismatch("data left in the store", a, k);
		}
		if (swapfile_close(&W[k].sf))
			mismatch("swapfile_close", 0, k);
		mock_close(W[k].mock[0]);
		mock_close(W[k].mock[1]);
	}
}

/* Rarely, so that areas get full and empty. */
static void new_target(void)
{
	u64 all = M.nr_slots[0] + M.nr_slots[1];

	switch (draw(4)) {
	case 0:
		give_back();
		target = all;
		break;
	case 1:
		target = all;
		break;
	case 2:
		target = 0;
		break;
	default:
		target = draw(all);
		break;
	}
}

static void operation(void)
{
	unsigned what = draw(64), a = draw(4) == 0, nr;
	bool full = M.used[0] + M.used[1] > target;
	u64 s;

	if (coarse && draw(2)) {
		do_cluster(a);
		return;
	}
	if (what < 32 && !full) {
		if (what < 12)
			do_alloc_order();
		else
			do_alloc_pages();
		return;
	}
	s = pick_slot(a, what >= 40 && what < 50);
	nr = pick_run(a, s, what >= 40 && what < 50);
	if (what < 40)
		do_free(a, s, nr);
	else if (what < 50)
		do_uncache(a, s, nr);
	else if (what < 54)
		do_duplicate(a, s, nr);
	else if (what < 59)
		do_prepare(a, s, nr);
	else if (what == 59)
		do_entry_batch(a, s);
	else if (what == 60)
		do_count(a, s);
	else if (what == 61)
		do_move_owner(a, s);
	else if (what == 62)
		do_many(a, s, MIN(1 + draw(3), (unsigned)(C - s % C)));
	else if (draw(4) == 0)
		do_change_owner(a, s);
	else if (draw(64) == 0)
		enable_groups();
	else if (draw(64) == 0)
		disable_groups();
	else if (draw(16) == 0)
		new_target();
	/* A folio may reach past a freed run. */
	if (nr > 1 || what >= 59)
		compare_slots(a, s, nr);
	else
		compare_slots(a, s, 1);
}

#ifdef PS_LIBFUZZER

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);
int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	ps_log_to(no_log);
	input = data;
	input_left = size;
	open_worlds();
	for (op_nr = 0; input_left; op_nr++)
		operation();
	self_check();
	close_worlds();
	return 0;
}

#else

int main(int argc, char **argv)
{
	static const char *const names[NR_TOTALS] = {
		"allocations", "duplicates", "prepares",       "cache frees", "frees",
		"bad runs",    "batches",    "whole clusters", "overflows",   "written out",
		"uniform again",
	};
	u64 ops = argc > 2 ? strtoull(argv[2], NULL, 0) : 1000000;
	u64 every = argc > 3 ? strtoull(argv[3], NULL, 0) : 256;
	u64 worlds = 1, t0 = ps_now_ns(), ns;

	ps_log_to(no_log);
	rng = seed0 = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	open_worlds();
	for (op_nr = 0; op_nr < ops; op_nr++) {
		operation();
		note_uniform();
		if (op_nr % every == 0)
			compare_all();
		if (op_nr % (every * 16) == 0)
			self_check();
		if (op_nr % RESTART_OPS == RESTART_OPS - 1) {
			close_worlds();
			open_worlds();
			worlds++;
		}
	}
	close_worlds();
	ns = ps_now_ns() - t0;
	printf("fuzz_swapfile: seed %lu, %lu operations in %lu worlds, %lu.%lu s, no difference:",
	       (unsigned long)seed0, (unsigned long)ops, (unsigned long)worlds,
	       (unsigned long)(ns / 1000000000), (unsigned long)(ns / 100000000 % 10));
	for (unsigned i = 0; i < NR_TOTALS; i++)
		printf("%s %lu %s", i ? "," : "", (unsigned long)totals[i], names[i]);
	printf("\n");
	return 0;
}

#endif
