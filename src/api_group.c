/* SPDX-License-Identifier: MIT */
/* api_group.c - libpswap: groups. See include/pswap.h for what the calls promise, group.h for how.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "api.h"
#include "group.h"
#include "reclaim.h"
#include "region.h"
#include "vma.h"

bool api_group_get(struct pswap *ps, struct pswap_group *g)
{
	sigset_t old = api_enter();
	bool valid;

	ps_mutex_lock(&ps->groups.lock);
	valid = group_valid(ps, g);
	if (valid)
		g->refs++;
	ps_mutex_unlock(&ps->groups.lock);
	api_leave(old);
	return valid;
}

void api_group_put(struct pswap_group *g)
{
	sigset_t old = api_enter();

	ps_mutex_lock(&g->ps->groups.lock);
	g->refs--;
	ps_mutex_unlock(&g->ps->groups.lock);
	api_leave(old);
}

int pswap_group_create(struct pswap *ps, uint64_t limit, struct pswap_group **group)
{
	sigset_t old;
	int ret;

	CHECK_OPEN(ps);
	if (!group)
		return api_fail(EINVAL, "no place for the result");
	if (limit < PS_GROUP_LIMIT_MIN || limit > API_ADDRESS_SPACE)
		return api_fail(EINVAL, "a group's limit must be 4 MiB to 128 TiB");
	old = api_enter();
	ps_mutex_lock(&ps->groups.lock);
	ret = group_create(ps, limit, group);
	ps_mutex_unlock(&ps->groups.lock);
	api_leave(old);
	if (ret == -ENOSPC)
		return api_fail(ENOSPC, "there are %u groups already", (u64)PS_MAX_GROUPS - 1);
	return ret ? api_fail(-ret, "out of memory") : 0;
}

int pswap_group_delete(struct pswap_group *group)
{
	struct pswap *ps = api_group_engine(group);
	sigset_t old;
	int ret = 0;

	if (!ps)
		return api_fail(EINVAL, "not a group of an open pswap");
	old = api_enter();
	ps_mutex_lock(&ps->groups.lock);
	if (!group_valid(ps, group))
		ret = EINVAL;
	else if (group->refs)
		ret = EBUSY;
	else
		group_delete(group);
	ps_mutex_unlock(&ps->groups.lock);
	api_leave(old);
	return ret ? api_fail(ret, ret == EBUSY ? "another call uses the group"
						: "the group was deleted already")
		   : 0;
}

/* ---- what is locked ---- */

/* Has this process locked any memory?  (VmLck of /proc/self/status.) */
static bool any_locked(struct pswap *ps)
{
	char buf[4096];
	int fd = openat(ps->proc_fd, "self/status", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);
	const char *p;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return true;
	buf[n] = 0;
	p = strstr(buf, "VmLck:");
	return !p || strtoul(p + 6, NULL, 10) != 0;
}

/* Bytes of [start, end) that are locked. The kernel refuses MADV_COLD for those, and for others it
 * does no harm. */
static u64 locked_bytes(struct pswap *ps, u64 start, u64 end)
{
	u64 locked = 0;

	while (start < end) {
		struct vma v;
		u64 next = end;

		if (vma_query(ps->maps_fd, start, &v) || v.start >= end)
			break;
		start = MAX(start, v.start);
		next = MIN(end, v.end);
		if (sys_madvise((void *)(uintptr_t)start, next - start, MADV_COLD) == -EINVAL)
			locked += next - start;
		start = next;
	}
	return locked;
}

/* Would more be locked in g than it may have, with [start, end) in it too? Gate held. */
static bool too_much_locked(struct pswap *ps, struct pswap_group *g, u64 start, u64 end)
{
	u64 locked = locked_bytes(ps, start, end);

	for (u32 i = 0; locked && i < ps->mm.nr_regions; i++) {
		struct region *r = &ps->mm.regions[i];

		if (r->group != g->id)
			continue;
		if (r->start < start)
			locked += locked_bytes(ps, r->start, MIN(r->end, start));
		if (r->end > end)
			locked += locked_bytes(ps, MAX(r->start, end), r->end);
	}
	return locked > relaxed_load(&g->limit) << PAGE_SHIFT;
}

/* ---- moving ---- */

static int move_range(struct pswap *ps, u64 start, u64 end, struct pswap_group *g)
{
	bool look = g && any_locked(ps);
	sigset_t old = api_enter();
	int ret;

	ps_rwlock_write_lock(&ps->mm.gate);
	/* Another thread may have unmapped some of it since it was looked at. */
	if (!region_covers(&ps->mm, start, end))
		ret = -EINVAL;
	else if (look && too_much_locked(ps, g, start, end))
		ret = -EBUSY;
	else
		ret = groups_on(ps) ? group_move_range(&ps->mm, start, end, g) : 0;
	ps_rwlock_write_unlock(&ps->mm.gate);
	if (ret == 0 && g && group_room(g) < 0) {
		ps_mutex_lock(&ps->ctx_lock);
		reclaim_group(ps->ctx[PS_NR_CTX - 1], g);
		ps_mutex_unlock(&ps->ctx_lock);
	}
	api_leave(old);
	return ret;
}

int pswap_group_move(struct pswap *ps, void *addr, size_t length, struct pswap_group *group)
{
	u64 start = (u64)(uintptr_t)addr;
	int ret;

	if (api_check_range(ps, addr, length))
		return -1;
	if (group && !api_group_get(ps, group))
		return api_fail(EINVAL, "not a group of this pswap");
	ret = move_range(ps, start, start + length, group);
	if (group)
		api_group_put(group);
	if (ret == -EINVAL)
		return api_fail(EINVAL, "a part of the range was not mapped by pswap_mmap");
	if (ret == -EBUSY)
		return api_fail(EBUSY, "more would be locked in memory than the group's limit");
	return ret ? api_fail(-ret, "out of memory") : 0;
}

/* ---- figures ---- */

static u64 bytes(s64 pages)
{
	return (u64)MAX(pages, 0) << PAGE_SHIFT;
}

int pswap_group_stat(struct pswap_group *group, struct pswap_group_stat *st)
{
	struct pswap *ps = api_group_engine(group);
	u64 mapped = 0;
	sigset_t old;

	if (!ps || !api_group_get(ps, group))
		return api_fail(EINVAL, "not a group of an open pswap");
	if (!st || st->size != sizeof(*st)) {
		api_group_put(group);
		return api_fail(EINVAL, "size must be sizeof(struct pswap_group_stat)");
	}
	old = api_enter();
	ps_rwlock_read_lock(&ps->mm.gate);
	for (u32 i = 0; i < ps->mm.nr_regions; i++)
		if (ps->mm.regions[i].group == group->id)
			mapped += ps->mm.regions[i].end - ps->mm.regions[i].start;
	ps_rwlock_read_unlock(&ps->mm.gate);
	api_leave(old);
	*st = (struct pswap_group_stat){
		.size = sizeof(*st),
		.limit_bytes = bytes((s64)relaxed_load(&group->limit)),
		.mapped_bytes = mapped,
		.resident_bytes = bytes(relaxed_load(&group->resident)),
		.peak_resident_bytes = bytes((s64)relaxed_load(&group->peak)),
		.swapped_pages = (u64)MAX(relaxed_load(&group->swap), 0),
		.pages_out = relaxed_load(&group->pages_out),
		.pages_in = relaxed_load(&group->pages_in),
		.pages_reclaimed = relaxed_load(&group->reclaimed),
		.throttled_ns = relaxed_load(&group->throttled_ns),
	};
	api_group_put(group);
	return 0;
}
