/* SPDX-License-Identifier: MIT */
/* engine.c - see engine.h. */
#include "engine.h"
#include "account.h"
#include "arena.h"
#include "event.h"
#include "log.h"
#include "pagetable.h"
#include "reclaim.h"
#include "region.h"
#include "vma.h"

#define RAM_SLOTS_MIN (GiB(8) >> PAGE_SHIFT)
#define RAM_SLOTS_MAX (GiB(512) >> PAGE_SHIFT)
#define RAM_LIMIT_FACTOR 32 /* slots for so many limits' worth of pages: zeros compress to nothing */
#define FILE_LIMIT_FACTOR 8

void engine_tune(struct pswap *ps, const char *(*getval)(const char *name))
{
	const char *v;

	if ((v = getval("PSWAP_NO_MOVE")) && *v == '1')
		ps->cfg.uffd_want |= UFFD_NO_MOVE;
	if ((v = getval("PSWAP_NO_POISON")) && *v == '1')
		ps->cfg.uffd_want |= UFFD_NO_POISON;
	if ((v = getval("PSWAP_NO_WP")) && *v == '1')
		ps->cfg.uffd_want |= UFFD_NO_WP;
	if ((v = getval("PSWAP_NO_THP")) && *v == '1')
		ps->cfg.no_thp = true;
	if ((v = getval("PSWAP_NO_HANDOFF")) && *v == '1')
		ps->cfg.handoff = false;
	if ((v = getval("PSWAP_AROUND")) && (*v == '0' || *v == '4' || *v == '9'))
		ps->cfg.around = 1 + (unsigned)(*v - '0');
	if ((v = getval("PSWAP_DRAIN")) && strcmp(v, "every") == 0)
		ps->lru.drain_every = true;
	if ((v = getval("PSWAP_CLONE")) && strcmp(v, "copy") == 0)
		ps->cfg.clone_copy = true;
	if ((v = getval("PSWAP_FREE")) && strcmp(v, "entry") == 0)
		ps->swap.free_mode = SWAP_FREE_ENTRY;
}

static u64 cluster_slots(u64 slots)
{
	return MAX(ALIGN_DOWN(slots, (u64)SWAPFILE_CLUSTER), (u64)SWAPFILE_CLUSTER);
}

static struct store *open_ram(struct pswap *ps, const struct store_spec *spec, int *err)
{
	struct store_ram_options o = {
		.max_bytes = spec->max_bytes,
		.codec = spec->codec,
		.level = spec->level,
		.nr_workers = PS_NR_CTX,
		.verify = true,
	};
	u64 slots = (ps->cfg.limit >> PAGE_SHIFT) * RAM_LIMIT_FACTOR;

	slots = MIN(MAX(slots, RAM_SLOTS_MIN), RAM_SLOTS_MAX);
	/* Tables are reserved for all slots: with a limit on address space take fewer. */
	for (;; slots /= 2) {
		struct store *st;

		o.nr_slots = cluster_slots(slots);
		st = store_ram_open(&o, err);
		if (st || *err != -ENOMEM || slots < 2 * SWAPFILE_CLUSTER)
			return st;
	}
}

static struct store *open_file(struct pswap *ps, const struct store_spec *spec, const char *dir,
			       int *err)
{
	u64 size = spec->size_bytes ? spec->size_bytes : ps->cfg.limit * FILE_LIMIT_FACTOR;
	struct store_file_options o = {
		.nr_slots = cluster_slots(size >> PAGE_SHIFT),
		.path = spec->path[0] ? spec->path : dir,
		.encrypt = spec->encrypt,
		.nr_workers = PS_NR_CTX,
		.flags = ps->cfg.foreign_program ? STORE_FILE_KEEP_DIR : 0,
	};

	return store_file_open(&o, err);
}

static int open_stores(struct pswap *ps, const struct store_spec *specs, unsigned n,
		       const char *dir, char *msg, size_t size)
{
	unsigned at;

	ps->ram_area = PS_MAX_STORES;
	for (unsigned i = 0; i < n; i++) {
		struct store *st;
		int err = 0;

		st = specs[i].kind == STORE_RAM ? open_ram(ps, &specs[i], &err) :
						  open_file(ps, &specs[i], dir, &err);
		/* A program that may not write files (ulimit -f) has the pool still. */
		if (!st && ps->cfg.foreign_program && ps->nr_stores && specs[i].kind == STORE_FILE) {
			ps_log("store %u (file) cannot be opened: going on without it", (u64)i + 1);
			continue;
		}
		if (!st) {
			ps_format(msg, size, "store %u (%s) cannot be opened: error %d", (u64)i + 1,
				  specs[i].kind == STORE_RAM ? "ram" : "file", (s64)-err);
			return err;
		}
		at = ps->nr_stores++;
		ps->stores[at] = st;
		err = swapfile_add_area(&ps->swap, st);
		if (err) {
			ps_format(msg, size, "no memory for the tables of store %u", (u64)i + 1);
			return err;
		}
		if (specs[i].kind == STORE_RAM && ps->ram_area == PS_MAX_STORES)
			ps->ram_area = at;
		memcpy(ps->stat->stores[at].name, st->name, sizeof(st->name));
		relaxed_store(&ps->stat->nr_stores, at + 1);
	}
	return 0;
}

/* A child's /proc may be gone, or something else by now: then the parent's. */
static int open_proc(struct pswap *ps)
{
	int fd = (int)sys_open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC, 0), self = -1, got;

	if (fd >= 0)
		self = (int)sys_openat(fd, "self/statm", O_RDONLY | O_CLOEXEC);
	if (self >= 0) {
		sys_close(self);
		return fd;
	}
	got = ps->inherit_proc ? ps->inherit_proc() : -1;
	if (got < 0)
		return fd;
	if (fd >= 0)
		sys_close(fd);
	return got;
}

/* The program's number in /proc, which may be of another pid namespace than ours; 0: not to be had. */
static pid_t number_in_proc(struct pswap *ps)
{
	char path[40], buf[512];
	int pidfd = (int)sys_call2(SYS_pidfd_open, ps->program_pid, 0), fd;
	const char *p;
	pid_t pid = 0;
	long n;

	if (pidfd < 0)
		return 0;
	ps_format(path, sizeof(path), "self/fdinfo/%u", (u64)pidfd);
	fd = (int)sys_openat(ps->proc_fd, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : sys_read(fd, buf, sizeof(buf) - 1);
	if (fd >= 0)
		sys_close(fd);
	sys_close(pidfd);
	buf[MAX(n, 0)] = 0;
	p = strstr(buf, "\nPid:\t");
	for (p = p ? p + 6 : ""; *p >= '0' && *p <= '9'; p++)
		pid = pid * 10 + (*p - '0');
	return pid;
}

static void forget_fds(struct pswap *ps)
{
	ps->mm.uffd = ps->proc_fd = ps->rollup_fd = ps->statm_fd = ps->maps_fd = -1;
	ps->pagemap_fd = ps->mem_fd = -1;
	ps->empty_fd = ps->kick_fd = ps->stat_fd = -1;
}

int engine_open_fds(struct pswap *ps)
{
	int fd = uffd_open(ps->cfg.uffd_want, &ps->caps);

	forget_fds(ps);
	ps->mm.uffd = fd;
	if (fd < 0)
		return fd;
	ps->pid = (pid_t)sys_getpid();
	ps->kick_fd = (int)sys_call2(SYS_eventfd2, 0, O_CLOEXEC | O_NONBLOCK);
	ps->proc_fd = open_proc(ps);
	ps->maps_fd = vma_open(ps->proc_fd);
	ps->statm_fd = (int)sys_openat(ps->proc_fd, "self/statm", O_RDONLY | O_CLOEXEC);
	ps->rollup_fd = (int)sys_openat(ps->proc_fd, "self/smaps_rollup", O_RDONLY | O_CLOEXEC);
	ps->pagemap_fd = (int)sys_openat(ps->proc_fd, "self/pagemap", O_RDONLY | O_CLOEXEC);
	ps->mem_fd = (int)sys_openat(ps->proc_fd, "self/mem", O_RDWR | O_CLOEXEC);
	if (ps->program_pid) {
		char path[32];

		ps->proc_pid = number_in_proc(ps);
		ps_format(path, sizeof(path), "%u/stat", (u64)ps->proc_pid);
		ps->stat_fd = (int)sys_openat(ps->proc_fd, path, O_RDONLY | O_CLOEXEC);
	}
	if (!ps->caps.poison)
		ps->empty_fd = (int)sys_call2(SYS_memfd_create, "pswap-poison", 1 /* CLOEXEC */);
	if (ps->cfg.foreign_program && (ps->maps_fd < 0 || ps->statm_fd < 0 || ps->pagemap_fd < 0))
		return -ENOENT;
	return 0;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		sys_close(fd);
}

static struct ps_ctx *ctx_new(struct pswap *ps, unsigned id)
{
	struct ps_ctx *ctx = arena_map(sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->ps = ps;
	ctx->id = id;
	ctx->rng = 0x9e3779b9 ^ (id + 1) * 0x85ebca6b;
	ctx->buf = arena_map(PS_BUF_PAGES * PAGE_SIZE);
	ps->ctx[id] = ctx;
	if (!ctx->buf || codec_init(&ctx->probe, CODEC_LZ4, 0))
		return NULL;
	return ctx;
}

int engine_open(struct pswap *ps, const struct store_spec *specs, unsigned n, const char *dir,
		char *msg, size_t size)
{
	int err;

	ps_lock_set_rank(&ps->freeze, RANK_FREEZE);
	ps_lock_set_rank(&ps->lru.root.lock, RANK_LEAF);
	ps_lock_set_rank(&ps->groups.mixed.lock, RANK_LEAF);
	for (unsigned i = 0; i < LRU_MAX_CPUS; i++)
		ps_lock_set_rank(&ps->lru.cpus[i].lock, RANK_LRU_CPU);
	ps->mm.ps = ps;
	forget_fds(ps);
	relaxed_store(&ps->limit_now, ps->cfg.limit);
	relaxed_store(&ps->density, 512);
	ps->cfg.nr_handlers = MIN(MAX(ps->cfg.nr_handlers, 1U), PS_MAX_HANDLERS);
	ps->cfg.nr_workers = MIN(MAX(ps->cfg.nr_workers, 1U), PS_MAX_WORKERS);
	err = engine_open_fds(ps);
	if (err) {
		ps_format(msg, size, err == -ENOTSUP || err == -EPERM || err == -ENOSYS ?
			  "no userfaultfd that serves the kernel's own accesses" :
			  "userfaultfd or /proc cannot be opened: error %d", (s64)-err);
		goto fail;
	}
	err = open_stores(ps, specs, n, dir, msg, size);
	if (err)
		goto fail;
	err = -ENOMEM;
	ps_format(msg, size, "out of address space");
	ps->zeros = arena_get_unit(ARENA_FRAME);
	if (!ps->zeros || pt_init(&ps->mm))
		goto fail;
	for (unsigned i = 0; i < PS_NR_CTX; i++)
		if (!ctx_new(ps, i))
			goto fail;
	account_refresh(ps);
	return 0;
fail:
	engine_close(ps);
	return err;
}

int engine_start(struct pswap *ps, ps_spawn_fn spawn)
{
	int err;

	for (unsigned i = 0; i < ps->cfg.nr_workers; i++) {
		err = spawn(ps, reclaim_worker, ps->ctx[PS_MAX_HANDLERS + i]);
		if (err)
			return err;
	}
	if (ps->caps.sigbus)
		return 0;
	for (unsigned i = 0; i < ps->cfg.nr_handlers; i++) {
		err = spawn(ps, event_handler, ps->ctx[i]);
		if (err)
			return err;
	}
	return 0;
}

void engine_stop(struct pswap *ps)
{
	relaxed_store(&ps->stop, 1);
	ps_event_wake(&ps->reclaim_ev);
	ps_event_wake(&ps->freed_ev);
}

void engine_close(struct pswap *ps)
{
	for (unsigned i = 0; i < PS_NR_CTX; i++) {
		struct ps_ctx *ctx = ps->ctx[i];

		if (!ctx)
			continue;
		codec_fini(&ctx->probe);
		arena_unmap(ctx->buf, PS_BUF_PAGES * PAGE_SIZE);
		arena_unmap(ctx, sizeof(*ctx));
		ps->ctx[i] = NULL;
	}
	if (ps->zeros)
		arena_put_unit(ARENA_FRAME, (void *)(uintptr_t)ps->zeros);
	ps->zeros = NULL;
	if (ps->swap.nr_areas)
		swapfile_close(&ps->swap);
	for (unsigned i = 0; i < ps->nr_stores; i++)
		store_close(ps->stores[i]);
	ps->nr_stores = 0;
	region_free(&ps->mm);
	pt_free(&ps->mm);
	arena_unmap(ps->groups.table, PS_MAX_GROUPS * sizeof(struct pswap_group));
	ps->groups = (struct ps_groups){ 0 };
	close_fd(ps->mm.uffd);
	close_fd(ps->proc_fd);
	close_fd(ps->rollup_fd);
	close_fd(ps->statm_fd);
	close_fd(ps->maps_fd);
	close_fd(ps->pagemap_fd);
	close_fd(ps->mem_fd);
	close_fd(ps->empty_fd);
	close_fd(ps->stat_fd);
	close_fd(ps->kick_fd);
}
