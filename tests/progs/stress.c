/* SPDX-License-Identifier: MIT */
// LIBS: -lpswap
/*
 * stress - libpswap under random operations of several threads: map, fill, page out, read back,
 * truncate, zap, unmap (whole and parts), clone, advice, wrong calls; regions that change groups,
 * groups that come and go; a small limit; contents a function of the page and its version, checked
 * all the time.
 *
 *     stress [-d SECONDS] [-t THREADS] [-m LIMIT_MIB] [-l LIVE_MIB] [-s SEED] [-g GROUPS]
 *
 * Regions are shared by the threads: what changes contents takes the region's lock for writing,
 * reading and everything that must not change contents takes it for reading, so faults, page-outs
 * and read-backs of the same pages meet.  At the end everything is unmapped, and slots, frames,
 * segments, descriptors, threads and RSS must be back where they began.
 */
#include "pt.h"

#include "pswap.h"

#include "stress_proc.h"

#define REGIONS	  48
#define GROUPS	  8
#define MAX_PAGES 4096 /* 16 MiB */
#define UNMAPPED  0xffffffffU

enum kind {
	SAME,
	MIXED,
	RANDOM
};
struct region {
	pthread_rwlock_t lock;
	char *base; /* NULL: none */
	u32 pages;
	u64 id;
	u32 version[MAX_PAGES]; /* 0: zeros; UNMAPPED */
};

enum op {
	OP_MAP,
	OP_FILL,
	OP_CHECK,
	OP_PAGEOUT,
	OP_COLD,
	OP_WILLNEED,
	OP_POPULATE,
	OP_HINT,
	OP_DONTNEED,
	OP_TRUNCATE,
	OP_UNMAP,
	OP_UNMAP_PART,
	OP_CLONE,
	OP_GROUP,
	OP_REGROUP,
	OP_WRONG,
	OP_STAT,
	OPS
};
static const char *const op_name[OPS] = { "map",      "fill",	    "check", "pageout",	 "cold",
					  "willneed", "populate",   "hint",  "dontneed", "truncate",
					  "unmap",    "unmap_part", "clone", "group",	 "regroup",
					  "wrong",    "stat" };
static const int weight[OPS] = { 4, 30, 40, 8, 4, 4, 3, 2, 3, 2, 2, 3, 3, 4, 1, 2, 1 };
#define WEIGHTS 116

struct worker {
	pthread_t th;
	u64 x;
	_Atomic u64 ops;
	_Atomic int now;
	u64 count[OPS], refused[OPS], pages_filled, pages_checked;
};

static struct region region[REGIONS];
static struct worker worker[64];
static struct pswap *ps;
static int threads = 4;
static double seconds = 10;
static u64 limit_mib = 64, live_mib = 320, seed = 1, groups = 4, started_ns;
static pthread_rwlock_t group_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct pswap_group *group[GROUPS];
static _Atomic u64 live_pages, next_id;
static _Atomic bool stop;

static u64 rnd(struct worker *w, u64 n)
{
	w->x ^= w->x << 13;
	w->x ^= w->x >> 7;
	w->x ^= w->x << 17;
	return (w->x >> 11) % n;
}

/* A page's words: which kind is a function of its tag. */
static u64 tag_of(const struct region *r, u32 page)
{
	return pt_mix(r->id << 32 | page) ^ (u64)r->version[page] << 8;
}

static inline u64 word(enum kind k, struct pt_gen *g, unsigned i)
{
	if (k == SAME)
		return g->base;
	if (k == MIXED && i >= PT_RANDOM_WORDS)
		return g->base + (i >> 4);
	g->x ^= g->x << 13;
	g->x ^= g->x >> 7;
	g->x ^= g->x << 17;
	return g->x;
}

static enum kind kind_of(u64 tag)
{
	unsigned k = pt_mix(tag) % 10;

	return k < 2 ? SAME : k < 8 ? MIXED : RANDOM;
}

static void put(struct region *r, u32 page)
{
	u64 tag = tag_of(r, page), *p = (u64 *)(r->base + page * PT_PAGE);
	struct pt_gen g = pt_gen(tag, page);
	enum kind k = kind_of(tag);

	for (unsigned i = 0; i < PT_WORDS; i++)
		p[i] = word(k, &g, i);
}

static void check(const struct region *r, u32 page)
{
	u64 tag = tag_of(r, page);
	const u64 *p = (u64 *)(r->base + page * PT_PAGE);
	struct pt_gen g = pt_gen(tag, page);
	enum kind k = kind_of(tag);

	if (r->version[page] == UNMAPPED)
		return;
	for (unsigned i = 0; i < PT_WORDS; i++) {
		u64 want = r->version[page] ? word(k, &g, i) : 0, got = p[i];

		if (got != want)
			DIE("wrong data: region %llu (%p, %u pages) page %u version %u word %u: "
			    "expected %016llx, got %016llx, again %016llx%s",
			    (unsigned long long)r->id, (void *)r->base, r->pages, page,
			    r->version[page], i, (unsigned long long)want, (unsigned long long)got,
			    (unsigned long long)*(volatile const u64 *)&p[i],
			    pt_page_zero(p) ? ", page is all zero" : "");
	}
}

/* A random range of mapped pages; false when the start is not mapped. */
static bool range(struct worker *w, const struct region *r, u32 *first, u32 *n)
{
	u32 want, i;

	if (!r->base)
		return false;
	*first = rnd(w, r->pages);
	switch (rnd(w, 8)) {
	case 0:
		want = r->pages;
		*first = 0;
		break;
	case 1:
		want = 512; /* whole 2 MiB */
		*first &= ~511U;
		break;
	case 2:
	case 3:
		want = 16;
		*first &= ~15U;
		break;
	case 4:
		want = 1;
		break;
	default:
		want = 1 + rnd(w, 200);
	}
	if (want > r->pages - *first)
		want = r->pages - *first;
	for (i = 0; i < want && r->version[*first + i] != UNMAPPED; i++)
		;
	*n = i;
	return i > 0;
}

static void forget(struct region *r)
{
	r->base = NULL;
	r->pages = 0;
}

/* The mapped parts of the region, one call each. */
static void unmap_rest(struct region *r)
{
	for (u32 i = 0; i < r->pages;) {
		u32 n = 0;

		while (i + n < r->pages && r->version[i + n] != UNMAPPED)
			n++;
		if (n) {
			CHECKF(pswap_munmap(ps, r->base + i * PT_PAGE, n * PT_PAGE) == 0, "%s",
			       pswap_strerror());
			live_pages -= n;
		}
		i += n ? n : 1;
	}
	forget(r);
}

/* Every other two seconds there are no groups. */
static bool group_time(void)
{
	return groups && (pt_now_ns() - started_ns) / 2000000000 % 2 == 0;
}

static struct pswap_group *any_group(struct worker *w)
{
	return group_time() && rnd(w, 4) ? group[rnd(w, groups)] : NULL;
}

static bool do_map(struct worker *w, struct region *r)
{
	u32 pages;

	if (r->base)
		return false;
	switch (rnd(w, 4)) {
	case 0:
		pages = 1 + rnd(w, 64);
		break;
	case 1:
		pages = 512 * (1 + rnd(w, 8));
		break;
	default:
		pages = 1 + rnd(w, MAX_PAGES);
	}
	if ((live_pages + pages) * PT_PAGE > live_mib * PT_MIB)
		return false;
	PCHECK(pthread_rwlock_rdlock(&group_lock));
	r->base = pswap_mmap(ps, pages * PT_PAGE, any_group(w), rnd(w, 4) ? 0 : PSWAP_MAP_NOHUGE);
	PCHECK(pthread_rwlock_unlock(&group_lock));
	CHECKF(r->base != MAP_FAILED, "pswap_mmap %u pages: %s", pages, pswap_strerror());
	CHECK(pages < 512 || ((uintptr_t)r->base & (PT_HUGE - 1)) == 0);
	r->pages = pages;
	r->id = ++next_id;
	memset(r->version, 0, pages * sizeof(r->version[0]));
	live_pages += pages;
	return true;
}

/* All of r to another region, if one is free. */
static bool do_clone(struct worker *w, struct region *r)
{
	struct region *c = &region[rnd(w, REGIONS)];
	void *copy;

	for (u32 i = 0; i < r->pages; i++)
		if (r->version[i] == UNMAPPED)
			return false;
	if (c == r || (live_pages + r->pages) * PT_PAGE > live_mib * PT_MIB)
		return false;
	if (pthread_rwlock_trywrlock(&c->lock))
		return false;
	if (c->base) {
		PCHECK(pthread_rwlock_unlock(&c->lock));
		return false;
	}
	CHECKF(pswap_clone(ps, r->base, r->pages * PT_PAGE, &copy) == 0, "pswap_clone %u pages: %s",
	       r->pages, pswap_strerror());
	c->base = copy;
	c->pages = r->pages;
	c->id = r->id;
	memcpy(c->version, r->version, r->pages * sizeof(r->version[0]));
	live_pages += c->pages;
	for (int k = 0; k < 16; k++)
		check(c, rnd(w, c->pages));
	PCHECK(pthread_rwlock_unlock(&c->lock));
	return true;
}

static bool do_group(struct worker *w, struct region *r, u32 first, u32 n)
{
	struct pswap_group_stat st = { .size = sizeof(st) };
	struct pswap_group *g;

	PCHECK(pthread_rwlock_rdlock(&group_lock));
	g = any_group(w);
	CHECKF(pswap_group_move(ps, r->base + first * PT_PAGE, n * PT_PAGE, g) == 0,
	       "pswap_group_move %u pages: %s", n, pswap_strerror());
	if (g)
		CHECK(pswap_group_stat(g, &st) == 0 && st.limit_bytes);
	PCHECK(pthread_rwlock_unlock(&group_lock));
	return true;
}

/* One comes or goes. */
static bool do_regroup(struct worker *w)
{
	u64 i = rnd(w, GROUPS), limit;

	if (i >= groups)
		return false;
	PCHECK(pthread_rwlock_wrlock(&group_lock));
	if (group[i] && (!group_time() || rnd(w, 8) == 0)) {
		CHECKF(pswap_group_delete(group[i]) == 0, "pswap_group_delete: %s",
		       pswap_strerror());
		group[i] = NULL;
	} else if (!group[i] && group_time()) {
		limit = (4 + rnd(w, limit_mib / 2)) * PT_MIB;
		CHECKF(pswap_group_create(ps, limit, &group[i]) == 0, "pswap_group_create: %s",
		       pswap_strerror());
	}
	PCHECK(pthread_rwlock_unlock(&group_lock));
	return true;
}

#define EXPECT_EINVAL(call)                                                       \
	do {                                                                      \
		errno = 0;                                                        \
		int ee_r = (call);                                                \
		CHECKF(ee_r == -1 && errno == EINVAL, "%s gave %d", #call, ee_r); \
		CHECK(pswap_strerror()[0]);                                       \
	} while (0)

static bool do_wrong(struct worker *w, struct region *r)
{
	static char not_ours[8192] __attribute__((aligned(4096)));
	u32 i;

	if (!r->base)
		return false;
	switch (rnd(w, 6)) {
	case 0:
		EXPECT_EINVAL(pswap_munmap(ps, not_ours, PT_PAGE));
		EXPECT_EINVAL(pswap_madvise(ps, not_ours, PT_PAGE, MADV_PAGEOUT));
		break;
	case 1:
		EXPECT_EINVAL(pswap_munmap(ps, r->base + 1, PT_PAGE));
		EXPECT_EINVAL(pswap_munmap(ps, r->base, 0));
		break;
	case 2:
		EXPECT_EINVAL(pswap_madvise(ps, r->base, PT_PAGE, 4711));
		EXPECT_EINVAL(pswap_madvise(ps, r->base + 8, PT_PAGE, MADV_DONTNEED));
		break;
	case 3:
		EXPECT_EINVAL(pswap_truncate(ps, r->base, PT_PAGE, 2 * PT_PAGE));
		break;
	case 4:
		CHECK(pswap_mmap(ps, 0, NULL, 0) == MAP_FAILED && errno == EINVAL);
		CHECK(pswap_mmap(ps, 4097, NULL, 0) == MAP_FAILED && errno == EINVAL);
		break;
	case 5: { /* across a hole: nothing may be unmapped */
		char *hole;

		for (i = 0; i < r->pages && r->version[i] != UNMAPPED; i++)
			;
		if (i == r->pages || !i)
			return false;
		/* Another region may lie in the hole by now: only while we keep it free. */
		hole = r->base + i * PT_PAGE;
		if (mmap(hole, PT_PAGE, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != hole)
			return false;
		EXPECT_EINVAL(pswap_munmap(ps, hole - PT_PAGE, 2 * PT_PAGE));
		check(r, i - 1);
		munmap(hole, PT_PAGE);
		break;
	}
	}
	return true;
}

static void step(struct worker *w)
{
	static const int hints[] = { MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_HUGEPAGE,
				     MADV_NOHUGEPAGE };
	struct region *r = &region[rnd(w, REGIONS)];
	int k = rnd(w, WEIGHTS), op, err = 0;
	u32 first = 0, n = 0, i, cut;
	bool done = true, writes;

	for (op = 0; op < OPS - 1 && k >= weight[op]; op++)
		k -= weight[op];
	writes = op == OP_MAP || op == OP_FILL || op == OP_DONTNEED || op == OP_TRUNCATE ||
		 op == OP_UNMAP || op == OP_UNMAP_PART || op == OP_WRONG;
	w->now = op;
	PCHECK(writes ? pthread_rwlock_wrlock(&r->lock) : pthread_rwlock_rdlock(&r->lock));
	if (op != OP_MAP && op != OP_WRONG && op != OP_UNMAP && op != OP_STAT &&
	    op != OP_REGROUP && !range(w, r, &first, &n)) {
		PCHECK(pthread_rwlock_unlock(&r->lock));
		return;
	}
#define AT  (r->base + first * PT_PAGE)
#define LEN (n * PT_PAGE)
	switch (op) {
	case OP_MAP:
		done = do_map(w, r);
		break;
	case OP_FILL:
		for (i = 0; i < n; i++) {
			r->version[first + i]++;
			put(r, first + i);
		}
		w->pages_filled += n;
		break;
	case OP_CHECK:
		if (rnd(w, 2)) {
			for (i = 0; i < n; i++)
				check(r, first + i);
		} else { /* scattered */
			for (i = 0; i < n && i < 64; i++)
				check(r, first + rnd(w, n));
		}
		w->pages_checked += n;
		break;
	case OP_PAGEOUT:
		err = pswap_madvise(ps, AT, LEN, MADV_PAGEOUT);
		break;
	case OP_COLD:
		err = pswap_madvise(ps, AT, LEN, MADV_COLD);
		break;
	case OP_WILLNEED:
		err = pswap_madvise(ps, AT, LEN, MADV_WILLNEED);
		break;
	case OP_POPULATE:
		err = pswap_madvise(ps, AT, LEN,
				    rnd(w, 2) ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
		break;
	case OP_HINT:
		err = pswap_madvise(ps, AT, LEN, hints[rnd(w, 5)]);
		break;
	case OP_DONTNEED:
		err = pswap_madvise(ps, AT, LEN, MADV_DONTNEED);
		for (i = 0; i < n; i++)
			r->version[first + i] = 0;
		break;
	case OP_TRUNCATE:
		cut = rnd(w, n + 1);
		err = pswap_truncate(ps, AT, LEN, cut * PT_PAGE);
		for (i = cut; i < n; i++)
			r->version[first + i] = 0;
		break;
	case OP_UNMAP:
		done = r->base;
		if (done)
			unmap_rest(r);
		break;
	case OP_UNMAP_PART:
		err = pswap_munmap(ps, AT, LEN);
		for (i = 0; i < n; i++)
			r->version[first + i] = UNMAPPED;
		live_pages -= n;
		for (i = 0; i < r->pages && r->version[i] == UNMAPPED; i++)
			;
		if (i == r->pages)
			forget(r);
		break;
	case OP_CLONE:
		done = do_clone(w, r);
		break;
	case OP_GROUP:
		done = do_group(w, r, first, n);
		break;
	case OP_REGROUP:
		done = do_regroup(w);
		break;
	case OP_WRONG:
		done = do_wrong(w, r);
		break;
	case OP_STAT: {
		struct pswap_stat st = { .size = sizeof(st) };

		CHECK(pswap_stat(ps, &st) == 0);
		CHECK(st.limit_bytes == limit_mib * PT_MIB);
		break;
	}
	}
	CHECKF(err == 0, "%s of %u pages: %s", op_name[op], n, pswap_strerror());
	/* what must not change contents did not (one page of it) */
	if (!writes && op != OP_STAT && op != OP_CHECK && op != OP_REGROUP && rnd(w, 3) == 0)
		check(r, first + rnd(w, n));
	PCHECK(pthread_rwlock_unlock(&r->lock));
	w->count[op] += done;
	w->ops++;
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (!stop)
		step(w);
	w->now = OPS;
	return NULL;
}

static void hung(int i)
{
	fprintf(stderr, "stress: thread %d does nothing for 30 s, in %s\n", i,
		worker[i].now < OPS ? op_name[worker[i].now] : "-");
	list_tasks();
	_exit(3);
}

int main(int argc, char **argv)
{
	struct pswap_options opt = { .size = sizeof(opt) };
	struct pswap_stat st = { .size = sizeof(st) }, st0 = { .size = sizeof(st0) };
	u64 last[64] = { 0 }, since[64], peak = 0, end, rss0, rss_open, rss1, sum[OPS] = { 0 };
	u64 filled = 0, checked = 0;
	int o, fds0, fds_open, tasks0, err;

	while ((o = getopt(argc, argv, "d:t:m:l:s:g:")) != -1) {
		switch (o) {
		case 'd':
			seconds = atof(optarg);
			break;
		case 't':
			threads = atoi(optarg);
			break;
		case 'm':
			limit_mib = strtoul(optarg, NULL, 10);
			break;
		case 'l':
			live_mib = strtoul(optarg, NULL, 10);
			break;
		case 's':
			seed = strtoul(optarg, NULL, 10);
			break;
		case 'g':
			groups = strtoul(optarg, NULL, 10);
			break;
		default:
			return 2;
		}
	}
	if (threads < 1 || threads > 64 || groups > GROUPS)
		return 2;
	for (int i = 0; i < REGIONS; i++) {
		PCHECK(pthread_rwlock_init(&region[i].lock, NULL));
		memset(region[i].version, 1, sizeof(region[i].version)); /* touched: counted */
	}
	fds0 = entries("/proc/self/fd");
	tasks0 = entries("/proc/self/task");
	rss0 = rss();
	opt.memory_limit = limit_mib * PT_MIB;
	err = pswap_open(&ps, &opt);
	if (err && (errno == EPERM || errno == ENOSYS)) {
		fprintf(stderr, "no userfaultfd here: %s\n", pswap_strerror());
		return 77;
	}
	CHECKF(err == 0, "pswap_open: %s", pswap_strerror());
	fds_open = entries("/proc/self/fd");
	CHECK(pswap_stat(ps, &st0) == 0);
	rss_open = rss();
	started_ns = pt_now_ns();
	for (int i = 0; i < threads; i++) {
		worker[i].x = pt_mix(seed * 1000 + i) | 1;
		since[i] = pt_now_ns();
		PCHECK(pthread_create(&worker[i].th, NULL, work, &worker[i]));
	}
	end = pt_now_ns() + (u64)(seconds * 1e9);
	while (pt_now_ns() < end) {
		u64 now;

		usleep(20000);
		CHECK(pswap_stat(ps, &st) == 0);
		if (st.footprint_bytes > peak)
			peak = st.footprint_bytes;
		now = pt_now_ns();
		for (int i = 0; i < threads; i++) {
			if (worker[i].ops != last[i])
				since[i] = now;
			last[i] = worker[i].ops;
			if (now - since[i] > 30000000000ULL)
				hung(i);
		}
	}
	stop = true;
	alarm(60); /* a hang from here on */
	for (int i = 0; i < threads; i++)
		PCHECK(pthread_join(worker[i].th, NULL));
	for (int i = 0; i < REGIONS; i++) {
		for (u32 k = 0; k < region[i].pages; k++)
			check(&region[i], k);
		if (region[i].base)
			unmap_rest(&region[i]);
	}
	for (u64 i = 0; i < groups; i++) {
		struct pswap_group_stat gs = { .size = sizeof(gs) };

		if (!group[i])
			continue;
		/* A thread that is reading a slot may be the last to let go of it. */
		for (int tries = 0; tries < 100; tries++) {
			CHECK(pswap_group_stat(group[i], &gs) == 0);
			if (!gs.resident_bytes && !gs.swapped_pages)
				break;
			usleep(20000);
		}
		CHECKF(!gs.resident_bytes && !gs.swapped_pages && !gs.mapped_bytes,
		       "group %llu: resident %llu, slots %llu, mapped %llu", (unsigned long long)i,
		       (unsigned long long)gs.resident_bytes, (unsigned long long)gs.swapped_pages,
		       (unsigned long long)gs.mapped_bytes);
		CHECK(pswap_group_delete(group[i]) == 0);
	}
	alarm(0);
	CHECK(pswap_purge(ps) == 0);
	for (int i = 0; i < 100; i++) { /* what goes back in the background */
		CHECK(pswap_stat(ps, &st) == 0);
		rss1 = rss();
		if (!st.slots_used && !st.frames_used && !st.segments_used && !st.pool_bytes &&
		    rss1 < rss_open + 24 * PT_MIB)
			break;
		usleep(50000);
	}
	for (int i = 0; i < threads; i++) {
		for (int k = 0; k < OPS; k++)
			sum[k] += worker[i].count[k];
		filled += worker[i].pages_filled;
		checked += worker[i].pages_checked;
	}
	for (int k = 0; k < OPS; k++)
		printf("%s %llu%s", op_name[k], (unsigned long long)sum[k],
		       k == OPS - 1 ? "\n" : ", ");
	printf("pages: filled %llu, checked %llu, out %llu, in %llu, from cache %llu, same %llu, "
	       "clean %llu; faults %llu (zero %llu)\n",
	       (unsigned long long)filled, (unsigned long long)checked,
	       (unsigned long long)st.pages_out, (unsigned long long)st.pages_in,
	       (unsigned long long)st.pages_cache_in, (unsigned long long)st.pages_same_filled,
	       (unsigned long long)st.pages_clean_dropped, (unsigned long long)st.faults,
	       (unsigned long long)st.faults_zero);
	printf("footprint: limit %llu MiB, peak %llu MiB, sampled %llu MiB; now: slots %llu, "
	       "frames "
	       "%llu, segments %llu, pool %llu, footprint %llu KiB, metadata %llu KiB\n",
	       (unsigned long long)limit_mib, (unsigned long long)st.peak_footprint_bytes >> 20,
	       (unsigned long long)peak >> 20, (unsigned long long)st.slots_used,
	       (unsigned long long)st.frames_used, (unsigned long long)st.segments_used,
	       (unsigned long long)st.pool_bytes, (unsigned long long)st.footprint_bytes >> 10,
	       (unsigned long long)st.metadata_bytes >> 10);
	printf("rss: before %llu KiB, open %llu KiB, now %llu KiB\n",
	       (unsigned long long)rss0 >> 10, (unsigned long long)rss_open >> 10,
	       (unsigned long long)rss1 >> 10);
	fflush(stdout);
	CHECKF(st.slots_used == st0.slots_used, "slots %llu", (unsigned long long)st.slots_used);
	CHECKF(st.frames_used == st0.frames_used, "frames %llu",
	       (unsigned long long)st.frames_used);
	CHECKF(st.segments_used == st0.segments_used, "segments %llu",
	       (unsigned long long)st.segments_used);
	CHECKF(st.swapped_pages == 0, "swapped pages %llu", (unsigned long long)st.swapped_pages);
	CHECKF(st.resident_bytes == 0, "resident %llu", (unsigned long long)st.resident_bytes);
	CHECK(st.pages_poisoned == 0);
#ifndef __SANITIZE_THREAD__ /* its shadow stays */
	CHECKF(rss1 < rss_open + 24 * PT_MIB, "RSS grew by %llu KiB",
	       (unsigned long long)(rss1 - rss_open) >> 10);
#endif
	CHECKF(st.peak_footprint_bytes <= limit_mib * PT_MIB * 105 / 100 + 16 * PT_MIB,
	       "peak footprint %llu MiB", (unsigned long long)st.peak_footprint_bytes >> 20);
	CHECKF(st.pages_out > 0 && st.pages_in > 0, "vacuous: nothing was swapped");
	/* stores open files and rings when they are first used, but not without end */
	CHECKF(entries("/proc/self/fd") < fds_open + 16, "%d descriptors, %d when open",
	       entries("/proc/self/fd"), fds_open);
	CHECKF(pswap_close(ps) == 0, "pswap_close: %s", pswap_strerror());
	CHECKF(entries("/proc/self/fd") == fds0, "%d descriptors, %d before",
	       entries("/proc/self/fd"), fds0);
	/* a joined thread may be on its way out of the kernel for a moment */
	for (int i = 0; i < 200 && entries("/proc/self/task") != tasks0; i++)
		usleep(10000);
#ifndef __SANITIZE_THREAD__ /* has a thread, and memory, of its own */
	CHECKF(entries("/proc/self/task") == tasks0, "%d threads, %d before",
	       entries("/proc/self/task"), tasks0);
	rss1 = rss();
	CHECKF(rss1 < rss0 + 8 * PT_MIB, "RSS after close %llu KiB, before open %llu KiB",
	       (unsigned long long)rss1 >> 10, (unsigned long long)rss0 >> 10);
#endif
	printf("stress: all right\n");
	return 0;
}
