/* SPDX-License-Identifier: MIT */
/* unwritable.c - see unwritable.h. */
#include "unwritable.h"
#include "cow.h"
#include "pagetable.h"
#include "swap_cache.h"
#include "vma.h"

#define RW (PROT_READ | PROT_WRITE)
/* Events of calls that were not announced, before the program is taken for one that makes calls past the hooks.  A
 * few are of calls that were under way when the engine took over. */
#define RAW_MAX 8

static s64 window_open(struct pswap *ps, u64 start, u64 end)
{
	ps_mutex_lock(&ps->window.lock);
	atomic_store(&ps->window.end, end);
	atomic_store(&ps->window.start, start);
	if (!ps_is_inflight(ps, start, end))
		return 0;
	/* The call may take long, and nobody else is to wait for it. */
	atomic_store(&ps->window.start, 0);
	ps_mutex_unlock(&ps->window.lock);
	return -EAGAIN;
}

static void window_close(struct pswap *ps)
{
	atomic_store(&ps->window.start, 0);
	ps_mutex_unlock(&ps->window.lock);
}

bool unwritable_prepare(struct ps_ctx *ctx)
{
	return relaxed_load(&ctx->ps->cow.registered) ||
	       (cow_can_protect(ctx->ps) && cow_register(&ctx->ps->mm) == 0);
}

/* The rights of what was there a moment ago: it must not go on with others. */
static void give_back_rights(u64 addr, u64 len, u32 prot)
{
	long ret = sys_mprotect((void *)(uintptr_t)addr, len, (int)prot);

	/* ENOMEM: unmapped meanwhile, by a call that no hook saw. */
	if (ret && ret != -ENOMEM)
		ps_assert(!"memory cannot be made read-only again");
}

/*
 * Pages that a fork left shared, or did once, become ours alone when they are written to, which the rights forbid;
 * through /proc/self/mem they do not.  Each gets the byte that it has.  Nothing here waits for a handler: what is
 * missing gives an error.
 */
static void make_ours(struct extent *e, unsigned p, unsigned n)
{
	struct pswap *ps = e->mm->ps;
	u64 present[PTRS_PER_PMD / 64], shared[PTRS_PER_PMD / 64];
	unsigned copies = 0;

	/* As it may be since a fork (cow.c). The rights are what they were: nobody can write. */
	uffd_writeprotect(e->mm->uffd, pt_addr(e, p), (u64)n << PAGE_SHIFT, false, false);
	if (pages_present(ps, e->addr, present) || pages_shared(ps, e->addr, shared))
		return;
	for (unsigned i = p; i < p + n; i++) {
		off_t at = (off_t)pt_addr(e, i);
		char byte;

		if (!(present[i / 64] >> (i % 64) & 1))
			continue;
		if (sys_pread(ps->mem_fd, &byte, 1, at) != 1 || sys_pwrite(ps->mem_fd, &byte, 1, at) != 1)
			break;
		copies += shared[i / 64] >> (i % 64) & 1;
	}
	relaxed_add(&ps->cow.unshared, copies);
}

/* Both sides have these rights, the frame for this moment only. */
static s64 move_as(struct extent *e, char *to, u64 addr, u64 len, int rights)
{
	s64 ret;

	if (rights != RW && sys_mprotect(to, len, rights))
		return -EINVAL;
	ret = uffd_move(e->mm->uffd, (u64)(uintptr_t)to, addr, len, false);
	if (rights != RW)
		give_back_rights((u64)(uintptr_t)to, len, RW);
	return ret;
}

static s64 move_read_only(struct extent *e, char *to, u64 addr, u64 len, u32 prot)
{
	struct pswap *ps = e->mm->ps;
	int fd = e->mm->uffd, open = (int)prot | RW;
	s64 ret;

	ret = uffd_writeprotect(fd, addr, len, true, false);
	if (ret)
		return ret == -ENOENT ? -EINVAL : ret;
	ret = -EINVAL;
	if (sys_mprotect((void *)(uintptr_t)addr, len, open) == 0) {
		ret = move_as(e, to, addr, len, open);
		give_back_rights(addr, len, prot);
	}
	/* What did not move. After a fork it stays protected (cow.c). */
	if (!relaxed_load(&ps->cow.on))
		uffd_writeprotect(fd, addr, len, false, true);
	return ret;
}

/* Copies n pages that are present, and drops of them what has arrived: returns how many. */
static unsigned copy_run(struct ps_ctx *ctx, struct extent *e, char *to, u64 addr, unsigned n)
{
	u64 len = (u64)n << PAGE_SHIFT;
	s64 got;

	if (sys_pread(ctx->ps->mem_fd, ctx->buf, len, (off_t)addr) != (long)len)
		return 0;
	got = uffd_copy(e->mm->uffd, (u64)(uintptr_t)to, ctx->buf, len, false, false);
	if (got <= 0)
		return 0;
	return sys_madvise((void *)(uintptr_t)addr, (size_t)got, MADV_DONTNEED) ? 0 : (unsigned)(got >> PAGE_SHIFT);
}

/* While it has no userfaultfd dropping it makes no event, which would wait for our own readers. */
static s64 copy_untouchable(struct ps_ctx *ctx, struct extent *e, char *to, u64 addr, unsigned n)
{
	struct pswap *ps = ctx->ps;
	u64 map[PS_BUF_PAGES], there = 0;
	unsigned done = 0;
	bool all = true;

	if (sys_pread(ps->pagemap_fd, map, n * sizeof(u64), (off_t)(addr >> PAGE_SHIFT) * sizeof(u64)) !=
	    (long)(n * sizeof(u64)))
		return -EINVAL;
	for (unsigned i = 0; i < n; i++)
		there |= (u64)!!(map[i] & PM_PRESENT) << i;
	if (!there)
		return (s64)n << PAGE_SHIFT;
	if (uffd_unregister(e->mm->uffd, addr, (u64)n << PAGE_SHIFT))
		return -EINVAL;
	while (done < n && all) {
		unsigned run = 0;

		while (done + run < n && (there >> (done + run) & 1))
			run++;
		if (run) {
			u64 off = (u64)done << PAGE_SHIFT;
			unsigned got = copy_run(ctx, e, to + off, addr + off, run);

			all = got == run;
			done += got;
		} else {
			done++;
		}
	}
	if (uffd_register(e->mm->uffd, addr, (u64)n << PAGE_SHIFT, relaxed_load(&ps->cow.registered)))
		ps_assert(!"memory cannot be registered again");
	return done ? (s64)done << PAGE_SHIFT : -EINVAL;
}

/* Still as it was when somebody asked: no call that we know of can change it while the window is open. */
static bool still_so(struct pswap *ps, u64 addr, u64 end, u32 prot)
{
	struct vma v;

	return vma_query(ps->maps_fd, addr, &v) == 0 && v.start <= addr && v.end >= end && v.prot == prot &&
	       !v.shared && !v.inode;
}

s64 unwritable_move(struct ps_ctx *ctx, struct extent *e, struct frame *f, unsigned p, unsigned n, u32 prot)
{
	struct pswap *ps = ctx->ps;
	u64 addr = pt_addr(e, p);
	char *to = f->mem + ((u64)p << PAGE_SHIFT);
	s64 ret;

	ps_assert(n && p + n <= PTRS_PER_PMD);
	/* Users of the API make their calls past us. */
	if (!ps->cfg.foreign_program)
		return -EINVAL;
	if (prot == (RW | PROT_EXEC))
		return move_as(e, to, addr, (u64)n << PAGE_SHIFT, (int)prot);
	if (prot == PROT_NONE)
		n = MIN(n, PS_BUF_PAGES);
	else if (!(prot & PROT_READ) || (prot & PROT_WRITE))
		return -EINVAL;
	else if (!relaxed_load(&ps->cow.registered))
		return -EACCES;
	if (relaxed_load(&ps->raw_calls) > RAW_MAX)
		return -EINVAL;
	ret = window_open(ps, addr, addr + ((u64)n << PAGE_SHIFT));
	if (ret)
		return ret;
	if (!still_so(ps, addr, addr + ((u64)n << PAGE_SHIFT), prot)) {
		ret = -EAGAIN;
	} else if (prot == PROT_NONE) {
		ret = copy_untouchable(ctx, e, to, addr, n);
	} else {
		ret = move_read_only(e, to, addr, (u64)n << PAGE_SHIFT, prot);
		if (ret == -EBUSY) {
			make_ours(e, p, n);
			ret = move_read_only(e, to, addr, (u64)n << PAGE_SHIFT, prot);
		}
	}
	window_close(ps);
	return ret;
}
