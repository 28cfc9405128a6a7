/* SPDX-License-Identifier: MIT */
/*
 * event.c - see event.h.
 *
 * Why the gate is held exclusively while a message is read: from the moment the kernel prepares a
 * VM event until it is read, COPY and MOVE fail with EAGAIN, so nothing stale can be put in place.
 * With the read that protection ends, while what we know (regions, ptes) still is from before the
 * event.  So read and apply must be one step for everybody else.
 *
 * What remains is DONTNEED: its event comes before the kernel drops the pages, so between read and
 * drop a page of the range could be taken out and survive.  Hooks announce their calls
 * (pswap.inflight); ranges of calls that no hook saw are left alone for a second (quiet_until).  A
 * call may return before its event, which has been read, is applied: a hook that takes its
 * announcement back waits for that (ps_mm.reading).
 */
#include <sys/epoll.h>

#include "arena.h"
#include "event.h"
#include "fault.h"
#include "group.h"
#include "handoff.h"
#include "log.h"
#include "lru.h"
#include "pagetable.h"
#include "region.h"
#include "rescan.h"
#include "vma.h"
#include "zap.h"

#define QUIET_NS 1000000000ULL
#define LEFT_NS 5000000000ULL /* a call that takes longer has been left by a signal handler that jumped */
#define SPIN_NS 40000ULL /* a handler looks again for so long after its last message */
#define LET_GO_NS 5000000ULL /* an event that cannot be read for so long is taken to wait for us */
#define IDLE_MS 200
#define MAX_DEFERRED 64

void event_age_inflight(struct pswap *ps)
{
	u64 now = ps_now_ns();

	for (unsigned i = 0; i < PS_INFLIGHT; i++) {
		struct ps_inflight *f = &ps->inflight[i];
		u64 start = atomic_load(&f->start);
		u32 uses = relaxed_load(&f->uses);

		if (!start || uses != f->uses_seen || !f->since_ns) {
			f->uses_seen = uses;
			f->since_ns = start ? now : 0;
		} else if (now - f->since_ns > LEFT_NS && atomic_compare_exchange_strong(&f->start, &start, 1)) {
			atomic_store(&f->end, 0);
			atomic_store(&f->start, 0);
			f->since_ns = 0;
		}
	}
}

static bool announced(struct pswap *ps, u64 start, u64 end, bool *keep)
{
	for (unsigned i = 0; i < PS_INFLIGHT; i++) {
		struct ps_inflight *f = &ps->inflight[i];

		if (atomic_load(&f->start) <= start && atomic_load(&f->end) >= end) {
			*keep = relaxed_load(&f->keep);
			return true;
		}
	}
	return false;
}

/* Such a program changes protections too without telling us. */
static void note_raw(struct ps_mm *mm)
{
	if (!mm->foreign)
		atomic_fetch_add(&mm->ps->raw_calls, 1);
}

static void on_remove(struct ps_mm *mm, u64 start, u64 end)
{
	bool keep = false;

	if (!announced(mm->ps, start, end, &keep)) {
		struct extent *e;
		u64 until = ps_now_ns() + QUIET_NS;

		note_raw(mm);
		for (u64 a = start; a < end && (e = pt_next(mm, a, end)); a = e->addr + PMD_SIZE) {
			relaxed_store(&e->quiet_until, until);
			rescan_later(e);
		}
	}
	zap_range(mm, start, end, ZAP_KEEP_GUARDS | (keep ? ZAP_KEEP_PRESENT : 0));
}

static bool region_overlaps(struct ps_mm *mm, u64 start, u64 end)
{
	struct region *r = region_after(mm, start);

	return r && r->start < end;
}

static void on_remap(struct ps_ctx *ctx, struct ps_mm *mm, u64 from, u64 to, u64 len)
{
	struct region *r = region_find(mm, from);
	u32 flags = r ? r->flags : 0;
	u16 group = r ? r->group : 0;

	/*
	 * Events are queued after mmap_lock is dropped, so that of another thread which made room at
	 * `to` may come after this one: what we know of `to` goes now, and that event, when it is read,
	 * must not take what has come there since.
	 */
	if (region_overlaps(mm, to, to + len)) {
		zap_range(mm, to, to + len, 0);
		region_del(mm, to, to + len);
		if (mm->nr_early < ARRAY_SIZE(mm->early)) {
			mm->early[mm->nr_early].start = to;
			mm->early[mm->nr_early++].end = to + len;
		}
	}
	zap_remap(ctx, mm, from, to, len);
	if (region_add(mm, to, to + len, flags))
		ps_log("out of memory: a moved mapping at %x is not swapped any more", to);
	if (groups_on(mm->ps)) {
		region_set_group(mm, to, to + len, group);
		group_sync_range(mm, to, to + len);
	}
}

/* Less what a move that came before has taken already. */
static void unmapped(struct ps_mm *mm, u64 start, u64 end)
{
	for (u32 i = 0; i < mm->nr_early; i++) {
		u64 s = mm->early[i].start, e = mm->early[i].end;

		if (e <= start || s >= end)
			continue;
		if (start < s)
			unmapped(mm, start, s);
		if (end > e)
			unmapped(mm, e, end);
		return;
	}
	zap_range(mm, start, end, 0);
	region_del(mm, start, end);
}

static void on_unmap(struct ps_mm *mm, u64 start, u64 end)
{
	bool keep;

	if (!announced(mm->ps, start, end, &keep))
		note_raw(mm);
	unmapped(mm, start, end);
}

static void on_fork(struct ps_mm *mm, int uffd)
{
	/* A fork that no hook saw: fork.c of the preloaded library takes care, if it is there. */
	if (mm->ps->foreign_fork)
		mm->ps->foreign_fork(mm, uffd);
	else
		sys_close(uffd);
}

static void handle_event(struct ps_ctx *ctx, struct ps_mm *mm, const struct uffd_msg *msg)
{
	stat_inc(mm->ps->stat, events);
	switch (msg->event) {
	case UFFD_EVENT_REMOVE:
		on_remove(mm, msg->arg.remove.start, msg->arg.remove.end);
		break;
	case UFFD_EVENT_UNMAP:
		on_unmap(mm, msg->arg.remove.start, msg->arg.remove.end);
		break;
	case UFFD_EVENT_REMAP:
		on_remap(ctx, mm, msg->arg.remap.from, msg->arg.remap.to, msg->arg.remap.len);
		break;
	case UFFD_EVENT_FORK:
		on_fork(mm, (int)msg->arg.fork.ufd);
		break;
	}
	if (mm->nr_early && !uffd_events_pending(mm->uffd))
		mm->nr_early = 0;
}

/*
 * A fault where we know of no region.  The kernel knows better, since it sent the fault: a mapping
 * grew in place (no event), or a call went past the hooks.  Without one the toucher would fault
 * for ever.
 */
static void learn_region(struct ps_mm *mm, u64 addr)
{
	struct vma v;

	ps_rwlock_write_lock(&mm->gate);
	if (region_find(mm, addr)) {
		; /* by now */
	} else if (mm->foreign) {
		region_add(mm, addr & PAGE_MASK, (addr & PAGE_MASK) + PAGE_SIZE, 0);
	} else if (mm->ps->cfg.foreign_program && !arena_owns((void *)(uintptr_t)addr) &&
		   vma_query(mm->ps->maps_fd, addr, &v) == 0 && v.start <= addr) {
		/* Only the parts we do not know: the others keep their flags, and what has grown has those, too. */
		struct region *r = region_after(mm, addr);
		u64 end = r && r->start < v.end ? r->start : v.end, start = v.start;
		u32 flags = 0;

		for (u32 i = 0; i < mm->nr_regions && mm->regions[i].end <= addr; i++) {
			if (mm->regions[i].end <= start)
				continue;
			start = mm->regions[i].end;
			flags = mm->regions[i].flags & ~(u32)REGION_FRESH;
		}
		if (v.shared || v.inode)
			region_let_go_shared(mm, start, end);
		else
			region_add(mm, start, end, flags);
	}
	ps_rwlock_write_unlock(&mm->gate);
}

/*
 * A fault where no region is, while an event waits.  Mostly the event is about to be read.  But mremap of
 * locked memory that grows touches the new part before it hands over its event, and until then
 * nothing can be mapped: both would wait for ever.  After a while the page is let go: the kernel fills
 * it, as it does without us, and the hook of the call registers it again.  None of it is swapped,
 * because it is in no region.
 */
static bool let_go(struct ps_ctx *ctx, struct ps_mm *mm, u64 addr)
{
	u64 now = ps_now_ns();

	if (mm->foreign || !mm->ps->cfg.foreign_program || !uffd_events_pending(mm->uffd)) {
		ctx->stuck_ns = 0;
		return false;
	}
	if (!ctx->stuck_ns)
		ctx->stuck_ns = now;
	if (now - ctx->stuck_ns < LET_GO_NS)
		return false;
	return uffd_unregister(mm->uffd, addr, PAGE_SIZE) == 0;
}

static bool is_known(struct ps_mm *mm, u64 addr)
{
	bool known;

	ps_rwlock_read_lock(&mm->gate);
	known = region_find(mm, addr) != NULL;
	ps_rwlock_read_unlock(&mm->gate);
	return known;
}

static void defer(struct ps_ctx *ctx, struct ps_mm *mm, u64 addr, bool wp)
{
	if (ctx->nr_deferred < MAX_DEFERRED) {
		ctx->deferred[ctx->nr_deferred].mm = mm;
		ctx->deferred[ctx->nr_deferred].wp = wp;
		ctx->deferred[ctx->nr_deferred++].addr = addr;
	} else {
		uffd_wake(mm->uffd, addr, PAGE_SIZE);
	}
}

static void serve(struct ps_ctx *ctx, struct ps_mm *mm, const struct uffd_msg *msg)
{
	u64 addr = msg->arg.pagefault.address & PAGE_MASK;
	bool wp = msg->arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP;
	bool known = is_known(mm, addr), early = !known && uffd_events_pending(mm->uffd);

	if (mm == &ctx->ps->mm)
		handoff_note(ctx, (pid_t)msg->arg.pagefault.feat.ptid);
	if (!known && !early)
		learn_region(mm, addr);
	ctx->fault_tid = mm == &ctx->ps->mm ? (pid_t)msg->arg.pagefault.feat.ptid : 0;
	if (early ? let_go(ctx, mm, addr) : fault_serve(ctx, mm, addr, wp))
		return;
	/* An event waits to be read first; faults would come before it, so this one must not be made
	 * to fault again until then. */
	defer(ctx, mm, addr, wp);
}

static void serve_deferred(struct ps_ctx *ctx)
{
	while (ctx->nr_deferred) {
		struct ps_mm *mm = ctx->deferred[--ctx->nr_deferred].mm;
		u64 addr = ctx->deferred[ctx->nr_deferred].addr;
		bool wp = ctx->deferred[ctx->nr_deferred].wp;

		/* Woken, it faults again, and what is to be known of it is asked then. */
		ctx->fault_tid = 0;
		if (!is_known(mm, addr) || !fault_serve(ctx, mm, addr, wp))
			uffd_wake(mm->uffd, addr, PAGE_SIZE);
	}
}

/* freeze held shared. */
static bool step_locked(struct ps_ctx *ctx, struct ps_mm *mm)
{
	struct uffd_msg msg;
	long n;

	ps_rwlock_write_lock(&mm->gate);
	atomic_fetch_add(&mm->reading, 1);
	n = sys_read(mm->uffd, &msg, sizeof(msg));
	if (n == sizeof(msg) && msg.event != UFFD_EVENT_PAGEFAULT) {
		handle_event(ctx, mm, &msg);
		ctx->stuck_ns = 0;
	}
	atomic_fetch_add(&mm->reading, 1);
	ps_rwlock_write_unlock(&mm->gate);
	if (n == sizeof(msg) && msg.event == UFFD_EVENT_PAGEFAULT)
		serve(ctx, mm, &msg);
	else if (ctx->nr_deferred)
		serve_deferred(ctx);
	return n == sizeof(msg);
}

bool event_step(struct ps_ctx *ctx, struct ps_mm *mm)
{
	bool did;

	ps_rwlock_read_lock(&mm->ps->freeze);
	did = step_locked(ctx, mm);
	ps_rwlock_read_unlock(&mm->ps->freeze);
	return did;
}

/* freeze held exclusively. */
static bool serve_now(struct ps_ctx *ctx, struct ps_mm *mm, u64 addr, bool wp)
{
	if (uffd_events_pending(mm->uffd))
		return false;
	if (!is_known(mm, addr))
		learn_region(mm, addr);
	ctx->fault_tid = 0;
	return fault_serve(ctx, mm, addr, wp);
}

void event_apply_put_off(struct ps_ctx *ctx)
{
	struct ps_mm *mm = &ctx->ps->mm;
	struct ps_put_off *off = &ctx->ps->put_off;
	u32 nr = relaxed_load(&off->nr);

	for (u32 i = 0; i < nr; i++)
		handle_event(ctx, mm, &off->msg[i]);
	relaxed_store(&off->nr, 0);
	/* Hooks wait until it is even. */
	if (relaxed_load(&mm->reading) & 1)
		atomic_fetch_add(&mm->reading, 1);
}

/*
 * Applied, it would change what the fork is copying at this moment, and the child would have one half of it, or a lock
 * that nobody opens.
 */
static void put_off(struct ps_ctx *ctx, const struct uffd_msg *msg)
{
	struct ps_put_off *off = &ctx->ps->put_off;
	u32 nr = relaxed_load(&off->nr);

	if (nr == PS_PUT_OFF) {
		event_apply_put_off(ctx);
		atomic_fetch_add(&ctx->ps->mm.reading, 1);
		nr = 0;
	}
	off->msg[nr] = *msg;
	atomic_store_explicit(&off->nr, nr + 1, memory_order_release);
}

int event_await_fork(struct ps_ctx *ctx, pid_t tid, bool (*over)(void *arg), void *arg)
{
	struct ps_mm *mm = &ctx->ps->mm;
	struct ps_put_off *off = &ctx->ps->put_off;
	struct uffd_msg msg;
	bool own_wp = false;
	u64 own = 0;

	for (;;) {
		bool done = over(arg), got, event;

		if (!relaxed_load(&off->nr))
			atomic_fetch_add(&mm->reading, 1);
		got = sys_read(mm->uffd, &msg, sizeof(msg)) == sizeof(msg);
		event = got && msg.event != UFFD_EVENT_PAGEFAULT;
		if (event && msg.event != UFFD_EVENT_FORK)
			put_off(ctx, &msg);
		if (!relaxed_load(&off->nr))
			atomic_fetch_add(&mm->reading, 1);
		/* Who waits for a page is not copying; and then all has been copied. */
		if ((!got && (own || done)) || (event && msg.event == UFFD_EVENT_FORK))
			event_apply_put_off(ctx);
		if (!got) {
			if (own && serve_now(ctx, mm, own, own_wp))
				own = 0;
			else if (done)
				break;
			cpu_relax();
			sys_call0(SYS_sched_yield);
		} else if (!event) {
			u64 addr = msg.arg.pagefault.address & PAGE_MASK;
			bool wp = msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP;

			if ((pid_t)msg.arg.pagefault.feat.ptid == tid) {
				own = addr;
				own_wp = wp;
			} else {
				defer(ctx, mm, addr, wp);
			}
		} else if (msg.event == UFFD_EVENT_FORK) {
			if (own)
				uffd_wake(mm->uffd, own, PAGE_SIZE);
			return (int)msg.arg.fork.ufd;
		}
	}
	if (own)
		uffd_wake(mm->uffd, own, PAGE_SIZE);
	return -EAGAIN;
}

static void watch(int epfd, struct ps_mm *mm)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = mm };

	sys_call4(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, mm->uffd, &ev);
}

/* Ours to read from, or another handler's for now. */
static bool watch_main(struct ps_ctx *ctx, int epfd, bool watching)
{
	struct ps_mm *mm = &ctx->ps->mm;

	if (handoff_elsewhere(ctx) && watching)
		sys_call4(SYS_epoll_ctl, epfd, EPOLL_CTL_DEL, mm->uffd, NULL);
	else if (!handoff_elsewhere(ctx) && !watching)
		watch(epfd, mm);
	return !handoff_elsewhere(ctx);
}

/* The children that only we serve; the list does not lose members while freeze is held. */
static bool foreign_steps(struct ps_ctx *ctx, int epfd)
{
	struct pswap *ps = ctx->ps;
	bool did = false;

	ps_rwlock_read_lock(&ps->freeze);
	for (struct ps_mm *mm = ps->foreign; mm; mm = mm->next) {
		if (!(mm->watched & 1U << ctx->id)) {
			__atomic_fetch_or(&mm->watched, 1U << ctx->id, __ATOMIC_RELAXED);
			watch(epfd, mm);
		}
		did |= step_locked(ctx, mm);
	}
	ps_rwlock_read_unlock(&ps->freeze);
	return did;
}

void event_handler(struct ps_ctx *ctx)
{
	struct pswap *ps = ctx->ps;
	int epfd = (int)sys_call1(SYS_epoll_create1, O_CLOEXEC);
	u64 last = 0;

	struct epoll_event kick = { .events = EPOLLIN | EPOLLET };
	bool watching = false;

	relaxed_store(&ctx->tid, (s32)sys_gettid());
	sys_call4(SYS_epoll_ctl, epfd, EPOLL_CTL_ADD, ps->kick_fd, &kick);
	while (!relaxed_load(&ps->stop)) {
		struct epoll_event ev;
		bool did = false;

		watching = watch_main(ctx, epfd, watching);
		if (watching)
			did = event_step(ctx, &ps->mm);
		if (unlikely(__atomic_load_n(&ps->foreign, __ATOMIC_ACQUIRE)))
			did |= foreign_steps(ctx, epfd);
		if (did) {
			last = ps_now_ns();
			continue;
		}
		if (!handoff_active(ps) && ps_now_ns() - last < SPIN_NS) {
			cpu_relax();
			continue;
		}
		if (epfd >= 0)
			sys_call4(SYS_epoll_wait, epfd, &ev, 1, IDLE_MS);
		else
			sys_sleep_ns(SPIN_NS); /* out of descriptors: slowly, but not never */
	}
	sys_close(epfd);
}
