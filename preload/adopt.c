/* SPDX-License-Identifier: MIT */
/*
 * adopt.c - which of a program's memory is taken over: private anonymous memory that is not a
 * stack, not ld.so's, not of a library (their .bss may be touched by what the engine calls) and not
 * ours.  Whole VMAs are registered, because mremap across a border between registered and
 * unregistered memory fails half-way (FACTS, trap 21).
 */
#include <elf.h>
#include <link.h>

#include "account.h"
#include "arena.h"
#include "cow.h"
#include "fault.h"
#include "log.h"
#include "lru.h"
#include "pagetable.h"
#include "region.h"
#include "rescan.h"
#include "state.h"
#include "swap_cache.h"
#include "vma.h"
#include "zap.h"

/* ---- at the start ---- */

static int main_bss(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		u64 start;

		if (p->p_type != PT_LOAD || !(p->p_flags & PF_W) || p->p_memsz <= p->p_filesz)
			continue;
		start = info->dlpi_addr + p->p_vaddr + p->p_filesz;
		G.bss_start = ALIGN_UP(start, PAGE_SIZE);
		G.bss_end = ALIGN_UP(info->dlpi_addr + p->p_vaddr + p->p_memsz, PAGE_SIZE);
	}
	return 1; /* the first object is the main program */
}

static bool boot_vma(const struct vma *v, void *arg)
{
	(void)arg;
	if (v->shared || v->inode)
		return true;
	if (v->start < G.bss_end && v->end > G.bss_start)
		return true; /* the main program's .bss is fair game */
	if (G.nr_boot < MAX_BOOT) {
		G.boot[G.nr_boot].start = v->start;
		G.boot[G.nr_boot++].end = v->end;
	} else {
		preload_off("too many anonymous mappings at the start");
	}
	return true;
}

void adopt_boot(void)
{
	static char buf[16384];
	int proc = (int)sys_open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	int fd = vma_open(proc);

	if (proc >= 0)
		sys_close(proc);
	dl_iterate_phdr(main_bss, NULL);
	if (fd < 0 || vma_for_each(fd, buf, sizeof(buf), boot_vma, NULL))
		preload_off("/proc/self/maps cannot be read");
	if (fd >= 0)
		sys_close(fd);
}

/* ---- one range ---- */

/*
 * Takes the gate when no VM event waits to be read: what we know of these addresses may still be of a
 * mapping that was moved away or unmapped, and its event needs it.
 */
#define SETTLE_NS 20000 /* for handlers to get at the gate */
static void lock_settled(struct ps_mm *mm)
{
	for (;;) {
		ps_rwlock_write_lock(&mm->gate);
		if (!uffd_events_pending(mm->uffd))
			return;
		ps_rwlock_write_unlock(&mm->gate);
		sys_sleep_ns(SETTLE_NS);
	}
}

#define PROBE_PAGES 16 /* a mapping that begins with more guards is taken for registered */

/*
 * Whether the mapping that [start, end) is part of is registered with our userfaultfd: 0, -ENOENT when
 * not, -EAGAIN when an event waits, which keeps us from asking.  The page that is asked for may become a
 * page of zeros, as which it reads anyway: nothing of [start, end) is in a region, so none of it is
 * swapped.
 */
static int probe_registered(struct pswap *ps, u64 start, u64 end)
{
	end = MIN(end, start + PROBE_PAGES * PAGE_SIZE);
	for (u64 a = start; a < end; a += PAGE_SIZE) {
		s64 ret;

		if (page_is_guard(ps, a))
			continue;
		ret = uffd_zeropage(ps->mm.uffd, a, PAGE_SIZE, false);
		return ret > 0 || ret == -EEXIST ? 0 : (int)ret;
	}
	return 0;
}

/*
 * Registers what is mapped of [start, end), which somebody found in the maps a while ago, and makes
 * regions of it.  A part may be gone by now, without an event as it was not registered, and a hole may
 * be mapped anew at any moment.  What is not registered must not become a region: its pages would
 * be taken out, and nobody would ask for them back.  So each mapping is asked for after the fact; the
 * gate, held exclusively, keeps events of what is unmapped after that for later.
 */
static int register_mapped(struct pswap *ps, u64 start, u64 end, u32 flags)
{
	struct ps_mm *mm = &ps->mm;
	int ret = region_register(mm, start, end);
	u64 a = start;
	struct vma v;

	while (ret == 0 && a < end && vma_query(ps->maps_fd, a, &v) == 0 && v.start < end) {
		u64 hi = MIN(v.end, end);
		struct region *r;
		int err;

		a = MAX(a, v.start);
		/* What became known since it was looked up, by a move for instance, is as it should be. */
		r = region_after(mm, a);
		if (r && r->start <= a) {
			a = MIN(r->end, hi);
			continue;
		}
		if (r && r->start < hi)
			hi = r->start;
		err = v.shared || v.inode ? -ENOENT : probe_registered(ps, a, hi);
		if (err == -EAGAIN)
			return err;
		if (!err)
			ret = region_add(mm, a, hi, flags);
		a = hi;
	}
	region_let_go_shared(mm, start, end);
	return ret;
}

int adopt_add(struct ps_ctx *ctx, u64 start, u64 end, u32 flags)
{
	struct ps_mm *mm = &ctx->ps->mm;
	bool fresh = flags & REGION_FRESH;
	int ret;

	for (;;) {
		lock_settled(mm);
		ret = fresh ? region_register(mm, start, end) :
			      register_mapped(ctx->ps, start, end, flags);
		if (ret != -EAGAIN)
			break;
		ps_rwlock_write_unlock(&mm->gate);
		sys_sleep_ns(SETTLE_NS);
	}
	/* Without it a fault makes a table of ptes before it comes to us, and a huge page that is moved
	 * there is split (docs/decisions/004). The kernel fills nothing here by itself. */
	if (ret == 0 && !ctx->ps->cfg.no_thp)
		sys_madvise((void *)(uintptr_t)start, end - start, MADV_HUGEPAGE);
	if (ret == 0 && fresh) {
		zap_range(mm, start, end, 0);
		ret = region_add(mm, start, end, flags);
	}
	ps_rwlock_write_unlock(&mm->gate);
	if (ret == 0 && !fresh)
		rescan_range(ctx, start, end);
	return ret;
}

/* Makes our guards in the range those of the kernel. */
void adopt_guards(struct ps_ctx *ctx, u64 start, u64 end)
{
	struct pswap *ps = ctx->ps;
	struct ps_mm *mm = &ps->mm;
	u64 map[PTRS_PER_PMD];

	for (u64 addr = start & PMD_MASK; addr < end; addr += PMD_SIZE) {
		unsigned lo = addr < start ? pt_index(start) : 0;
		unsigned hi = addr + PMD_SIZE > end ? pt_index(end) : PTRS_PER_PMD;
		struct region *r = region_after(mm, addr + lo * PAGE_SIZE);
		struct extent *e;

		if (!r || r->start >= addr + PMD_SIZE ||
		    sys_pread(ps->pagemap_fd, map + lo, (hi - lo) * sizeof(u64),
			      ((addr >> PAGE_SHIFT) + lo) * sizeof(u64)) !=
			    (long)((hi - lo) * sizeof(u64)))
			continue;
		e = pt_get(mm, addr);
		if (!e)
			return;
		for (unsigned i = lo; i < hi; i++) {
			bool guard = map[i] & PM_GUARD;

			if (guard == (pte_kind(pte_get(e, i)) == PTE_GUARD))
				continue;
			if (guard)
				zap_range(mm, pt_addr(e, i), pt_addr(e, i) + PAGE_SIZE, 0);
			ps_mutex_lock(&e->lock);
			pte_set(e, i, pte_make(guard ? PTE_GUARD : PTE_NONE));
			ps_mutex_unlock(&e->lock);
		}
	}
}

int adopt_pin(struct ps_ctx *ctx, u64 start, u64 end)
{
	struct ps_mm *mm = &ctx->ps->mm;
	bool ours;
	int ret;

	ps_rwlock_read_lock(&mm->gate);
	ours = region_find(mm, start) || region_find(mm, end - 1);
	ps_rwlock_read_unlock(&mm->gate);
	if (!ours)
		return 0;
	for (u64 addr = start; addr < end; addr += PAGE_SIZE) {
		struct extent *e = pt_get(mm, addr);
		bool done = false;

		for (int tries = 0; e && !done && tries < 1000; tries++) {
			ret = fault_range(ctx, mm, addr, addr + PAGE_SIZE);
			if (ret)
				return ret;
			ps_mutex_lock(&e->io);
			ps_rwlock_read_lock(&mm->gate);
			ps_mutex_lock(&e->lock);
			if (pte_kind(pte_get(e, pt_index(addr))) == PTE_NONE)
				pte_set(e, pt_index(addr), pte_make(PTE_PINNED));
			done = pte_kind(pte_get(e, pt_index(addr))) == PTE_PINNED;
			ps_mutex_unlock(&e->lock);
			done = done && cow_allow(e, pt_index(addr), 1) == 0;
			ps_rwlock_read_unlock(&mm->gate);
			ps_mutex_unlock(&e->io);
		}
	}
	return 0;
}

/* ---- arming ---- */

struct arm {
	struct ps_ctx *ctx;
	unsigned adopted;
};

/* The parts of [start, end) that are not registered yet. */
static void adopt_unknown(struct arm *a, u64 start, u64 end)
{
	struct ps_mm *mm = &a->ctx->ps->mm;

	while (start < end) {
		u64 stop = end, next = end;
		struct region *r;

		ps_rwlock_read_lock(&mm->gate);
		r = region_after(mm, start);
		if (r && r->start < end) {
			stop = MAX(r->start, start);
			next = MIN(r->end, end);
		}
		ps_rwlock_read_unlock(&mm->gate);
		if (stop > start && adopt_add(a->ctx, start, stop, 0) == 0)
			a->adopted++;
		start = next;
	}
}

/* Registers [start, end) less what is excluded and what is ours. */
static void arm_range(struct arm *a, u64 start, u64 end)
{
	while (start < end) {
		uintptr_t own_start, own_end;
		u64 stop = end;

		if (arena_next_range(start, &own_start, &own_end)) {
			if (own_start <= start) {
				start = own_end;
				continue;
			}
			stop = MIN(stop, (u64)own_start);
		}
		if (adopt_excluded(start, stop)) {
			/* Cut at the first border of an excluded range. */
			u64 cut = stop;

			for (u32 i = 0; i < relaxed_load(&G.nr_excluded); i++) {
				u64 s = relaxed_load(&G.excluded[i].start),
				    e = relaxed_load(&G.excluded[i].end);

				if (s > start && s < cut)
					cut = s;
				if (s && e > start && e < cut)
					cut = e;
			}
			for (unsigned i = 0; i < G.nr_boot; i++) {
				if (G.boot[i].start > start && G.boot[i].start < cut)
					cut = G.boot[i].start;
				if (G.boot[i].end > start && G.boot[i].end < cut)
					cut = G.boot[i].end;
			}
			stop = cut;
		}
		if (!adopt_excluded(start, stop))
			adopt_unknown(a, start, stop);
		start = stop;
	}
}

static bool arm_vma(const struct vma *v, void *arg)
{
	struct arm *a = arg;
	u64 start = v->start, end = v->end;

	if (v->shared || v->inode)
		return true;
	/* "[heap]", "[anon:...]" and no name at all are memory; "[stack]", "[vdso]" are not. */
	if (v->name[0] && memcmp(v->name, "[heap]", 6) && memcmp(v->name, "[anon", 5))
		return true;
	if (start < G.bss_end && end > G.bss_start && !v->name[0]) {
		start = MAX(start, G.bss_start);
		end = MIN(end, G.bss_end);
	}
	arm_range(a, start, end);
	return true;
}

/* One line of smaps: the mapping it is about, then its flags. */
struct smaps {
	struct ps_mm *mm;
	u64 start, end;
};

static void smaps_line(struct smaps *s, const char *p, const char *nl)
{
	u32 flags = 0;
	u64 a = 0, b = 0;

	if (nl - p > 8 && memcmp(p, "VmFlags:", 8) == 0) {
		for (p += 8; p + 2 < nl; p++) {
			if (p[0] != ' ')
				continue;
			if (p[1] == 'l' && p[2] == 'o')
				flags |= REGION_LOCKED;
			if (p[1] == 'd' && p[2] == 'c')
				flags |= REGION_DONTFORK;
			if (p[1] == 'w' && p[2] == 'f')
				flags |= REGION_WIPEONFORK;
		}
		if (flags) {
			ps_rwlock_write_lock(&s->mm->gate);
			region_flags(s->mm, s->start, s->end, flags, 0);
			ps_rwlock_write_unlock(&s->mm->gate);
		}
		return;
	}
	for (; p < nl && *p != '-'; p++) {
		if (!((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f')))
			return;
		a = a * 16 + (*p <= '9' ? *p - '0' : *p - 'a' + 10);
	}
	for (p++; p < nl && *p != ' '; p++) {
		if (!((*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'f')))
			return;
		b = b * 16 + (*p <= '9' ? *p - '0' : *p - 'a' + 10);
	}
	s->start = a;
	s->end = b;
}

/* Flags that were set before we listened stand in smaps only. */
static void special_flags(struct pswap *ps, char *buf, size_t size)
{
	int fd = (int)sys_openat(ps->proc_fd, "self/smaps", O_RDONLY | O_CLOEXEC);
	struct smaps s = { .mm = &ps->mm };
	size_t have = 0;
	long n;

	if (fd < 0)
		return;
	while ((n = sys_read(fd, buf + have, size - have)) > 0) {
		char *line = buf, *nl;

		have += n;
		while ((nl = memchr(line, '\n', buf + have - line))) {
			smaps_line(&s, line, nl);
			line = nl + 1;
		}
		have = buf + have - line;
		memmove(buf, line, have);
	}
	sys_close(fd);
}

void adopt_all(struct ps_ctx *ctx)
{
	struct arm a = { .ctx = ctx };
	struct pswap *ps = ctx->ps;

	if (relaxed_load(&G.too_many_excluded)) {
		preload_off("the program has more threads than can be told apart from its memory");
		return;
	}
	/* From here on hooks report new memory; they wait until we are through. */
	atomic_store(&G.mode, MODE_ARMED);
	vma_for_each(ps->maps_fd, ctx->buf, KiB(64), arm_vma, &a);
	if (relaxed_load(&G.special_flags))
		special_flags(ps, ctx->buf, KiB(64));
	for (u32 i = 0; i < relaxed_load(&G.nr_pins) && i < MAX_PINS; i++)
		if (relaxed_load(&G.pins[i].start))
			adopt_pin(ctx, G.pins[i].start, G.pins[i].end);
	relaxed_store(&ps->stat->state, PS_MEMBER_ARMED);
}

unsigned adopt_more(struct ps_ctx *ctx)
{
	struct arm a = { .ctx = ctx };

	vma_for_each(ctx->ps->maps_fd, ctx->buf, KiB(64), arm_vma, &a);
	return a.adopted;
}

static void forget(struct ps_mm *mm, u64 start, u64 end)
{
	zap_range(mm, start, end, 0);
	region_del(mm, start, end);
}

void adopt_replaced(u64 addr)
{
	struct ps_mm *mm = &G.ps.mm;
	struct vma v;

	ps_rwlock_write_lock(&mm->gate);
	if (vma_query(G.ps.maps_fd, addr, &v) == 0 && v.start <= addr && v.shared)
		forget(mm, addr, v.end);
	ps_rwlock_write_unlock(&mm->gate);
}

/* Registers what is left of a region that cannot be registered as a whole: something has taken the place
 * of parts of it, or they were not copied, behind our back. */
static int reregister_parts(struct ps_mm *mm, struct region r)
{
	u64 at = r.start;
	struct vma v;

	while (at < r.end) {
		u64 start = r.end, end = r.end;
		int ret = 0;

		if (vma_query(G.ps.maps_fd, at, &v) == 0 && v.start < r.end) {
			start = MAX(v.start, at);
			end = MIN(v.end, r.end);
			ret = uffd_register(mm->uffd, start, end - start, false);
		}
		if (ret && !v.shared && !v.inode)
			return ret;
		forget(mm, at, start);
		if (ret)
			forget(mm, start, end);
		at = end;
	}
	return 0;
}

int adopt_reregister(void)
{
	struct ps_mm *mm = &G.ps.mm;

	for (u32 i = 0; i < mm->nr_regions;) {
		struct region r = mm->regions[i];
		int ret = 0;

		/* The parent closes the copy of its userfaultfd that the fork made; until then our
		 * mappings belong to that one (EBUSY). */
		for (int tries = 0; tries < 20000; tries++) {
			ret = uffd_register(mm->uffd, r.start, r.end - r.start, false);
			if (ret != -EBUSY)
				break;
			sys_sleep_ns(50000);
		}
		if (ret == -EBUSY)
			return ret;
		if (ret)
			ret = reregister_parts(mm, r);
		if (ret)
			return ret;
		/* Parts of it may be regions of their own now. */
		while (i < mm->nr_regions && mm->regions[i].start < r.end)
			i++;
	}
	return 0;
}
