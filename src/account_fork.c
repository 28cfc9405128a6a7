/* SPDX-License-Identifier: MIT */
/*
 * account_fork.c - what of a process's memory others have too, after a fork.
 *
 * Each counts its part of such a page (Pss_Anon), so that the sum over the tree is what there is.  The
 * kernel looks at every page to tell that, so it is asked seldom; in between
 *   - a page that we write to becomes a copy of our own.  Nobody tells, but it is a minor fault of the
 *     program that we did not serve: of so many pages at the most half is new to us (more, when more
 *     than two have them).
 *   - what we give up was partly counted by others: the rest shrinks in proportion.
 *   - of both, the others' part grows: members tell each other (ps_shm.shifted).
 *   - a fork halves what is ours, for both.
 *   - a process that ends leaves its part to the others.  Members count ends (ps_shm.epoch), and who
 *     sees the count change asks the kernel at once.
 */
#include "account.h"
#include "cow.h"

#define ROLLUP_NS 50000000ULL /* how often to ask, */
#define SOON_NS 5000000ULL    /* when much has changed, */
#define UNSURE_NS 100000000ULL /* as it has for so long after a member's end, */
#define ROLLUP_COST 20	      /* and asking may take a twentieth of the time, */
#define SOON_COST 6	      /* or a sixth */

static u64 number(const char **p)
{
	u64 v = 0;

	while (**p == ' ')
		++*p;
	while (**p >= '0' && **p <= '9')
		v = v * 10 + (u64)(*(*p)++ - '0');
	return v;
}

/*
 * Pages of which the program may have copies of its own now, in all: minor faults of it that did not come to
 * us, and what we unshared.
 */
static u64 own_copies(struct pswap *ps)
{
	/* A write fault that we let go is one of its own after all. */
	u64 ours = relaxed_load(&ps->stat->faults) - relaxed_load(&ps->cow.served);
	char buf[512];
	long n = ps->stat_fd < 0 ? 0 : sys_pread(ps->stat_fd, buf, sizeof(buf) - 1, 0);
	const char *p = buf + MAX(n, 0);
	u64 all;

	/* Fields are counted from behind the last ')', as comm may hold anything: minflt is the 10th. */
	while (p > buf && *p != ')')
		p--;
	buf[MAX(n, 0)] = 0;
	for (int field = 2; *p && field < 10; p++)
		field += *p == ' ';
	all = number(&p);
	return (all > ours ? all - ours : 0) + relaxed_load(&ps->cow.unshared);
}

/* Bytes that other members have said to have left to the rest, in all. */
static u64 shifted_by_others(struct pswap *ps)
{
	return ps->shm ? relaxed_load(&ps->shm->shifted) - relaxed_load(&ps->shifted_ours) : 0;
}

/* Tells the others what is theirs alone now, which they would learn from the kernel only when they ask:
 * `bytes` in all since we asked. */
static void tell(struct pswap *ps, s64 bytes)
{
	s64 told = relaxed_load(&ps->shifted_since);

	if (!ps->shm || bytes <= told ||
	    !atomic_compare_exchange_strong(&ps->shifted_since, &told, bytes))
		return;
	relaxed_add(&ps->shm->shifted, (u64)(bytes - told));
	relaxed_add(&ps->shifted_ours, (u64)(bytes - told));
}

/* The stores are told: one that moves what it holds need not when that frees nothing. */
static void set_forked(struct pswap *ps, bool shared)
{
	for (unsigned i = 0; i < ps->nr_stores; i++)
		if (ps->stores[i]->ops->share)
			ps->stores[i]->ops->share(ps->stores[i], shared);
	relaxed_store(&ps->forked, shared);
}

/* Asks the kernel. */
static void look(struct pswap *ps, s64 rss)
{
	char buf[1024];
	const char *p = NULL;
	long n = sys_pread(ps->rollup_fd, buf, sizeof(buf) - 1, 0);
	s64 pss;

	buf[MAX(n, 0)] = 0;
	for (char *line = buf; line && *line; line = strchr(line, '\n'), line += line != NULL)
		if (strncmp(line, "Pss_Anon:", 9) == 0)
			p = line + 9;
	if (!p)
		return;
	pss = (s64)number(&p) << 10;
	relaxed_store(&ps->shared_discount, MAX(rss - pss, 0));
	relaxed_store(&ps->shared_rss, rss);
	if (rss <= pss + pss / 64)
		set_forked(ps, false);
}

s64 account_shared(struct pswap *ps, s64 rss, bool *exact)
{
	u64 start = ps_now_ns(), due = relaxed_load(&ps->rollup_due_ns), faults = own_copies(ps);
	u32 epoch = ps->shm ? relaxed_load(&ps->shm->epoch) : 0;
	s64 discount = relaxed_load(&ps->shared_discount), was = discount, copied, ours;
	s64 then = relaxed_load(&ps->shared_rss);
	u64 theirs = shifted_by_others(ps);
	bool much = false;

	relaxed_store(&ps->cow.faults, faults);
	if (rss < then) {
		much = then - rss > then / 8;
		discount = (s64)((double)discount * (double)rss / (double)then);
	}
	ours = (s64)(faults - relaxed_load(&ps->shared_faults)) << PAGE_SHIFT;
	ours = MAX(ours, 0);
	/* Of a page that we copy, or give up, our half goes to the other. */
	tell(ps, MIN(ours / 2 + was - discount, was));
	/* Of a page that two have, half is new to us; of one that more have, more. */
	ours = MAX(ours / 2, (s64)((double)ours * (double)was / (double)MAX(then, 1)));
	copied = ours + (s64)(theirs - relaxed_load(&ps->shifted_seen)) /
					MAX((s64)relaxed_load(&ps->nr_others), 1);
	copied = MIN(MAX(copied, 0), discount);
	/* Who ended may still be giving its memory back. */
	if (epoch != relaxed_load(&ps->shared_epoch))
		relaxed_store(&ps->shared_unsure_ns, start + UNSURE_NS);
	if (start < relaxed_load(&ps->shared_unsure_ns) || copied > discount / 8 || much)
		due = MIN(due, relaxed_load(&ps->rollup_soon_ns));
	*exact = start >= due && !atomic_exchange(&ps->rollup_busy, 1);
	if (!*exact)
		return discount - copied;
	relaxed_store(&ps->shared_epoch, epoch);
	look(ps, rss);
	relaxed_store(&ps->shared_faults, faults);
	relaxed_store(&ps->shifted_seen, theirs);
	relaxed_store(&ps->shifted_since, 0);
	due = ps_now_ns() - start;
	relaxed_store(&ps->rollup_due_ns, start + due + MAX(ROLLUP_NS, due * ROLLUP_COST));
	relaxed_store(&ps->rollup_soon_ns, start + due + MAX(SOON_NS, due * SOON_COST));
	atomic_store(&ps->rollup_busy, 0);
	return relaxed_load(&ps->shared_discount);
}

void account_forked(struct pswap *ps, s64 rss)
{
	u64 copies;
	s64 ours;

	/* Nobody may ask until the fork has been made: he would be told that nothing is shared. */
	while (atomic_exchange(&ps->rollup_busy, 1))
		sys_call0(SYS_sched_yield);
	copies = own_copies(ps);
	ours = rss - (relaxed_load(&ps->forked) ? relaxed_load(&ps->shared_discount) : 0);
	if (rss > 0 && ours > 0) {
		relaxed_store(&ps->shared_discount, rss - ours / 2);
		relaxed_store(&ps->shared_rss, rss);
		relaxed_store(&ps->shared_faults, copies);
		relaxed_store(&ps->shifted_seen, shifted_by_others(ps));
		relaxed_store(&ps->shifted_since, 0);
		relaxed_store(&ps->footprint, ours / 2);
		relaxed_store(&ps->stat->footprint_bytes, (u64)ours / 2);
		relaxed_store(&ps->stat->measured_bytes, (u64)ours / 2);
	}
	cow_forked(ps, copies);
	set_forked(ps, true);
	relaxed_store(&ps->rollup_due_ns, 0);
}

void account_fork_done(struct pswap *ps)
{
	atomic_store(&ps->rollup_busy, 0);
}
