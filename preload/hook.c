/* SPDX-License-Identifier: MIT */
/*
 * hook.c - on the program's threads, around its system calls (hook.h says under which rules: raw
 * calls only, no vector registers, so also no memcpy; a signal handler may be what runs here).
 *
 * Most of what happens to memory comes as userfaultfd events; a hook is needed where there is no
 * event (new memory, mprotect-like flags, guards), where an event comes too early (DONTNEED), and
 * around fork and exec.
 */
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>

#include "hook.h"
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

#define NSIG_BYTES 8
#define TCB_BYTES 2560 /* struct pthread of glibc 2.28 to 2.41 is 2304 bytes at most */
#define ROBUST_MAX 2048
#define UNHEARD 10000
#define NOBODY (-100000L) /* no errno is that large */
#define INFLIGHT_SPINS 1000U
#define SPINS 1000U
#define SPIN_NAP_NS 200000

/* ---- waiting; lock.c may be compiled to vector code ---- */

static void futex(_Atomic u32 *word, int op, u32 val)
{
	sys_call6(SYS_futex, SYS_ARG(word), op | FUTEX_PRIVATE_FLAG, val, 0, 0, 0);
}

/* Whoever changes the word need not wake us, and may need this CPU, whatever our priority is. */
static void spin_while(_Atomic u32 *word, u32 val)
{
	const struct timespec nap = { .tv_nsec = SPIN_NAP_NS };

	for (unsigned spins = 0; atomic_load(word) == val; spins++) {
		if (spins < SPINS)
			cpu_relax();
		else
			sys_call6(SYS_futex, SYS_ARG(word), FUTEX_WAIT | FUTEX_PRIVATE_FLAG, val,
				  SYS_ARG(&nap), 0, 0);
	}
}

static void lock(_Atomic u32 *word)
{
	while (atomic_exchange(word, 1))
		futex(word, FUTEX_WAIT, 1);
}

static void unlock(_Atomic u32 *word)
{
	atomic_store(word, 0);
	futex(word, FUTEX_WAKE, 1);
}

static u64 block_signals(void)
{
	u64 all = ~0UL, old = 0;

	sys_call6(SYS_rt_sigprocmask, SIG_SETMASK, SYS_ARG(&all), SYS_ARG(&old), NSIG_BYTES, 0, 0);
	return old;
}

static void restore_signals(u64 old)
{
	sys_call6(SYS_rt_sigprocmask, SIG_SETMASK, SYS_ARG(&old), 0, NSIG_BYTES, 0, 0);
}

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
static long ask(enum request_op op, u64 a, u64 b, u64 c, u64 d)
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

static inline u32 mode(void)
{
	return atomic_load_explicit(&G.mode, memory_order_acquire);
}

static void start_engine(void)
{
	u32 counting = MODE_COUNTING;
	u64 old = block_signals();

	/* Not while a fork is on its way: its child would copy an engine half made. */
	lock(&G.fork_lock);
	if (atomic_compare_exchange_strong(&G.mode, &counting, MODE_STARTING)) {
		/* It sets the mode itself when it is up; a failure means: unswapped. */
		if (proc_start(false))
			atomic_store(&G.mode, MODE_OFF);
	}
	unlock(&G.fork_lock);
	restore_signals(old);
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
		s64 near = (s64)G.limit / 2 - (s64)MiB(2);

		if (now > (s64)G.limit)
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
	ret = call(SYS_mmap, a);
	if (sys_is_err(ret) || !ours)
		return ret;
	if (special) {
		adopt_exclude(ret, ret + len);
		return ret;
	}
	grown(len);
	/* A mapping that could pass the limit in one go is gated from the start. */
	if (mode() == MODE_ARMED ||
	    (mode() == MODE_ENGINE && len >= G.limit / 8 &&
	     relaxed_load(&G.vm_bytes) > (s64)G.limit))
		ask(REQ_ADD, ret, ret + len,
		    flags & MAP_LOCKED ? REGION_LOCKED :
		    flags & MAP_POPULATE ? 0 : REGION_FRESH, 0);
	return ret;
}

static long on_munmap(const long a[6])
{
	long ret = call(SYS_munmap, a);

	if (ret == 0) {
		adopt_unexclude(a[0], a[0] + pages(a[1]));
		if (relaxed_load(&G.vm_bytes) > (s64)pages(a[1]))
			relaxed_sub(&G.vm_bytes, (s64)pages(a[1]));
	}
	return ret;
}

static long on_mremap(const long a[6])
{
	u64 old_len = pages(a[1]), new_len = pages(a[2]);
	struct ps_inflight *f = NULL;
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
	/* Pages are on their way between two places: nothing may be taken out of either. */
	if (mode() == MODE_ARMED && old_len)
		f = inflight_begin(a[0], old_len, false);
	ret = call(SYS_mremap, a);
	inflight_end(f);
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
	long ret = call(SYS_brk, a);
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
	case SYS_mlock:
	case SYS_mlock2:
	case SYS_munlock:
	case SYS_mlockall:
	case SYS_munlockall:
		return on_mlock(nr, a);
	case SYS_unshare:
		return on_unshare(a);
	}
	return call(nr, a);
}

/* ---- threads and processes ---- */

/* The kernel writes to a thread's control block when the thread ends, without waiting for a fault
 * (trap 6). Stacks of libc's own are never taken over; one given by the program may be. */
static void pin(u64 start, u64 end)
{
	u32 i;

	start &= PAGE_MASK;
	end = ALIGN_UP(end, PAGE_SIZE);
	if (mode() == MODE_ARMED) {
		ask(REQ_PIN, start, end, 0, 0);
		return;
	}
	if (adopt_excluded(start, end))
		return;
	i = relaxed_add(&G.nr_pins, 1);
	if (i < MAX_PINS) {
		relaxed_store(&G.pins[i].end, end);
		atomic_store(&G.pins[i].start, start);
	}
}

static void on_thread(u64 flags, u64 tls, u64 child_tid)
{
	/* A process that shares our memory, and may outlive us. */
	if (!(flags & (CLONE_THREAD | CLONE_VFORK)))
		atomic_store(&G.peers, 1);
	if (flags & CLONE_SETTLS)
		pin(tls, tls + TCB_BYTES);
	if (flags & CLONE_CHILD_CLEARTID)
		pin(child_tid, child_tid + 4);
}

/* A thread ends: the kernel will walk its list of held robust mutexes and mark them, without waiting
 * for faults. */
static void on_exit_thread(void)
{
	struct robust_list_head *head;
	struct robust_list *l;
	u64 tcb;

	if (mode() != MODE_ARMED || !G.robust_offset)
		return;
	__asm__("mov %%fs:0x10, %0" : "=r"(tcb));
	head = (struct robust_list_head *)(tcb + G.robust_offset);
	if (!head->list.next)
		return;
	l = (struct robust_list *)((uintptr_t)head->list.next & ~1UL);
	for (int i = 0; l != &head->list && l && i < ROBUST_MAX; i++) {
		u64 word = (u64)(uintptr_t)l + head->futex_offset;

		pin(word, word + 4);
		pin((u64)(uintptr_t)l, (u64)(uintptr_t)l + sizeof(*l));
		l = (struct robust_list *)((uintptr_t)l->next & ~1UL);
	}
	l = (struct robust_list *)((uintptr_t)head->list_op_pending & ~1UL);
	if (l)
		pin((u64)(uintptr_t)l + head->futex_offset, (u64)(uintptr_t)l + head->futex_offset + 4);
}

/* From now on a call of ours may be what kills the program: start the engine while we may. */
static void on_seccomp(void)
{
	if (mode() == MODE_COUNTING)
		start_engine();
	spin_while(&G.mode, MODE_STARTING);
	relaxed_store(&G.filtered, 1);
}

/* These operations write to a word in a way that does not wait for userfaultfd: EFAULT where the word
 * is not there. Bring it in. (Seen only when made through syscall(); libc's own priority-inheritance
 * locks touch the word just before.) */
static void on_futex(const long a[6])
{
	if (mode() != MODE_ARMED || relaxed_load(&G.filtered))
		return;
	switch (a[1] & FUTEX_CMD_MASK) {
	case FUTEX_WAKE_OP:
	case FUTEX_CMP_REQUEUE_PI:
		sys_call6(SYS_madvise, (long)(a[4] & PAGE_MASK), PAGE_SIZE, MADV_POPULATE_WRITE, 0,
			  0, 0);
		break;
	case FUTEX_LOCK_PI:
	case FUTEX_UNLOCK_PI:
	case FUTEX_TRYLOCK_PI:
	case 13: /* FUTEX_LOCK_PI2 */
		sys_call6(SYS_madvise, (long)(a[0] & PAGE_MASK), PAGE_SIZE, MADV_POPULATE_WRITE, 0,
			  0, 0);
		break;
	}
}

/* A range can have one userfaultfd: the program's own comes first, where it is not too late. */
static void on_userfaultfd(void)
{
	if (mode() == MODE_COUNTING)
		start_engine();
	spin_while(&G.mode, MODE_STARTING);
	if (mode() >= MODE_ENGINE)
		ask(REQ_OWN_UFFD, 0, 0, 0, 0);
}

static int on_fork(u64 flags)
{
	u64 old = block_signals();

	lock(&G.fork_lock);
	spin_while(&G.mode, MODE_STARTING);
	G.fork_mask = old;
	G.fork_engine = mode() == MODE_ENGINE || mode() == MODE_ARMED;
	atomic_store(&G.fork_done, 0);
	if (G.fork_engine)
		ask(REQ_FORK, flags, 0, 0, 0);
	return HOOK_FORK;
}

/* The call could show, or hand on, that this thread shares a CPU with a handler (handoff.c). */
static void unbind(void)
{
	if (relaxed_load(&G.ps.handoff.bound))
		ask(REQ_UNBIND, 0, 0, 0, 0);
}

int hook_pre(long nr, const long a[6], int site)
{
	const struct clone_args *ca;

	(void)site;
	if (mode() == MODE_OFF)
		return HOOK_PASS;
	switch (nr) {
	case SYS_clone:
		if (!(a[0] & CLONE_VM))
			return on_fork((u64)a[0]);
		unbind();
		on_thread(a[0], a[4], a[3]);
		break;
	case SYS_clone3:
		ca = (const struct clone_args *)a[0];
		if ((size_t)a[1] < CLONE_ARGS_SIZE_VER0)
			break;
		if (!(ca->flags & CLONE_VM))
			return on_fork(ca->flags);
		unbind();
		on_thread(ca->flags, ca->tls, ca->child_tid);
		break;
	case SYS_fork:
		return on_fork(0);
	case SYS_vfork:
	case SYS_sched_getaffinity:
	case SYS_sched_setaffinity:
		unbind();
		break;
	case SYS_exit:
		on_exit_thread();
		break;
	case SYS_execve:
	case SYS_execveat:
		unbind();
		atomic_store(&G.exec_seen, 1);
		break;
	case SYS_prctl:
		if ((int)a[0] == PR_SET_SECCOMP)
			on_seccomp();
		break;
	case SYS_seccomp:
		on_seccomp();
		break;
	case SYS_futex:
		on_futex(a);
		break;
	case SYS_userfaultfd:
		on_userfaultfd();
		break;
	}
	return HOOK_PASS;
}

void hook_swapoff(void)
{
	if (mode() == MODE_ARMED)
		ask(REQ_SWAPOFF, 0, 0, 0, 0);
}

void hook_post_fork(long ret)
{
	u64 mask = G.fork_mask;

	if (ret != 0) {
		if (G.fork_engine) {
			atomic_store(&G.fork_done, ret > 0 ? 1 : 2);
			spin_while(&G.fork_state, 1);
		}
	} else {
		fork_child_state();
	}
	unlock(&G.fork_lock);
	restore_signals(mask);
}
