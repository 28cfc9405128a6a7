/* SPDX-License-Identifier: MIT */
/* api_clone.c - libpswap: pswap_clone(). See include/pswap.h for what it promises, clone.h for how.
 */
#include <errno.h>

#include "api.h"
#include "clone.h"
#include "group.h"
#include "region.h"
#include "zap.h"

/* Address space for the copy, at the same place of its 2 MiB as the original. */
static u64 reserve(u64 start, u64 length)
{
	char *raw, *p;

	if (length + PMD_SIZE < length || length + PMD_SIZE > API_ADDRESS_SPACE)
		return 0;
	raw = sys_mmap(NULL, length + PMD_SIZE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (sys_is_err((long)raw))
		return 0;
	p = raw + ((start - (u64)(uintptr_t)raw) & ~PMD_MASK);
	if (p > raw)
		sys_munmap(raw, p - raw);
	sys_munmap(p + length, raw + PMD_SIZE - p);
	sys_madvise(p, length, MADV_DONTFORK);
	return (u64)(uintptr_t)p;
}

/* Regions for the copy as the original's are, and charges with them. Gate held exclusively.
 * -EINVAL: the original has been unmapped, in part, meanwhile. */
static int copy_regions(struct ps_mm *mm, u64 start, u64 end, u64 to)
{
	int ret = 0;

	if (!region_covers(mm, start, end))
		return -EINVAL;
	for (u64 addr = start, next; addr < end && !ret; addr = next) {
		struct region r = *region_find(mm, addr);
		u64 at = to + (addr - start);

		next = MIN(r.end, end);
		sys_madvise((void *)(uintptr_t)at, next - addr,
			    r.flags & REGION_NOHUGE ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
		ret = region_add(mm, at, at + (next - addr), r.flags & ~(u32)REGION_LOCKED);
		if (ret == 0 && r.group)
			ret = region_set_group(mm, at, at + (next - addr), r.group);
	}
	if (ret == 0)
		ret = uffd_register(mm->uffd, to, end - start, !mm->ps->caps.move);
	if (ret == 0 && groups_on(mm->ps))
		group_sync_range(mm, to, to + (end - start));
	return ret;
}

/* Gate held exclusively. */
static void undo(struct ps_mm *mm, u64 to, u64 length)
{
	zap_range(mm, to, to + length, 0);
	region_del(mm, to, to + length);
	sys_munmap((void *)(uintptr_t)to, length);
	if (groups_on(mm->ps))
		group_unmapped(mm, to, to + length);
}

int pswap_clone(struct pswap *ps, void *addr, size_t length, void **copy)
{
	u64 start = (u64)(uintptr_t)addr, to;
	sigset_t old;
	int ret;

	CHECK_OPEN(ps);
	if (!copy)
		return api_fail(EINVAL, "no place for the result");
	if (api_check_range(ps, addr, length))
		return -1;
	to = reserve(start, length);
	if (!to)
		return api_fail(ENOMEM, "no address space for the copy");
	old = api_enter();
	ps_mutex_lock(&ps->ctx_lock);
	ret = clone_range(ps->ctx[PS_NR_CTX - 1], &ps->mm, start, start + length, to);
	ps_mutex_unlock(&ps->ctx_lock);
	ps_rwlock_write_lock(&ps->mm.gate);
	if (ret == 0)
		ret = copy_regions(&ps->mm, start, start + length, to);
	if (ret)
		undo(&ps->mm, to, length);
	ps_rwlock_write_unlock(&ps->mm.gate);
	api_leave(old);
	if (ret == -EINVAL)
		return api_fail(EINVAL, "a part of the range was not mapped by pswap_mmap");
	if (ret)
		return api_fail(ret == -EIO ? EIO : ENOMEM,
				ret == -EIO ? "a page of the original cannot be read back"
					    : "no memory, or no room in any store");
	*copy = (void *)(uintptr_t)to;
	return 0;
}
