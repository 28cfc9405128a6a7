/* SPDX-License-Identifier: MIT */
/*
 * api.c - libpswap: see include/pswap.h for what the calls promise.  This file and api_signal.c are
 * the only ones under src/ that may use pthreads, errno and the environment: they run in a program
 * whose own memory is never taken away.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "account.h"
#include "api.h"
#include "arena.h"
#include "engine.h"
#include "fault.h"
#include "group.h"
#include "log.h"
#include "pagetable.h"
#include "reclaim.h"
#include "region.h"
#include "zap.h"

#define LIMIT_MIN MiB(16)
#define MAX_OPEN 64

/* An engine as the API has it: the engine, its threads, its counters. */
struct api_engine {
	struct pswap ps; /* first: struct pswap * is what users hold */
	struct ps_member member;
	pthread_t threads[PS_MAX_HANDLERS + PS_MAX_WORKERS];
	unsigned nr_threads;
	bool signal_mode;
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pswap *open_engines[MAX_OPEN];

static __thread char error_line[256];

const char *pswap_strerror(void)
{
	return error_line;
}

int api_fail(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	ps_vformat(error_line, sizeof(error_line), fmt, ap);
	va_end(ap);
	errno = err;
	return -1;
}

struct pswap *api_group_engine(const struct pswap_group *g)
{
	struct pswap *ps = NULL;

	pthread_mutex_lock(&open_lock);
	for (unsigned i = 0; i < MAX_OPEN && !ps; i++)
		if (open_engines[i] && group_valid(open_engines[i], g))
			ps = open_engines[i];
	pthread_mutex_unlock(&open_lock);
	return ps && ps->pid == getpid() ? ps : NULL;
}

bool api_is_open(struct pswap *ps)
{
	bool found = false;

	pthread_mutex_lock(&open_lock);
	for (unsigned i = 0; i < MAX_OPEN && ps; i++)
		found |= open_engines[i] == ps;
	pthread_mutex_unlock(&open_lock);
	return found && ps->pid == getpid();
}

sigset_t api_enter(void)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	return old;
}

void api_leave(sigset_t old)
{
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* ---- open and close ---- */

static void *thread_main(void *arg)
{
	struct ps_ctx *ctx = arg;

	ctx->main(ctx);
	return NULL;
}

static int spawn(struct pswap *ps, void (*fn)(struct ps_ctx *), struct ps_ctx *ctx)
{
	struct api_engine *a = (struct api_engine *)ps;
	sigset_t all, old;
	int err;

	ctx->main = fn;
	/* Signals of the program are not for these threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&a->threads[a->nr_threads], NULL, thread_main, ctx);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return -err;
	a->nr_threads++;
	return 0;
}

static const char *env_value(const char *name)
{
	return getenv(name);
}

static int parse_stores(const struct pswap_options *opt, struct store_spec *specs, unsigned *n)
{
	static const char *const by_default[] = { "ram", "file" };
	const char *const *texts = opt->stores ? opt->stores : by_default;
	char err[200];

	*n = opt->stores ? opt->n_stores : ARRAY_SIZE(by_default);
	if (*n == 0 || *n > PS_MAX_STORES)
		return api_fail(EINVAL, "n_stores must be 1 to %u", (u64)PS_MAX_STORES);
	for (unsigned i = 0; i < *n; i++)
		if (!texts[i] || store_spec_parse(texts[i], &specs[i], err, sizeof(err)))
			return api_fail(EINVAL, "%s", texts[i] ? err : "a store is NULL");
	return 0;
}

static const char *spill_dir(void)
{
	const char *dir = getenv("TMPDIR");

	return dir && *dir ? dir : "/var/tmp";
}

static int check_options(const struct pswap_options *opt)
{
	const unsigned known = PSWAP_COUNT_RESIDENT | PSWAP_FAULT_SIGNAL | PSWAP_FAULT_THREAD;

	if (!opt || opt->size != sizeof(*opt))
		return api_fail(EINVAL, "size must be sizeof(struct pswap_options)");
	if (opt->memory_limit < LIMIT_MIN || opt->memory_limit > API_ADDRESS_SPACE)
		return api_fail(EINVAL, "memory_limit must be 16 MiB to 128 TiB");
	if (opt->flags & ~known)
		return api_fail(EINVAL, "unknown flags %x", (u64)(opt->flags & ~known));
	if ((opt->flags & PSWAP_FAULT_SIGNAL) && (opt->flags & PSWAP_FAULT_THREAD))
		return api_fail(EINVAL, "PSWAP_FAULT_SIGNAL and PSWAP_FAULT_THREAD exclude each other");
	if (opt->workers > PS_MAX_WORKERS)
		return api_fail(EINVAL, "workers must be at most %u", (u64)PS_MAX_WORKERS);
	return 0;
}

static bool want_signal(const struct pswap_options *opt)
{
	const char *mode = getenv("PSWAP_FAULT");

	if (mode && strcmp(mode, "signal") == 0)
		return true;
	return (opt->flags & PSWAP_FAULT_SIGNAL) && !(mode && strcmp(mode, "thread") == 0);
}

static void end_threads(struct api_engine *a)
{
	engine_stop(&a->ps);
	for (unsigned i = 0; i < a->nr_threads; i++)
		pthread_join(a->threads[i], NULL);
	a->nr_threads = 0;
}

static int register_open(struct pswap *ps)
{
	int ret = -1;

	pthread_mutex_lock(&open_lock);
	for (unsigned i = 0; i < MAX_OPEN && ret; i++) {
		if (open_engines[i])
			continue;
		open_engines[i] = ps;
		ret = 0;
	}
	pthread_mutex_unlock(&open_lock);
	return ret ? api_fail(EMFILE, "too many engines are open") : 0;
}

static bool unregister_open(struct pswap *ps)
{
	bool found = false;

	pthread_mutex_lock(&open_lock);
	for (unsigned i = 0; i < MAX_OPEN && ps; i++) {
		if (open_engines[i] != ps || ps->pid != getpid())
			continue;
		open_engines[i] = NULL;
		found = true;
	}
	pthread_mutex_unlock(&open_lock);
	return found;
}

int pswap_open(struct pswap **out, const struct pswap_options *opt)
{
	struct store_spec *specs;
	struct api_engine *a;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned n;
	char err[200];
	int ret;

#ifdef PS_DEBUG
	if (!ps_lock_checks)
		ps_lock_checks = true;
#endif
	if (!out)
		return api_fail(EINVAL, "no place for the result");
	if (check_options(opt))
		return -1;
	specs = calloc(PS_MAX_STORES, sizeof(*specs));
	a = arena_map(sizeof(*a));
	if (!specs || !a) {
		ret = api_fail(ENOMEM, "out of memory");
		goto fail;
	}
	ret = parse_stores(opt, specs, &n);
	if (ret)
		goto fail;
	a->signal_mode = want_signal(opt);
	a->ps.stat = &a->member;
	a->ps.swap.uncharge = group_uncharge_swap;
	a->ps.swap.ctx = &a->ps;
	a->ps.cfg.limit = opt->memory_limit;
	a->ps.cfg.count = opt->flags & PSWAP_COUNT_RESIDENT ? PS_COUNT_RESIDENT : PS_COUNT_ALL;
	a->ps.cfg.nr_workers = opt->workers ? opt->workers : (unsigned)MIN(MAX(cpus, 1), 4);
	a->ps.cfg.nr_handlers = (unsigned)MIN(MAX(cpus, 2), 4);
	a->ps.cfg.uffd_want = a->signal_mode ? UFFD_WANT_SIGBUS | UFFD_WANT_USER_ONLY : 0;
	if (opt->memory_limit <= PS_SMALL_LIMIT) {
		a->ps.cfg.no_thp = true;
		if (!opt->workers)
			a->ps.cfg.nr_workers = 1;
	}
	engine_tune(&a->ps, env_value);
	ret = engine_open(&a->ps, specs, n, spill_dir(), err, sizeof(err));
	if (ret) {
		ret = api_fail(-ret, "%s", err);
		goto fail;
	}
	ret = register_open(&a->ps);
	if (ret)
		goto fail_close;
	ret = engine_start(&a->ps, spawn);
	if (ret == 0 && a->signal_mode)
		ret = api_signal_start(&a->ps);
	if (ret) {
		ret = api_fail(-ret, "threads cannot be started: error %d", (s64)-ret);
		end_threads(a);
		goto fail_close;
	}
	free(specs);
	*out = &a->ps;
	return 0;
fail_close:
	unregister_open(&a->ps);
	engine_close(&a->ps);
fail:
	free(specs);
	arena_unmap(a, sizeof(*a));
	return ret;
}

int pswap_close(struct pswap *ps)
{
	struct api_engine *a = (struct api_engine *)ps;

	if (!unregister_open(ps))
		return api_fail(EINVAL, "not an open pswap");
	while (ps->mm.nr_regions) {
		struct region r = ps->mm.regions[0];

		ps_rwlock_write_lock(&ps->mm.gate);
		zap_range(&ps->mm, r.start, r.end, 0);
		region_del(&ps->mm, r.start, r.end);
		sys_munmap((void *)(uintptr_t)r.start, r.end - r.start);
		ps_rwlock_write_unlock(&ps->mm.gate);
	}
	if (a->signal_mode)
		api_signal_stop(ps);
	end_threads(a);
	engine_close(ps);
	arena_unmap(a, sizeof(*a));
	return 0;
}

/* ---- mapping ---- */

int api_check_range(struct pswap *ps, void *addr, size_t length)
{
	u64 start = (u64)(uintptr_t)addr;
	bool ours;
	sigset_t old;

	CHECK_OPEN(ps);
	if (start & ~PAGE_MASK || length & ~PAGE_MASK || length == 0)
		return api_fail(EINVAL, "addr and length must be multiples of 4096, length not 0");
	if (start + length < start)
		return api_fail(EINVAL, "the range goes past the end of the address space");
	old = api_enter();
	ps_rwlock_read_lock(&ps->mm.gate);
	ours = region_covers(&ps->mm, start, start + length);
	ps_rwlock_read_unlock(&ps->mm.gate);
	api_leave(old);
	return ours ? 0 : api_fail(EINVAL, "a part of the range was not mapped by pswap_mmap");
}

static void *map(struct pswap *ps, size_t length, struct pswap_group *group, unsigned flags)
{
	size_t align = length >= PMD_SIZE ? PMD_SIZE : PAGE_SIZE, extra;
	char *raw, *p;
	sigset_t old;
	int ret;

	extra = align > PAGE_SIZE ? align : 0;
	if (length + extra < length || length + extra > API_ADDRESS_SPACE) {
		api_fail(ENOMEM, "length is over the address space");
		return MAP_FAILED;
	}
	raw = sys_mmap(NULL, length + extra, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_err((long)raw)) {
		api_fail(ENOMEM, "mmap failed");
		return MAP_FAILED;
	}
	p = (char *)ALIGN_UP((uintptr_t)raw, align);
	if (p > raw)
		sys_munmap(raw, p - raw);
	if (raw + length + extra > p + length)
		sys_munmap(p + length, raw + length + extra - (p + length));
	sys_madvise(p, length, MADV_DONTFORK);
	/* Without MADV_HUGEPAGE a fault makes a table of ptes before it comes to us, and a huge page
	 * that is moved there is split (docs/decisions/004). */
	sys_madvise(p, length, flags & PSWAP_MAP_NOHUGE ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
	old = api_enter();
	ps_rwlock_write_lock(&ps->mm.gate);
	ret = region_add(&ps->mm, (u64)(uintptr_t)p, (u64)(uintptr_t)p + length,
			 REGION_FRESH | (flags & PSWAP_MAP_NOHUGE ? REGION_NOHUGE : REGION_HUGE));
	if (ret == 0 && group)
		ret = region_set_group(&ps->mm, (u64)(uintptr_t)p, (u64)(uintptr_t)p + length,
				       group->id);
	if (ret == 0)
		ret = uffd_register(ps->mm.uffd, (u64)(uintptr_t)p, length, !ps->caps.move);
	if (ret) {
		region_del(&ps->mm, (u64)(uintptr_t)p, (u64)(uintptr_t)p + length);
		sys_munmap(p, length);
	} else if (groups_on(ps)) {
		/* Extents that are there already: of memory that was unmapped, or of neighbours. */
		group_sync_range(&ps->mm, (u64)(uintptr_t)p, (u64)(uintptr_t)p + length);
	}
	ps_rwlock_write_unlock(&ps->mm.gate);
	api_leave(old);
	if (ret) {
		api_fail(ENOMEM, "the range cannot be registered: error %d", (s64)-ret);
		return MAP_FAILED;
	}
	return p;
}

void *pswap_mmap(struct pswap *ps, size_t length, struct pswap_group *group, unsigned flags)
{
	void *p;

	if (!api_is_open(ps)) {
		api_fail(EINVAL, "not an open pswap of this process");
		return MAP_FAILED;
	}
	if ((flags & ~PSWAP_MAP_NOHUGE) || length == 0 || (length & ~PAGE_MASK)) {
		api_fail(EINVAL, "length must be a multiple of 4096 and not 0, flags known");
		return MAP_FAILED;
	}
	if (group && !api_group_get(ps, group)) {
		api_fail(EINVAL, "not a group of this pswap");
		return MAP_FAILED;
	}
	p = map(ps, length, group, flags);
	if (group)
		api_group_put(group);
	return p;
}

int pswap_munmap(struct pswap *ps, void *addr, size_t length)
{
	u64 start = (u64)(uintptr_t)addr;
	sigset_t old;

	long ret;

	if (api_check_range(ps, addr, length))
		return -1;
	old = api_enter();
	ps_rwlock_write_lock(&ps->mm.gate);
	/* First the kernel, which may refuse (too many mappings); nothing can come between. */
	ret = sys_munmap(addr, length);
	if (ret == 0) {
		zap_range(&ps->mm, start, start + length, 0);
		region_del(&ps->mm, start, start + length);
		if (groups_on(ps))
			group_unmapped(&ps->mm, start, start + length);
	}
	ps_rwlock_write_unlock(&ps->mm.gate);
	api_leave(old);
	return ret ? api_fail((int)-ret, "munmap failed") : 0;
}

static int drop(struct pswap *ps, void *addr, size_t length)
{
	u64 start = (u64)(uintptr_t)addr;
	sigset_t old = api_enter();
	long ret;

	ps_rwlock_write_lock(&ps->mm.gate);
	ret = sys_madvise(addr, length, MADV_DONTNEED);
	if (ret == 0)
		zap_range(&ps->mm, start, start + length, 0);
	ps_rwlock_write_unlock(&ps->mm.gate);
	api_leave(old);
	return ret ? api_fail((int)-ret, "the range cannot be dropped (is it locked?)") : 0;
}

static int hint(struct pswap *ps, void *addr, size_t length, u32 set, u32 clear)
{
	u64 start = (u64)(uintptr_t)addr;
	sigset_t old = api_enter();
	int ret;

	ps_rwlock_write_lock(&ps->mm.gate);
	ret = region_flags(&ps->mm, start, start + length, set, clear);
	ps_rwlock_write_unlock(&ps->mm.gate);
	api_leave(old);
	return ret ? api_fail(ENOMEM, "out of memory") : 0;
}

static int with_ctx(struct pswap *ps, u64 start, u64 end,
		    int (*fn)(struct ps_ctx *, struct ps_mm *, u64, u64))
{
	sigset_t old = api_enter();
	int ret;

	ps_mutex_lock(&ps->ctx_lock);
	ret = fn(ps->ctx[PS_NR_CTX - 1], &ps->mm, start, end);
	ps_mutex_unlock(&ps->ctx_lock);
	api_leave(old);
	return ret ? api_fail(-ret, ret == -ENOMEM ? "no room in any store" :
						     "a page cannot be read back") : 0;
}

static int page_out(struct ps_ctx *ctx, struct ps_mm *mm, u64 start, u64 end)
{
	return reclaim_range(ctx, mm, start, end, true);
}

static int take_out(struct ps_ctx *ctx, struct ps_mm *mm, u64 start, u64 end)
{
	return reclaim_range(ctx, mm, start, end, false);
}

int pswap_madvise(struct pswap *ps, void *addr, size_t length, int advice)
{
	u64 start = (u64)(uintptr_t)addr, end = start + length;

	if (api_check_range(ps, addr, length))
		return -1;
	switch (advice) {
	case MADV_DONTNEED:
		return drop(ps, addr, length);
	case MADV_PAGEOUT:
		return with_ctx(ps, start, end, page_out);
	case MADV_COLD:
		return with_ctx(ps, start, end, take_out);
	case MADV_WILLNEED:
		return with_ctx(ps, start, end, fault_range);
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
		if (with_ctx(ps, start, end, fault_range))
			return -1;
		/* What was never touched: by the kernel, whose faults come to our handlers. */
		if (!ps->caps.sigbus)
			sys_madvise(addr, length, advice);
		return 0;
	case MADV_NORMAL:
		return hint(ps, addr, length, 0, REGION_RANDOM | REGION_SEQ);
	case MADV_RANDOM:
		return hint(ps, addr, length, REGION_RANDOM, REGION_SEQ);
	case MADV_SEQUENTIAL:
		return hint(ps, addr, length, REGION_SEQ, REGION_RANDOM);
	case MADV_HUGEPAGE:
		return hint(ps, addr, length, REGION_HUGE, REGION_NOHUGE);
	case MADV_NOHUGEPAGE:
		return hint(ps, addr, length, REGION_NOHUGE, REGION_HUGE);
	}
	return api_fail(EINVAL, "advice %d is not supported", (s64)advice);
}

int pswap_truncate(struct pswap *ps, void *addr, size_t old_length, size_t new_length)
{
	size_t keep = ALIGN_UP(new_length, PAGE_SIZE), whole = ALIGN_UP(old_length, PAGE_SIZE);

	if (new_length > old_length || whole < old_length)
		return api_fail(EINVAL, "new_length must not be larger than old_length");
	if (api_check_range(ps, addr, whole))
		return -1;
	/* The rest of the last page that stays reads as zeros, as after ftruncate. */
	if (keep > new_length)
		memset((char *)addr + new_length, 0, MIN(keep, old_length) - new_length);
	return whole > keep ? drop(ps, (char *)addr + keep, whole - keep) : 0;
}

/* ---- figures ---- */

static u64 percentile(struct ps_member *m, unsigned percent)
{
	u64 total = 0, seen = 0;

	for (unsigned b = 0; b < PS_HIST_BUCKETS; b++)
		total += relaxed_load(&m->fault_hist[b]);
	for (unsigned b = 0; b < PS_HIST_BUCKETS && total; b++) {
		seen += relaxed_load(&m->fault_hist[b]);
		if (seen * 100 >= total * percent)
			return ps_hist_value(b);
	}
	return 0;
}

int pswap_stat(struct pswap *ps, struct pswap_stat *st)
{
	struct ps_member *m;
	struct swapfile_stat sw;

	CHECK_OPEN(ps);
	if (!st || st->size != sizeof(*st))
		return api_fail(EINVAL, "size must be sizeof(struct pswap_stat)");
	m = ps->stat;
	account_refresh(ps);
	swapfile_stat(&ps->swap, &sw);
	*st = (struct pswap_stat){ .size = sizeof(*st) };
#define COPY(field) st->field = relaxed_load(&m->field)
	COPY(limit_bytes);
	COPY(footprint_bytes);
	COPY(peak_footprint_bytes);
	COPY(resident_bytes);
	COPY(pool_bytes);
	COPY(peak_pool_bytes);
	COPY(metadata_bytes);
	COPY(swapped_pages);
	COPY(pages_out);
	COPY(pages_in);
	COPY(pages_same_filled);
	COPY(pages_clean_dropped);
	COPY(faults);
	COPY(faults_zero);
	COPY(batch_frees);
	COPY(entry_frees);
	COPY(cluster_frees);
	COPY(lru_drains);
	COPY(pages_cache_in);
	COPY(pages_poisoned);
	COPY(pages_pinned);
	COPY(refaults);
	COPY(activations);
	COPY(owner_lookups);
	st->pages_cloned = relaxed_load(&ps->pages_cloned);
#undef COPY
	st->fault_ns_p50 = percentile(m, 50);
	st->fault_ns_p99 = percentile(m, 99);
	st->slots_used = sw.slots_used;
	st->frames_used = relaxed_load(&ps->cache.nr_frames);
	for (unsigned i = 0; i < ps->nr_stores; i++) {
		struct store_stat s;

		ps->stores[i]->ops->stat(ps->stores[i], &s);
		st->segments_used += s.segments;
		st->store_used_bytes[i] = s.used_bytes;
		st->store_io_errors[i] = s.io_errors;
		st->returned_bytes += s.returned_bytes;
	}
	return 0;
}

int pswap_purge(struct pswap *ps)
{
	CHECK_OPEN(ps);
	for (unsigned i = 0; i < ps->nr_stores; i++)
		if (ps->stores[i]->ops->purge)
			ps->stores[i]->ops->purge(ps->stores[i]);
	return 0;
}
