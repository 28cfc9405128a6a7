/* SPDX-License-Identifier: MIT */
/* account.c - see account.h. */
#include "account.h"

static s64 statm_anon(int fd)
{
	char buf[128];
	u64 v[3] = { 0 };
	long n = sys_pread(fd, buf, sizeof(buf) - 1, 0);
	char *p = buf;

	if (n <= 0)
		return -1;
	buf[n] = 0;
	for (int i = 0; i < 3; i++) {
		while (*p >= '0' && *p <= '9')
			v[i] = v[i] * 10 + (*p++ - '0');
		while (*p == ' ')
			p++;
	}
	return ((s64)v[1] - (s64)v[2]) << PAGE_SHIFT;
}

static void sample_stores(struct pswap *ps)
{
	u64 pool = 0, meta;
	struct swapfile_stat sw;

	swapfile_stat(&ps->swap, &sw);
	meta = sw.metadata_bytes + relaxed_load(&ps->nr_extents) * sizeof(struct extent) +
	       relaxed_load(&ps->table_bytes);
	/* In run mode the kernel's figure has them; here they are all that is not counted elsewhere. */
	if (!ps->cfg.foreign_program)
		meta += (ps->cfg.nr_handlers + ps->cfg.nr_workers + 1) *
			(PS_BUF_PAGES * PAGE_SIZE + sizeof(struct ps_ctx));
	for (unsigned i = 0; i < ps->nr_stores; i++) {
		struct store_stat st;
		struct ps_store_stat *out = &ps->stat->stores[i];

		memset(&st, 0, sizeof(st));
		ps->stores[i]->ops->stat(ps->stores[i], &st);
		meta += st.metadata_bytes;
		if (ps->stores[i]->counts_as_memory)
			pool += st.memory_bytes;
		relaxed_store(&out->used_bytes, st.used_bytes);
		relaxed_store(&out->capacity_bytes, st.capacity_bytes);
		relaxed_store(&out->io_errors, st.io_errors);
		if (i == ps->ram_area)
			relaxed_store(&ps->stat->pages_same_filled, st.pages_same_filled);
	}
	relaxed_store(&ps->pool_bytes, pool);
	relaxed_store(&ps->metadata_bytes, meta);
	relaxed_store(&ps->stat->pool_bytes, pool);
	relaxed_store(&ps->stat->metadata_bytes, meta);
	stat_peak(&ps->stat->peak_pool_bytes, pool);
	relaxed_store(&ps->stat->batch_frees, relaxed_load(&ps->swap.batch_frees));
	relaxed_store(&ps->stat->entry_frees, relaxed_load(&ps->swap.entry_frees));
	relaxed_store(&ps->stat->cluster_frees, relaxed_load(&ps->swap.cluster_frees));
	relaxed_store(&ps->stat->lru_drains, relaxed_load(&ps->lru.drains));
	relaxed_store(&ps->stat->owner_lookups, relaxed_load(&ps->swap.owner_lookups));
}

/* Ended, and nobody has said so yet: its engine may not have had a CPU since. */
static bool is_gone(struct pswap *ps, struct ps_member *m)
{
	u32 state = relaxed_load(&m->state);

	if (relaxed_load(&m->pid_ns) != relaxed_load(&ps->stat->pid_ns) ||
	    sys_call2(SYS_kill, relaxed_load(&m->pid), 0) != -ESRCH)
		return false;
	if (atomic_compare_exchange_strong(&m->state, &state, PS_MEMBER_ENDED))
		relaxed_add(&ps->shm->epoch, 1);
	return true;
}

/* What the other living members of the tree use is not ours to use. Our share never falls below a
 * floor that lets us go on. */
static void share_of_tree(struct pswap *ps)
{
	struct ps_shm *shm = ps->shm;
	u64 limit = ps->cfg.limit, others, measured, floor;
	unsigned n, alive = 0;

	if (!shm || shm->per_process) {
		relaxed_store(&ps->limit_now, limit);
		return;
	}
	others = measured = relaxed_load(&shm->others_bytes);
	n = relaxed_load(&shm->nr_members);
	for (unsigned i = 0; i < n && i < PS_SHM_MEMBERS; i++) {
		struct ps_member *m = &shm->members[i];

		if (m == ps->stat || relaxed_load(&m->pid) == 0 ||
		    relaxed_load(&m->state) == PS_MEMBER_ENDED)
			continue;
		if (others + relaxed_load(&m->footprint_bytes) > limit && is_gone(ps, m))
			continue;
		others += relaxed_load(&m->footprint_bytes);
		measured += relaxed_load(&m->measured_bytes);
		if (relaxed_load(&m->footprint_bytes) > MiB(4))
			alive++;
	}
	relaxed_store(&ps->nr_others, alive);
	stat_peak(&shm->peak_footprint_bytes, measured + relaxed_load(&ps->stat->measured_bytes));
	floor = MAX(limit / (4 * (alive + 1)), MIN(MiB(4), limit / 2));
	/* Pages shared after a fork become one's own by a mere write, which asks nobody: room for a part. Not
	 * for so many that both sides begin to page out, because that takes copies too. */
	if (relaxed_load(&ps->forked) && (!relaxed_load(&ps->cow.on) || relaxed_load(&ps->cow.again)))
		others += MIN((u64)MAX(relaxed_load(&ps->shared_discount), 0) / 2,
			      MIN(limit / 8, MiB(8)));
	relaxed_store(&ps->limit_now, others + floor > limit ? floor : limit - others);
}

void account_fork(struct pswap *ps)
{
	account_forked(ps, statm_anon(ps->statm_fd));
}

s64 account_refresh(struct pswap *ps)
{
	s64 resident = relaxed_load(&ps->nr_resident) << PAGE_SHIFT;
	s64 used = -1, pool, meta;
	bool exact = true;

	sample_stores(ps);
	pool = relaxed_load(&ps->pool_bytes);
	meta = relaxed_load(&ps->metadata_bytes);
	if (ps->cfg.foreign_program)
		used = statm_anon(ps->statm_fd);
	if (used > 0 && relaxed_load(&ps->forked))
		used = MAX(used - account_shared(ps, used, &exact), 0);
	if (used < 0)
		used = resident + pool + meta +
		       ((s64)relaxed_load(&ps->cache.nr_pages) << PAGE_SHIFT);
	else
		resident = used - pool - meta;
	if (ps->cfg.count == PS_COUNT_RESIDENT)
		used -= pool;
	relaxed_store(&ps->footprint, used);
	relaxed_store(&ps->sampled_ns, ps_now_ns());
	relaxed_store(&ps->stat->footprint_bytes, (u64)MAX(used, 0));
	relaxed_store(&ps->stat->resident_bytes, (u64)MAX(resident, 0));
	relaxed_store(&ps->stat->updated_ns, relaxed_load(&ps->sampled_ns));
	/* What it is at most may be less than when the kernel was asked. */
	if (exact || (u64)MAX(used, 0) < relaxed_load(&ps->stat->measured_bytes)) {
		relaxed_store(&ps->stat->measured_bytes, (u64)MAX(used, 0));
		stat_peak(&ps->stat->peak_footprint_bytes, (u64)MAX(used, 0));
	}
	share_of_tree(ps);
	relaxed_store(&ps->stat->limit_bytes, relaxed_load(&ps->limit_now));
	return used;
}

s64 account_footprint(struct pswap *ps, u64 max_age_ns)
{
	if (ps_now_ns() - relaxed_load(&ps->sampled_ns) > max_age_ns)
		return account_refresh(ps);
	return relaxed_load(&ps->footprint);
}

bool account_tight(struct pswap *ps)
{
	return ps->shm && !ps->shm->per_process &&
	       relaxed_load(&ps->footprint) > account_hard(ps) - (s64)(ps->cfg.limit / 4);
}

s64 account_hard(struct pswap *ps)
{
	return (s64)relaxed_load(&ps->limit_now);
}

/* What writers need of their own while they make room: a new segment each, if segments count. */
s64 account_gate(struct pswap *ps)
{
	s64 limit = account_hard(ps);

	if (ps->cfg.count == PS_COUNT_RESIDENT)
		return limit - limit / 64;
	return limit - MIN(limit / 24, (s64)(ps->cfg.nr_workers + 1) * (s64)PMD_SIZE);
}

/*
 * Reclaim begins a little before the gate, and goes on for as much again.  With small limits each page
 * counts: two megabytes less in between are half of the faults of a program that has a sixth of its memory
 * (docs/decisions/012).
 */
s64 account_high(struct pswap *ps)
{
	return account_gate(ps) - account_hard(ps) / 64;
}

s64 account_low(struct pswap *ps)
{
	return account_high(ps) - account_hard(ps) / 64;
}

u64 account_pool(struct pswap *ps)
{
	u64 pool = relaxed_load(&ps->pool_bytes), rss = (u64)MAX(relaxed_load(&ps->shared_rss), 0);
	u64 others = MIN((u64)MAX(relaxed_load(&ps->shared_discount), 0), rss);

	if (!relaxed_load(&ps->forked) || !rss)
		return pool;
	return (u64)((double)pool * (double)(rss - others) / (double)rss);
}

/* The pool may have all but this part of the limit. Below, a program that thrashes would do so even on
 * what it needs at every moment; above, pages go to a store that is ten times slower. */
#define RESIDENT_SHARE 4

u64 account_pool_cap(struct pswap *ps)
{
	s64 limit = account_hard(ps), base;

	if (ps->cfg.count == PS_COUNT_RESIDENT)
		return UINT64_MAX;
	/* What is neither pool nor memory that could be taken out. */
	base = relaxed_load(&ps->footprint) - (s64)relaxed_load(&ps->pool_bytes) -
	       ((relaxed_load(&ps->nr_resident) + (s64)relaxed_load(&ps->cache.nr_pages))
		<< PAGE_SHIFT);
	base = MAX(base, (s64)relaxed_load(&ps->metadata_bytes));
	limit -= MIN(MAX(base, 0), limit / 2);
	return (u64)(limit - MAX(limit / RESIDENT_SHARE, (s64)MiB(4)));
}
