/* SPDX-License-Identifier: MIT */
/*
 * vm_fuzz - random calls on memory, by threads that each have a window of it, and by what they fork; a model says
 * for every page what must be there.
 *
 *     vm_fuzz SEED OPS THREADS MIB [libc|syscall|asm]     MIB: of each window; calls by any way unless one is named
 *
 * The same seed makes the same calls natively and under pswap, and the count of each call's results, which is
 * printed, must be the same.  A failure names the thread's seed and the number of the call; VM_FUZZ_PAGE=PAGE tells
 * what became of that page with each.
 */
#include "pt.h"

#include <sys/uio.h>

#define BASE	   0x100000000000UL /* where the kernel puts nothing by itself */
#define MAX_PAGES  8192
#define FILE_PAGES 512
#define FILE_TAG   77
#define MAX_DEPTH  3
#define NR_CODES   5

enum kind {
	NOTHING,
	ANON,
	FILE_PRIVATE,
	SHARED_ANON
};
enum content {
	ZEROS,
	FILLED, /* with id */
	FREED,	/* zeros, or still id */
	OF_FILE /* page off */
};
struct page {
	u8 kind, prot, content;
	bool guard, wipe, dontfork, locked, seeded;
	u8 advice; /* what splits mappings */
	u32 off;
	u32 map; /* the call that mapped it */
	u64 id;
};

enum op {
	MAP,
	UNMAP,
	PROTECT,
	DROP,
	FREE,
	REMOVE,
	HINT,
	POPULATE,
	ON_FORK,
	GUARD,
	LOCK,
	MOVE,
	WRITE,
	KERNEL_WRITE,
	VERIFY,
	KERNEL_READ,
	TOUCH,
	PRESS,
	FORK,
	NR_OPS
};
static const char *const op_name[] = { "map",	   "unmap",  "protect",	     "drop",   "free",	      "remove", "hint",
				       "populate", "onfork", "guard",	     "lock",   "move",	      "write",  "kwrite",
				       "verify",   "kread",  "touch",	     "press",  "fork" };
/* Of a thousand. */
static const u32 weight[] = { 60, 40, 80, 50, 40, 15, 60, 30, 30, 30, 20, 100, 180, 40, 120, 40, 40, 15, 6 };

struct window {
	u64 rng, seed, next_id;
	u32 next_map, done, depth, nr;
	char *base;
	int data, scratch; /* files: FILE_TAG's pages; one page */
	struct page *page;
	u32 codes[NR_OPS][NR_CODES]; /* 0, EINVAL, ENOMEM, EFAULT, other */
	u32 op;
};

static u32 nr_pages, nr_ops;
static int only_way = -1;
static bool no_guards;
static int traced = -1;

#define FAIL(w, fmt, ...)                                                                                     \
	DIE("seed %llu depth %u, call %u (%s): " fmt, (unsigned long long)(w)->seed, (w)->depth, (w)->done, \
	    op_name[(w)->op], ##__VA_ARGS__)
#define WANT(w, c)                                \
	do {                                      \
		if (!(c))                         \
			FAIL(w, "not so: %s", #c); \
	} while (0)

static u32 rnd(struct window *w, u32 n)
{
	w->rng = w->rng * 6364136223846793005ULL + 1442695040888963407ULL;
	return (u32)((w->rng >> 33) % n);
}

static enum pt_way any_way(struct window *w)
{
	u32 way = rnd(w, PT_WAYS);

	return only_way >= 0 ? (enum pt_way)only_way : (enum pt_way)way;
}

/* Of calls that raise no event: by inline assembly nothing tells of them (docs/vm-calls.md). */
static enum pt_way seen_way(struct window *w)
{
	enum pt_way way = any_way(w);

	return way == PT_ASM ? PT_LIBC : way;
}

static char *addr_of(struct window *w, u32 i)
{
	return w->base + (size_t)i * PT_PAGE;
}

static long note(struct window *w, long ret)
{
	int err = ret == -1 ? errno : 0;

	w->codes[w->op][err == 0 ? 0 : err == EINVAL ? 1 : err == ENOMEM ? 2 : err == EFAULT ? 3 : 4]++;
	return ret;
}

/* A range: mostly short, now and then long, and then often of whole huge pages. */
static void range(struct window *w, u32 *i, u32 *n)
{
	u32 kind = rnd(w, 8), max = kind < 4 ? 8 : kind < 6 ? 64 : 1500;

	*n = 1 + rnd(w, max);
	*i = rnd(w, nr_pages);
	if (kind == 7) {
		*i &= ~511U;
		*n = (*n + 511) & ~511U;
	}
	if (*i + *n > nr_pages)
		*n = nr_pages - *i;
}

static bool readable(const struct page *p)
{
	return p->kind && (p->prot & PROT_READ) && !p->guard;
}

static bool writable(const struct page *p)
{
	return p->kind && (p->prot & PROT_WRITE) && !p->guard;
}

static bool all(struct window *w, u32 i, u32 n, bool (*is)(const struct page *))
{
	for (u32 k = i; k < i + n; k++)
		if (!is(&w->page[k]))
			return false;
	return true;
}

static bool any(struct window *w, u32 i, u32 n, bool (*is)(const struct page *))
{
	for (u32 k = i; k < i + n; k++)
		if (is(&w->page[k]))
			return true;
	return false;
}

static bool mapped(const struct page *p) { return p->kind; }
static bool unmapped(const struct page *p) { return !p->kind; }
static bool locked(const struct page *p) { return p->locked; }
static bool anon(const struct page *p) { return p->kind == ANON; }
static bool shared(const struct page *p) { return p->kind == SHARED_ANON; }

/* ---- contents ---- */

static bool is_right(const struct page *p, const void *at)
{
	switch (p->content) {
	case ZEROS:
		return pt_page_zero(at);
	case FILLED:
		return !pt_page_wrong(at, p->id, 0);
	case FREED:
		return pt_page_zero(at) || !pt_page_wrong(at, p->id, 0);
	default:
		return !pt_page_wrong(at, FILE_TAG, p->off);
	}
}

static void check_page(struct window *w, u32 i, const void *at, const char *how)
{
	const struct page *p = &w->page[i];

	if (is_right(p, at))
		return;
	FAIL(w, "page %u at %p, kind %u prot %u content %u id %llu, %s: first words %016llx %016llx%s%s", i,
	     (void *)addr_of(w, i), p->kind, p->prot, p->content, (unsigned long long)p->id, how,
	     (unsigned long long)((const u64 *)at)[0], (unsigned long long)((const u64 *)at)[1],
	     pt_page_zero(at) ? ", all zero" : "", is_right(p, at) ? ", RIGHT when read again" : "");
}

static void verify(struct window *w, u32 i, u32 n)
{
	for (u32 k = i; k < i + n; k++)
		if (readable(&w->page[k]))
			check_page(w, k, addr_of(w, k), "read");
}

static void fill(struct window *w, u32 i, u32 n)
{
	for (u32 k = i; k < i + n; k++) {
		struct page *p = &w->page[k];

		if (!writable(p))
			continue;
		p->id = w->next_id++;
		p->content = FILLED;
		pt_fill_page(addr_of(w, k), p->id, 0);
	}
}

/* ---- calls ---- */

static int any_prot(struct window *w)
{
	static const int prots[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE,
				     PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC,
				     PROT_READ | PROT_WRITE | PROT_EXEC };

	return prots[rnd(w, sizeof(prots) / sizeof(*prots))];
}

static void map(struct window *w, u32 i, u32 n)
{
	u32 kind = rnd(w, 8), off = 0;
	int prot = any_prot(w), flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, fd = -1;
	struct page new = { .kind = ANON, .prot = (u8)prot, .map = w->next_map++ };
	void *got;

	if (kind == 6) {
		flags = MAP_FIXED | MAP_PRIVATE;
		fd = w->data;
		n = n > FILE_PAGES ? FILE_PAGES : n;
		off = rnd(w, FILE_PAGES - n + 1);
		new.kind = FILE_PRIVATE;
		new.content = OF_FILE;
	} else if (kind == 7) {
		flags = MAP_FIXED | MAP_SHARED | MAP_ANONYMOUS;
		new.kind = SHARED_ANON;
	}
	if (rnd(w, 6) == 0)
		flags |= MAP_NORESERVE;
	if (rnd(w, 6) == 0)
		flags |= MAP_POPULATE;
	new.seeded = rnd(w, 3) || flags & MAP_POPULATE;
	got = (void *)pt_raw(any_way(w), SYS_mmap, (long)addr_of(w, i), (long)(n * PT_PAGE), prot, flags, fd,
			     (long)(off * PT_PAGE));
	note(w, got == MAP_FAILED ? -1 : 0);
	WANT(w, got == addr_of(w, i));
	for (u32 k = i; k < i + n; k++) {
		new.off = off + k - i;
		w->page[k] = new;
	}
	/* Else the kernel may keep apart for good what is parted before it is touched, and refuse to move it. */
	if (new.seeded && (prot & PROT_WRITE))
		fill(w, i, 1);
	else if (new.seeded)
		new.seeded = false;
	if (!new.seeded)
		for (u32 k = i; k < i + n; k++)
			w->page[k].seeded = false;
}

static void clear(struct window *w, u32 i, u32 n)
{
	memset(&w->page[i], 0, n * sizeof(struct page));
}

static void protect(struct window *w, u32 i, u32 n)
{
	int prot = any_prot(w);
	long ret = note(w, pt_mprotect(any_way(w), addr_of(w, i), n * PT_PAGE, prot));
	u32 k = i;

	for (; k < i + n && mapped(&w->page[k]); k++)
		w->page[k].prot = (u8)prot;
	WANT(w, ret == (k == i + n ? 0 : -1));
}

static void drop(struct window *w, u32 i, u32 n)
{
	bool holes = any(w, i, n, unmapped);
	long ret;

	if (any(w, i, n, locked))
		return;
	ret = note(w, pt_madvise(any_way(w), addr_of(w, i), n * PT_PAGE, MADV_DONTNEED));
	WANT(w, ret == (holes ? -1 : 0));
	for (u32 k = i; k < i + n; k++) {
		struct page *p = &w->page[k];

		if (p->kind == ANON)
			p->content = ZEROS;
		else if (p->kind == FILE_PRIVATE)
			p->content = OF_FILE;
	}
}

static void free_lazily(struct window *w, u32 i, u32 n)
{
	if (any(w, i, n, locked) || !all(w, i, n, anon))
		return;
	WANT(w, note(w, pt_madvise(any_way(w), addr_of(w, i), n * PT_PAGE, MADV_FREE)) == 0);
	for (u32 k = i; k < i + n; k++)
		if (w->page[k].content == FILLED)
			w->page[k].content = FREED;
}

static void punch(struct window *w, u32 i, u32 n)
{
	while (n && !shared(&w->page[i]))
		i++, n--;
	for (u32 k = 0; k < n; k++)
		if (!shared(&w->page[i + k]) || locked(&w->page[i + k]))
			n = k;
	if (!n)
		return;
	WANT(w, note(w, pt_madvise(any_way(w), addr_of(w, i), n * PT_PAGE, MADV_REMOVE)) == 0);
	for (u32 k = i; k < i + n; k++)
		w->page[k].content = ZEROS;
}

static void hint(struct window *w, u32 i, u32 n)
{
	static const u8 advice[] = { MADV_PAGEOUT,    MADV_COLD,     MADV_WILLNEED, MADV_NORMAL,      MADV_SEQUENTIAL,
				     MADV_RANDOM,     MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE, MADV_DONTDUMP,
				     MADV_DODUMP };
	u32 a = rnd(w, sizeof(advice));

	/* What it answers depends on memory; what is there must not. */
	pt_madvise(any_way(w), addr_of(w, i), n * PT_PAGE, advice[a]);
	if (a >= 3)
		for (u32 k = i; k < i + n; k++)
			if (mapped(&w->page[k]))
				w->page[k].advice = (u8)(1 + rnd(w, 250));
}

static void populate(struct window *w, u32 i, u32 n)
{
	bool write = rnd(w, 2);

	if (!all(w, i, n, write ? writable : readable))
		return;
	WANT(w, note(w, pt_madvise(any_way(w), addr_of(w, i), n * PT_PAGE,
				   write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ)) == 0);
}

static void on_fork(struct window *w, u32 i, u32 n)
{
	u32 what = rnd(w, 4);
	static const int advice[] = { MADV_DONTFORK, MADV_DOFORK, MADV_WIPEONFORK, MADV_KEEPONFORK };

	if (!all(w, i, n, anon))
		return;
	WANT(w, note(w, pt_madvise(seen_way(w), addr_of(w, i), n * PT_PAGE, advice[what])) == 0);
	for (u32 k = i; k < i + n; k++) {
		if (what < 2)
			w->page[k].dontfork = what == 0;
		else
			w->page[k].wipe = what == 2;
	}
}

static void guard(struct window *w, u32 i, u32 n)
{
	bool install = rnd(w, 3);
	enum pt_way way = seen_way(w);

	if (no_guards || any(w, i, n, locked) || !all(w, i, n, anon))
		return;
	if (note(w, pt_madvise(way, addr_of(w, i), n * PT_PAGE,
			       install ? PT_MADV_GUARD_INSTALL : PT_MADV_GUARD_REMOVE))) {
		WANT(w, errno == EINVAL);
		no_guards = true;
		return;
	}
	for (u32 k = i; k < i + n; k++) {
		if (install)
			w->page[k].content = ZEROS;
		w->page[k].guard = install;
	}
}

static void lock(struct window *w, u32 i, u32 n)
{
	bool on = rnd(w, 2);

	if (!on) {
		if (!all(w, i, n, mapped))
			return;
		WANT(w, note(w, munlock(addr_of(w, i), n * PT_PAGE)) == 0);
	} else {
		n = n > 16 ? 16 : n;
		if (!all(w, i, n, readable))
			return;
		WANT(w, note(w, mlock(addr_of(w, i), n * PT_PAGE)) == 0);
	}
	for (u32 k = i; k < i + n; k++)
		w->page[k].locked = on;
}

static bool alike(const struct page *a, const struct page *b)
{
	return a->kind == b->kind && a->prot == b->prot && a->map == b->map && a->wipe == b->wipe &&
	       a->dontfork == b->dontfork && a->advice == b->advice && !b->locked;
}

/* mremap, of pages that are one mapping. */
static void move(struct window *w, u32 i, u32 n)
{
	struct page old[1500 + 512], *p = &w->page[i], tail;
	u32 len = 1, how = rnd(w, 6), to, map = w->next_map++;
	enum pt_way way = any_way(w);
	char *got;

	if (!p->kind || p->locked)
		return;
	while (len < n && alike(p, &p[len]))
		len++;
	n = p->seeded ? len : 1;
	memcpy(old, p, n * sizeof(*p));
	tail = (struct page){ .kind = ANON, .prot = p->prot, .wipe = p->wipe, .dontfork = p->dontfork,
			      .advice = p->advice, .map = p->map, .seeded = p->seeded };
	if (how == 0) {
		u32 keep = 1 + rnd(w, n);

		WANT(w, note(w, pt_mremap(way, addr_of(w, i), n * PT_PAGE, keep * PT_PAGE, 0, NULL) == addr_of(w, i) ? 0 : -1) == 0);
		clear(w, i + keep, n - keep);
		return;
	}
	if (how == 1 && p->kind == ANON) {
		u32 more = 1 + rnd(w, 40);

		if (i + n + more > nr_pages)
			return;
		got = pt_mremap(way, addr_of(w, i), n * PT_PAGE, (n + more) * PT_PAGE, 0, NULL);
		note(w, got == MAP_FAILED ? -1 : 0);
		if (all(w, i + n, more, unmapped)) {
			WANT(w, got == addr_of(w, i));
			for (u32 k = i + n; k < i + n + more; k++)
				w->page[k] = tail;
		} else {
			if (got != MAP_FAILED || errno != ENOMEM)
				FAIL(w, "page %u, %u and %u more in place: %p", i, n, more, (void *)got);
		}
		return;
	}
	/* To another place, some other length; or out of the window first, where the kernel likes. */
	to = rnd(w, nr_pages - n + 1);
	if (to + n > i && to < i + n)
		return;
	if (how == 2 && p->kind == ANON) {
		got = pt_mremap(way, addr_of(w, i), n * PT_PAGE, n * PT_PAGE,
				MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, addr_of(w, to));
		note(w, got == MAP_FAILED ? -1 : 0);
		WANT(w, got == addr_of(w, to));
		for (u32 k = i; k < i + n; k++) {
			w->page[k] = tail;
			w->page[k].map = map;
			w->page[k].seeded = false;
		}
	} else if (how == 3 && p->kind == ANON) {
		char *away;

		got = mmap(NULL, (n + 8) * PT_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		WANT(w, got != MAP_FAILED);
		away = pt_mremap(way, addr_of(w, i), n * PT_PAGE, (n + 8) * PT_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, got);
		note(w, away == MAP_FAILED ? -1 : 0);
		WANT(w, away == got);
		clear(w, i, n);
		for (u32 k = 0; k < n; k++)
			if (readable(&old[k]) && !is_right(&old[k], away + k * PT_PAGE))
				FAIL(w, "page %u of %u wrong after it was moved away", k, n);
		if (readable(&tail))
			WANT(w, pt_page_zero(away + n * PT_PAGE));
		got = pt_mremap(any_way(w), away, (n + 8) * PT_PAGE, n * PT_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				addr_of(w, to));
		note(w, got == MAP_FAILED ? -1 : 0);
		WANT(w, got == addr_of(w, to));
	} else {
		got = pt_mremap(way, addr_of(w, i), n * PT_PAGE, n * PT_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, addr_of(w, to));
		note(w, got == MAP_FAILED ? -1 : 0);
		WANT(w, got == addr_of(w, to));
		clear(w, i, n);
	}
	memcpy(&w->page[to], old, n * sizeof(*p));
	for (u32 k = to; k < to + n; k++)
		w->page[k].map = map;
}

/* ---- the kernel reads and writes ---- */

static void kernel_write(struct window *w, u32 i)
{
	struct page *p = &w->page[i];
	u64 id = w->next_id++;
	char from[PT_PAGE] __attribute__((aligned(8)));
	struct iovec local = { from, PT_PAGE }, remote = { addr_of(w, i), PT_PAGE };
	u32 how = rnd(w, 3);
	long ret;

	pt_fill_page(from, id, 0);
	if (how == 0) {
		ret = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
	} else {
		WANT(w, pwrite(w->scratch, from, PT_PAGE, 0) == PT_PAGE);
		ret = how == 1 ? pread(w->scratch, addr_of(w, i), PT_PAGE, 0) : preadv(w->scratch, &remote, 1, 0);
	}
	note(w, ret);
	if (ret != (writable(p) ? (long)PT_PAGE : -1))
		FAIL(w, "page %u, kind %u prot %u guard %d, way %u: %ld", i, p->kind, p->prot, p->guard, how, ret);
	if (ret > 0) {
		p->content = FILLED;
		p->id = id;
	}
}

static void kernel_read(struct window *w, u32 i)
{
	struct page *p = &w->page[i];
	char into[PT_PAGE] __attribute__((aligned(8)));
	struct iovec local = { into, PT_PAGE }, remote = { addr_of(w, i), PT_PAGE };
	u32 how = rnd(w, 3);
	long ret;

	if (how == 0) {
		ret = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
	} else if (how == 1) {
		ret = pwrite(w->scratch, addr_of(w, i), PT_PAGE, 0);
		if (ret > 0)
			WANT(w, pread(w->scratch, into, PT_PAGE, 0) == PT_PAGE);
	} else {
		int fds[2];

		WANT(w, pipe(fds) == 0);
		ret = write(fds[1], addr_of(w, i), PT_PAGE);
		if (ret > 0)
			WANT(w, read(fds[0], into, PT_PAGE) == PT_PAGE);
		close(fds[0]);
		close(fds[1]);
	}
	note(w, ret);
	if (ret != (readable(p) ? (long)PT_PAGE : -1))
		FAIL(w, "page %u, kind %u prot %u guard %d, way %u: %ld", i, p->kind, p->prot, p->guard, how, ret);
	if (ret > 0)
		check_page(w, i, into, "read by the kernel");
}

static void touch(struct window *w, u32 i)
{
	bool write = rnd(w, 2);
	const struct page *p = &w->page[i];
	int sig;

	/* What it writes is what is there, which for FREED may change until it is written. */
	if (write && p->content == FREED)
		return;
	sig = pt_touch(addr_of(w, i), write);
	if (sig != ((write ? writable(p) : readable(p)) ? 0 : SIGSEGV))
		FAIL(w, "page %u at %p, kind %u prot %u guard %d: signal %d on %s", i, (void *)addr_of(w, i), p->kind,
		     p->prot, p->guard, sig, write ? "writing" : "reading");
}

/* ---- fork ---- */

static int memfd(const char *name)
{
	int fd = (int)syscall(SYS_memfd_create, name, 0);

	CHECK(fd >= 0);
	return fd;
}

static void run(struct window *w, u32 ops);

static void in_child(struct window *w)
{
	for (u32 k = 0; k < nr_pages; k++) {
		struct page *p = &w->page[k];

		p->locked = false;
		p->seeded = false; /* each mapping of the child is one for itself */
		if (p->dontfork || p->kind == SHARED_ANON) {
			/* The parent goes on writing to the second. */
			if (!p->dontfork)
				WANT(w, munmap(addr_of(w, k), PT_PAGE) == 0);
			clear(w, k, 1);
		} else if (p->wipe) {
			p->content = ZEROS;
			p->guard = false;
		}
	}
	close(w->scratch); /* the parent's too */
	w->scratch = memfd("scratch");
	w->depth++;
	w->seed = w->rng;
	w->next_id += 1000000000ULL * w->depth;
	if (rnd(w, 2))
		verify(w, 0, nr_pages);
	run(w, nr_ops / 8);
	verify(w, 0, nr_pages);
}

static void fork_one(struct window *w)
{
	pid_t pid;
	u32 own = rnd(w, 10);

	if (w->depth >= MAX_DEPTH)
		return;
	pid = fork();
	WANT(w, pid >= 0);
	if (!pid) {
		in_child(w);
		_exit(0);
	}
	w->rng ^= 0x5555;
	run(w, own);
	w->op = FORK;
	pt_reap(pid);
}

/* ---- all ---- */

static enum op choose(struct window *w)
{
	u32 sum = 0, at;
	u32 op = 0;

	for (u32 k = 0; k < NR_OPS; k++)
		sum += weight[k];
	for (at = rnd(w, sum); at >= weight[op]; op++)
		at -= weight[op];
	return (enum op)op;
}

static void step(struct window *w)
{
	u32 i, n;

	range(w, &i, &n);
	switch (w->op) {
	case MAP:
		map(w, i, n);
		break;
	case UNMAP:
		WANT(w, note(w, pt_munmap(any_way(w), addr_of(w, i), n * PT_PAGE)) == 0);
		clear(w, i, n);
		break;
	case PROTECT:
		protect(w, i, n);
		break;
	case DROP:
		drop(w, i, n);
		break;
	case FREE:
		free_lazily(w, i, n);
		break;
	case REMOVE:
		punch(w, i, n);
		break;
	case HINT:
		hint(w, i, n);
		break;
	case POPULATE:
		populate(w, i, n);
		break;
	case ON_FORK:
		on_fork(w, i, n);
		break;
	case GUARD:
		guard(w, i, n);
		break;
	case LOCK:
		lock(w, i, n);
		break;
	case MOVE:
		move(w, i, n);
		break;
	case WRITE:
		fill(w, i, n);
		break;
	case KERNEL_WRITE:
		kernel_write(w, i);
		break;
	case VERIFY:
		verify(w, i, n);
		break;
	case KERNEL_READ:
		kernel_read(w, i);
		break;
	case TOUCH:
		touch(w, i);
		break;
	case PRESS:
		pt_press_n(2 * PT_MIB + rnd(w, 4) * 4 * PT_MIB);
		break;
	case FORK:
		fork_one(w);
		break;
	}
}

static void run(struct window *w, u32 ops)
{
	for (u32 k = 0; k < ops; k++) {
		const struct page *p = traced < 0 ? NULL : &w->page[traced];
		struct page was;

		if (p)
			was = *p;
		w->op = choose(w);
		step(w);
		if (p && memcmp(p, &was, sizeof(was)))
			fprintf(stderr, "pid %d thread %u depth %u, call %u (%s): kind %u prot %u content %u id %llu guard %d wipe %d dontfork %d map %u\n",
				getpid(), w->nr, w->depth, w->done, op_name[w->op], p->kind, p->prot, p->content,
				(unsigned long long)p->id, p->guard, p->wipe, p->dontfork, p->map);
		w->done++;
	}
}

static void *thread_main(void *arg)
{
	struct window *w = arg;
	char page[PT_PAGE] __attribute__((aligned(8)));

	w->scratch = memfd("scratch");
	w->data = memfd("data");
	for (u32 i = 0; i < FILE_PAGES; i++) {
		pt_fill_page(page, FILE_TAG, i);
		WANT(w, pwrite(w->data, page, PT_PAGE, i * PT_PAGE) == PT_PAGE);
	}
	run(w, nr_ops);
	w->op = VERIFY;
	verify(w, 0, nr_pages);
	return NULL;
}

int main(int argc, char **argv)
{
	static struct window windows[16];
	pthread_t th[16];
	u32 threads;
	u64 seed;

	CHECK(argc >= 5);
	seed = strtoull(argv[1], NULL, 0);
	nr_ops = (u32)strtoul(argv[2], NULL, 0);
	threads = (u32)strtoul(argv[3], NULL, 0);
	nr_pages = (u32)(strtoul(argv[4], NULL, 0) * PT_MIB / PT_PAGE);
	CHECK(threads >= 1 && threads <= 16 && nr_pages && nr_pages <= MAX_PAGES);
	for (int way = 0; argc > 5 && way < PT_WAYS; way++)
		if (!strncmp(pt_way_name[way], argv[5], strlen(argv[5])))
			only_way = way;
	if (getenv("VM_FUZZ_PAGE"))
		traced = atoi(getenv("VM_FUZZ_PAGE"));
	pt_catch_faults();
	for (u32 t = 0; t < threads; t++) {
		struct window *w = &windows[t];

		w->seed = w->rng = pt_mix(seed * 16 + t);
		w->nr = t;
		w->next_id = 1 + t * 100000000ULL;
		w->base = (char *)(BASE + t * 0x40000000UL);
		w->page = calloc(nr_pages, sizeof(struct page));
		CHECK(w->page);
		CHECK(mmap(w->base, nr_pages * PT_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			   0) == w->base);
		CHECK(munmap(w->base, nr_pages * PT_PAGE) == 0);
		PCHECK(pthread_create(&th[t], NULL, thread_main, w));
	}
	for (u32 t = 0; t < threads; t++)
		PCHECK(pthread_join(th[t], NULL));
	for (u32 t = 0; t < threads; t++)
		for (u32 op = 0; op < NR_OPS; op++)
			printf("%u %s: %u, EINVAL %u, ENOMEM %u, EFAULT %u, else %u\n", t, op_name[op],
			       windows[t].codes[op][0], windows[t].codes[op][1], windows[t].codes[op][2],
			       windows[t].codes[op][3], windows[t].codes[op][4]);
	return 0;
}
