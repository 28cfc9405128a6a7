/* SPDX-License-Identifier: MIT */
/*
 * hook.c - memory calls: on the program's threads, around its system calls (hook.h says under which
 * rules: raw calls only, no vector registers, so also no memcpy; a signal handler may be what runs
 * here).
 *
 * Most of what happens to memory comes as userfaultfd events; a hook is needed where there is no
 * event (new memory, mprotect-like flags, guards), where an event comes too early (DONTNEED), and
 * around fork and exec.
 */
#include <linux/sched.h>
#include <sys/shm.h>

#include "hook.h"
#include "hook_int.h"
#include "state.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MAP_STACK
#define MAP_STACK 0x20000
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define UNHEARD 10000
#define INFLIGHT_SPINS 1000U

/* ---- memory that is never taken over ---- */

void adopt_exclude(u64 start, u64 end)
{
	for (u32 i = 0; i < MAX_EXCLUDED; i++) {
		struct addr_range *r = &G.excluded[i];
		u64 zero = 0;
		u32 n = relaxed_load(&G.nr_excluded);

		if (relaxed_load(&r->start) ||
		    !atomic_compare_exchange_strong(&r->start, &zero, start))
			continue;
		atomic_store(&r->end, end);
		while (i + 1 > n && !atomic_compare_exchange_strong(&G.nr_excluded, &n, i + 1))
			;
		return;
	}
	/* More thread stacks than we can remember: what is not remembered may be taken over only
	 * while arming, so do not arm any more. */
	relaxed_store(&G.too_many_excluded, 1);
}

void adopt_unexclude(u64 start, u64 end)
{
	u32 n = relaxed_load(&G.nr_excluded);

	for (u32 i = 0; i < n; i++) {
		struct addr_range *r = &G.excluded[i];
		u64 s = relaxed_load(&r->start), e = relaxed_load(&r->end);

		if (!s || e <= start || s >= end)
			continue;
		if (s >= start && e <= end) {
			atomic_store(&r->end, 0);
			atomic_store(&r->start, 0);
		} else if (s < start) {
			atomic_store(&r->end, start); /* a piece behind `end` is not worth a slot */
		} else {
			atomic_store(&r->start, end);
		}
	}
}

bool adopt_excluded(u64 start, u64 end)
{
	u32 n = relaxed_load(&G.nr_excluded);

	for (u32 i = 0; i < n; i++) {
		u64 s = relaxed_load(&G.excluded[i].start);

		if (s && s < end && relaxed_load(&G.excluded[i].end) > start)
			return true;
	}
	for (unsigned i = 0; i < G.nr_boot; i++)
		if (G.boot[i].start < end && G.boot[i].end > start)
			return true;
	return false;
}

/* ---- requests ---- */

static struct request *take_request(unsigned *slot)
{
	for (;;) {
		for (unsigned i = 0; i < NR_REQUESTS; i++) {
			u32 state = REQUEST_FREE;

			if (!relaxed_load(&G.req[i].armed) || relaxed_load(&G.req[i].state))
				continue;
			if (atomic_compare_exchange_strong(&G.req[i].state, &state,
							   REQUEST_FILLING)) {
				*slot = i;
				return &G.req[i];
			}
		}
		cpu_relax();
	}
}

/* Asks the engine and waits for its answer. */
long ask(enum request_op op, u64 a, u64 b, u64 c, u64 d)
{
	unsigned slot;
	struct request *r = take_request(&slot);
	u32 answered = REQUEST_ANSWERED;
	long ret;

	r->op = op;
	r->a = a;
	r->b = b;
	r->c = c;
	r->d = d;
	atomic_store(&r->state, REQUEST_ASKED);
	for (u32 n = 0; atomic_load(&r->state) == REQUEST_ASKED; n++) {
		*(volatile char *)(G.bells + slot * PAGE_SIZE);
		/* A bell that does not ring: we are the child of a fork that no hook saw, and have
		 * no engine. Our memory is served by the parent's. (A vfork child's pid differs too,
		 * but its bells ring.) */
		if (n > UNHEARD && (pid_t)sys_call6(SYS_getpid, 0, 0, 0, 0, 0, 0) != G.pid) {
			atomic_store(&G.mode, MODE_OFF);
			atomic_store(&r->state, REQUEST_FREE);
			return NOBODY;
		}
	}
	ret = r->ret;
	/* Unless it was taken back because we were stopped for long. */
	atomic_compare_exchange_strong(&r->state, &answered, REQUEST_FREE);
	return ret;
}

void start_engine(void)
{
	u32 counting = MODE_COUNTING, ticket;
	u64 old = block_signals();

	/* Not while a fork is on its way: its child would copy an engine half made. */
	ticket = fork_lock(false);
	if (atomic_compare_exchange_strong(&G.mode, &counting, MODE_STARTING)) {
		/* It sets the mode itself when it is up; a failure means: unswapped. */
		if (proc_start(false))
			atomic_store(&G.mode, MODE_OFF);
	}
	fork_unlock(ticket);
	restore_signals(old);
}

/* What other members leave of the limit, as the engine saw it last. */
static s64 share(void)
{
	return relaxed_load(&G.ps.limit_now) ? (s64)relaxed_load(&G.ps.limit_now) : (s64)G.limit;
}

/* Memory may have grown by n bytes. */
static void grown(s64 n)
{
	s64 now = relaxed_add(&G.vm_bytes, n) + n;

	if (n > 0 && mode() == MODE_COUNTING && now > (s64)G.start_at)
		start_engine();
	spin_while(&G.mode, MODE_STARTING);
	/* The engine looks rarely while memory cannot have grown much, and takes over at once when it
	 * could have grown past the limit. */
	if (n > 0 && mode() == MODE_ENGINE && !relaxed_load(&G.no_adopt)) {
		s64 near = share() / 2 - (s64)MiB(2);

		if (now > share())
			ask(REQ_ADD, 0, 0, 0, 0);
		else if (now > near && now - n <= near)
			ask(REQ_NONE, 0, 0, 0, 0);
	}
}

/* ---- memory calls ---- */

/* NULL when all slots are taken: the event then finds no announcement and does what it does for calls
 * that no hook saw. A signal handler that jumps away leaves its slot behind; it ages. */
static struct ps_inflight *inflight_begin(u64 start, u64 len, bool keep)
{
	for (unsigned spins = 0; spins < INFLIGHT_SPINS; spins++) {
		for (unsigned i = 0; i < PS_INFLIGHT; i++) {
			struct ps_inflight *f = &G.ps.inflight[i];
			u64 zero = 0;

			/* The end first reads as 0 to whoever looks between: an empty range. */
			if (relaxed_load(&f->start) ||
			    !atomic_compare_exchange_strong(&f->start, &zero, start | 1))
				continue;
			relaxed_store(&f->keep, keep);
			relaxed_add(&f->uses, 1);
			atomic_store(&f->end, start + len);
			atomic_store(&f->start, start ? start : 1);
			return f;
		}
		cpu_relax();
	}
	return NULL;
}

static void inflight_end(struct ps_inflight *f)
{
	u32 reading;

	if (!f)
		return;
	/* Our event has been read, but may not have been applied. */
	reading = atomic_load(&G.ps.mm.reading);
	if (reading & 1)
		spin_while(&G.ps.mm.reading, reading);
	atomic_store(&f->end, 0);
	atomic_store(&f->start, 0);
}

static long call(long nr, const long a[6])
{
	return sys_call6(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* For a call that changes the mappings of [start, start + len): not while the engine has lifted a protection there
 * (unwritable.h). */
static struct ps_inflight *announce(u64 start, u64 len)
{
	struct ps_window *w = &G.ps.window;
	struct ps_inflight *f;
	u64 at;

	if (mode() != MODE_ARMED || !len)
		return NULL;
	f = inflight_begin(start, len, false);
	while ((at = atomic_load(&w->start)) && at < start + len && atomic_load(&w->end) > start)
		cpu_relax();
	return f;
}

static long call_alone(long nr, const long a[6], u64 start, u64 len)
{
	struct ps_inflight *f = announce(start, len);
	long ret = call(nr, a);

	inflight_end(f);
	return ret;
}

static u64 pages(u64 len)
{
	return ALIGN_UP(len, PAGE_SIZE);
}

static long on_mmap(const long a[6], int site)
{
	u64 len = pages(a[1]);
	int flags = (int)a[3]; /* the upper half of an int argument may be anything */
	bool ours = (flags & MAP_ANONYMOUS) && (flags & MAP_TYPE) == MAP_PRIVATE;
	bool special = site == HOOK_SITE_LDSO || (flags & (MAP_STACK | MAP_GROWSDOWN | MAP_HUGETLB));
	long ret;

	/* What MAP_FIXED replaces goes by UNMAP events. */
	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
		adopt_unexclude(a[0], a[0] + len);
	/* What is populated is gated too: mapped first, then filled through us. */
	if (ours && !special && (flags & MAP_POPULATE) && G.kernel >= KERNEL(5, 14) &&
	    !relaxed_load(&G.filtered)) {
		const long b[6] = { a[0], a[1], a[2], a[3] & ~(long)MAP_POPULATE, a[4], a[5] };

		ret = on_mmap(b, site);
		if (!sys_is_err(ret))
			sys_call6(SYS_madvise, ret, (long)len,
				  a[2] & PROT_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ, 0, 0,
				  0);
		return ret;
	}
	ret = flags & MAP_FIXED ? call_alone(SYS_mmap, a, a[0], len) : call(SYS_mmap, a);
	if (sys_is_err(ret) || !ours)
		return ret;
	if (special) {
		adopt_exclude(ret, ret + len);
		return ret;
	}
	grown(len);
	/* A mapping that could pass the limit in one go is gated from the start. */
	if (mode() == MODE_ARMED ||
	    (mode() == MODE_ENGINE && len >= G.limit / 8 && relaxed_load(&G.vm_bytes) > share()))
		ask(REQ_ADD, ret, ret + len,
		    flags & MAP_LOCKED ? REGION_LOCKED :
		    flags & MAP_POPULATE ? 0 : REGION_FRESH, 0);
	return ret;
}

static long on_munmap(const long a[6])
{
	long ret = call_alone(SYS_munmap, a, a[0], pages(a[1]));

	if (ret == 0) {
		adopt_unexclude(a[0], a[0] + pages(a[1]));
		if (relaxed_load(&G.vm_bytes) > (s64)pages(a[1]))
			relaxed_sub(&G.vm_bytes, (s64)pages(a[1]));
	}
	return ret;
}

/*
 * Since 6.17 the kernel moves several mappings in one call, mapping by mapping, and up to the first that
 * cannot be moved; but none that has a userfaultfd.  So the steps are made here.
 */
static long on_mremap(const long a[6]);

static bool moves_many(const long a[6], u64 len)
{
	return mode() == MODE_ARMED && G.kernel >= KERNEL(6, 17) && len && len == pages(a[2]) &&
	       (int)a[3] == (MREMAP_MAYMOVE | MREMAP_FIXED) &&
	       !((a[0] | a[4]) & (PAGE_SIZE - 1)) &&
	       ((u64)a[4] + len <= (u64)a[0] || (u64)a[0] + len <= (u64)a[4]);
}

/* 0: it is one mapping, or not mapped at its start: the kernel's own business. */
static long move_many(const long a[6], u64 len)
{
	u64 at = (u64)a[0], end = at + len;
	long next = ask(REQ_VMA_END, at, 0, 0, 0), ret = 0;

	if (next <= 0 || (u64)next >= end)
		return 0;
	while (at < end && next) {
		u64 stop = MIN(next > 0 ? (u64)next : (u64)-next, end);

		if (next > 0) {
			const long b[6] = { (long)at, (long)(stop - at), (long)(stop - at), a[3],
					    a[4] + (long)(at - (u64)a[0]), 0 };

			ret = on_mremap(b);
			if (sys_is_err(ret))
				return ret;
		}
		at = stop;
		if (at < end)
			next = ask(REQ_VMA_END, at, 0, 0, 0);
	}
	return a[4];
}

static long on_mremap(const long a[6])
{
	u64 old_len = pages(a[1]), new_len = pages(a[2]);
	struct ps_inflight *to;
	long ret;

	/* Kernels before 6.17 report the old length of a move that shrinks: shrink first, if the call
	 * can succeed at all. */
	if (mode() == MODE_ARMED && G.kernel < KERNEL(6, 17) && ((int)a[3] & MREMAP_FIXED) &&
	    ((int)a[3] & MREMAP_MAYMOVE) && !((a[0] | a[4]) & (PAGE_SIZE - 1)) && new_len &&
	    new_len < old_len && ((u64)a[4] + new_len <= (u64)a[0] || (u64)a[0] + old_len <= (u64)a[4]) &&
	    call(SYS_munmap, (const long[]){ a[0] + (long)new_len, (long)(old_len - new_len), 0, 0,
					     0, 0 }) == 0) {
		const long b[6] = { a[0], (long)new_len, (long)new_len, a[3], a[4], 0 };

		return on_mremap(b);
	}
	if (moves_many(a, old_len)) {
		ret = move_many(a, old_len);
		if (ret)
			return ret;
	}
	/* Pages are on their way between two places: nothing may be taken out of either. */
	to = (int)a[3] & MREMAP_FIXED ? announce(a[4], new_len) : NULL;
	ret = call_alone(SYS_mremap, a, a[0], old_len);
	inflight_end(to);
	if (sys_is_err(ret) || new_len <= old_len)
		return ret;
	grown(new_len - old_len);
	/* The tail: registered by the kernel, unknown to us. */
	if (mode() == MODE_ARMED)
		ask(REQ_ADD, ret + old_len, ret + new_len, REGION_FRESH, 1);
	return ret;
}

static long on_brk(const long a[6])
{
	u64 was = pages(relaxed_load(&G.brk_now)), to = pages(a[0]);
	long ret = to && to < was ? call_alone(SYS_brk, a, to, was - to) : call(SYS_brk, a);
	u64 old = pages(atomic_exchange(&G.brk_now, (u64)ret)), now = pages(ret);

	if (now == old || !old)
		return ret;
	grown((s64)(now - old));
	if (now > old && mode() == MODE_ARMED)
		ask(REQ_ADD, old, now, REGION_FRESH, 0);
	return ret;
}

/* Advice that drops contents, or flags that we must know. */
static long on_madvise(const long a[6])
{
	u64 start = a[0], end = a[0] + pages(a[1]);
	int advice = (int)a[2];
	struct ps_inflight *f;
	long ret;

	if (mode() != MODE_ARMED || end <= start || (start & ~PAGE_MASK)) {
		if (advice == MADV_WIPEONFORK || advice == MADV_DONTFORK)
			relaxed_store(&G.special_flags, 1);
		return call(SYS_madvise, a);
	}
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_FREE:
	case MADV_REMOVE:
		f = inflight_begin(start, end - start, advice == MADV_FREE);
		ret = call(SYS_madvise, a);
		inflight_end(f);
		return ret;
	case MADV_GUARD_INSTALL:
	case MADV_GUARD_REMOVE:
		/* The engine makes the call, in one step with its own change. */
		ret = ask(REQ_GUARD, start, end, (u64)advice, 0);
		return ret == NOBODY ? call(SYS_madvise, a) : ret;
	}
	ret = call(SYS_madvise, a);
	if (ret)
		return ret;
	switch (advice) {
	case MADV_WIPEONFORK:
		ask(REQ_FLAGS, start, end, REGION_WIPEONFORK, 0);
		break;
	case MADV_KEEPONFORK:
		ask(REQ_FLAGS, start, end, 0, REGION_WIPEONFORK);
		break;
	case MADV_DONTFORK:
		ask(REQ_FLAGS, start, end, REGION_DONTFORK, 0);
		break;
	case MADV_DOFORK:
		ask(REQ_FLAGS, start, end, 0, REGION_DONTFORK);
		break;
	case MADV_RANDOM:
		ask(REQ_FLAGS, start, end, REGION_RANDOM, REGION_SEQ);
		break;
	case MADV_SEQUENTIAL:
		ask(REQ_FLAGS, start, end, REGION_SEQ, REGION_RANDOM);
		break;
	case MADV_NORMAL:
		ask(REQ_FLAGS, start, end, 0, REGION_RANDOM | REGION_SEQ);
		break;
	case MADV_HUGEPAGE:
		ask(REQ_FLAGS, start, end, REGION_HUGE, REGION_NOHUGE);
		break;
	case MADV_NOHUGEPAGE:
		ask(REQ_FLAGS, start, end, REGION_NOHUGE, REGION_HUGE);
		break;
	}
	return ret;
}

/* Locked memory stays: the kernel brings it in through faults, we then leave it alone. */
static long on_mlock(long nr, const long a[6])
{
	u64 start = ALIGN_DOWN((u64)a[0], PAGE_SIZE), end = ALIGN_UP((u64)a[0] + a[1], PAGE_SIZE);
	bool armed = mode() == MODE_ARMED;
	long ret;

	if (!armed) {
		/* Arming will look at the flags of every mapping. */
		relaxed_store(&G.special_flags, 1);
		if (nr == SYS_mlockall && mode() == MODE_ENGINE)
			return ask(REQ_LOCK_ALL, 0, 0, (u64)(u32)a[0], 0);
		if (nr == SYS_mlockall || nr == SYS_munlockall)
			relaxed_store(&G.ps.locked_all, nr == SYS_mlockall);
		return call(nr, a);
	}
	switch (nr) {
	case SYS_mlock:
	case SYS_mlock2:
		ask(REQ_FLAGS, start, end, REGION_LOCKED, 0);
		ret = call(nr, a);
		if (ret)
			ask(REQ_FLAGS, start, end, 0, REGION_LOCKED);
		return ret;
	case SYS_munlock:
		ret = call(nr, a);
		if (ret == 0)
			ask(REQ_FLAGS, start, end, 0, REGION_LOCKED);
		return ret;
	case SYS_mlockall:
		/* By the engine, mapping by mapping: the kernel would lock our memory too, and touch all
		 * of it. */
		return ask(REQ_LOCK_ALL, 0, 0, (u64)(u32)a[0], 0);
	case SYS_munlockall:
		ret = call(nr, a);
		ask(REQ_LOCK_ALL, 0, 0, 0, 0);
		return ret;
	}
	return call(nr, a);
}

/* What SHM_REMAP replaces goes without an event. */
static long on_shmat(const long a[6])
{
	long ret = call(SYS_shmat, a);

	if (!sys_is_err(ret) && ((int)a[2] & SHM_REMAP) && mode() == MODE_ARMED)
		ask(REQ_REPLACED, (u64)ret, 0, 0, 0);
	return ret;
}

/* The engine shares our memory, so the kernel takes us for more than one thread; for a process with
 * a single one these flags mean nothing. */
static long on_unshare(const long a[6])
{
	u32 flags = (u32)a[0], moot = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
	long b[6] = { (long)(flags & ~moot), 0, 0, 0, 0, 0 }, ret;

	/* An engine started later would be in the new namespace and not find us. */
	if ((flags & CLONE_NEWPID) && mode() == MODE_COUNTING)
		start_engine();
	ret = call(SYS_unshare, a);

	if (ret != -EINVAL || !(flags & moot) || mode() < MODE_ENGINE)
		return ret;
	if (ask(REQ_THREADS, 0, 0, 0, 0) != 1)
		return ret;
	return b[0] ? call(SYS_unshare, b) : 0;
}

long hook_vm(long nr, const long a[6], int site)
{
	if (mode() == MODE_OFF)
		return call(nr, a);
	switch (nr) {
	case SYS_mmap:
		return on_mmap(a, site);
	case SYS_munmap:
		return on_munmap(a);
	case SYS_mremap:
		return on_mremap(a);
	case SYS_brk:
		return on_brk(a);
	case SYS_madvise:
		return on_madvise(a);
	case SYS_mprotect:
	case SYS_pkey_mprotect:
		return call_alone(nr, a, a[0], pages(a[1]));
	case SYS_mlock:
	case SYS_mlock2:
	case SYS_munlock:
	case SYS_mlockall:
	case SYS_munlockall:
		return on_mlock(nr, a);
	case SYS_unshare:
		return on_unshare(a);
	case SYS_shmat:
		return on_shmat(a);
	}
	return call(nr, a);
}
