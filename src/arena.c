/* SPDX-License-Identifier: MIT */
/*
 * arena.c - see arena.h.
 *
 * Units come from chunks: mappings of 256 MiB of address space (less if a limit on address space
 * is near) cut into 2 MiB pieces; a free unit is kept on an intrusive-free list *outside* the unit,
 * because writing a link into it would bring memory back.  Small objects are cut from 64 KiB slabs
 * taken from META units and are kept on one free list per size class.
 */
#include "arena.h"

#define MAX_RANGES 4096
#define CHUNK_MAX MiB(256)
#define CHUNK_MIN MiB(4)
#define SLAB_SIZE KiB(64)
#define MIN_CLASS_SHIFT 4
#define NR_CLASSES 9 /* 16 .. 4096 */

struct unit_pool {
	void **free_units; /* stack of free units */
	size_t nr_free, cap_free;
	_Atomic u64 nr_out;
};

static struct {
	struct ps_mutex lock;
	struct {
		uintptr_t start, end;
	} ranges[MAX_RANGES]; /* sorted by start */
	unsigned nr_ranges;
	struct unit_pool pool[ARENA_NR_KINDS];
	struct {
		struct ps_mutex lock;
		void *free;
	} classes[NR_CLASSES];
	char *slab, *slab_end;
	_Atomic u64 meta_bytes;
	_Atomic u32 lock_future;
} A;

static bool range_add(uintptr_t start, uintptr_t end)
{
	unsigned i = A.nr_ranges;

	if (i == MAX_RANGES)
		return false;
	for (; i > 0 && A.ranges[i - 1].start > start; i--)
		A.ranges[i] = A.ranges[i - 1];
	A.ranges[i].start = start;
	A.ranges[i].end = end;
	A.nr_ranges++;
	return true;
}

static void range_del(uintptr_t start)
{
	for (unsigned i = 0; i < A.nr_ranges; i++) {
		if (A.ranges[i].start != start)
			continue;
		memmove(&A.ranges[i], &A.ranges[i + 1],
			(A.nr_ranges - i - 1) * sizeof(A.ranges[0]));
		A.nr_ranges--;
		return;
	}
	ps_assert(!"arena: unmap of an unknown mapping");
}

/*
 * A place of our own, far from where the kernel puts what a program maps (down from the stack) and from
 * the heap: what the program unmaps stays free until it maps there again, as without us.  Below are the
 * shadows of the sanitizers and the hints of Go's and Java's heaps, above the programs themselves.
 */
#define ZONE_START 0x300000000000UL
#define ZONE_END 0x400000000000UL
#define ZONE_TRIES 256

/* Not at the same addresses in each process. */
static uintptr_t zone_start(void)
{
	u64 r = 0;

	sys_call3(SYS_getrandom, &r, sizeof(r), 1 /* GRND_NONBLOCK */);
	return ZONE_START + r % ((ZONE_END - ZONE_START) / 2 / ARENA_UNIT) * ARENA_UNIT;
}

/* Lock held. */
static char *map_in_zone(size_t size, size_t align, int prot)
{
	static uintptr_t next;

	if (!next)
		next = zone_start();
	for (int i = 0; i < ZONE_TRIES; i++) {
		char *at = (char *)ALIGN_UP(next, align), *p;

		if ((uintptr_t)at + size > ZONE_END) {
			next = ZONE_START;
			continue;
		}
		p = sys_mmap(at, size, prot,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
		if (p == at) {
			next = (uintptr_t)at + size;
			return p;
		}
		if (!sys_is_err((long)p))
			sys_munmap(p, size); /* a kernel before 4.17, which takes it for a hint */
		else if ((long)p != -EEXIST)
			return NULL;
		next = (uintptr_t)at + ALIGN_UP(size, ARENA_UNIT);
	}
	return NULL;
}

/* Anywhere. Lock held. */
static char *map_anywhere(size_t size, size_t align, int prot)
{
	size_t len = size + (align > PAGE_SIZE ? align : 0);
	char *raw = sys_mmap(NULL, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *p;

	if (sys_is_err((long)raw))
		return NULL;
	p = (char *)ALIGN_UP((uintptr_t)raw, align);
	if (p > raw)
		sys_munmap(raw, p - raw);
	if (raw + len > p + size)
		sys_munmap(p + size, raw + len - (p + size));
	return p;
}

/* Maps size bytes at an address aligned to align and records the range. Lock held. */
static void *map_aligned(size_t size, size_t align)
{
	bool locked = relaxed_load(&A.lock_future);
	/* Locked memory is touched as it is mapped, unless it cannot be. */
	int prot = locked ? PROT_NONE : PROT_READ | PROT_WRITE;
	char *p = map_in_zone(size, align, prot);

	if (!p)
		p = map_anywhere(size, align, prot);
	if (!p)
		return NULL;
	if (locked) {
		sys_call2(SYS_munlock, p, size);
		sys_mprotect(p, size, PROT_READ | PROT_WRITE);
	}
	/* A core dump is of the program. */
	sys_madvise(p, size, MADV_DONTDUMP);
	if (!range_add((uintptr_t)p, (uintptr_t)p + size)) {
		sys_munmap(p, size);
		return NULL;
	}
	return p;
}

static bool pool_reserve(struct unit_pool *u, size_t more)
{
	size_t cap = u->cap_free ? u->cap_free : PAGE_SIZE / sizeof(void *);
	void **table;

	if (u->nr_free + more + relaxed_load(&u->nr_out) <= u->cap_free)
		return true;
	while (cap < u->nr_free + more + relaxed_load(&u->nr_out))
		cap *= 2;
	table = map_aligned(cap * sizeof(void *), PAGE_SIZE);
	if (!table)
		return false;
	if (u->free_units) {
		memcpy(table, u->free_units, u->nr_free * sizeof(void *));
		range_del((uintptr_t)u->free_units);
		sys_munmap(u->free_units, u->cap_free * sizeof(void *));
	}
	u->free_units = table;
	u->cap_free = cap;
	return true;
}

static bool pool_grow(struct unit_pool *u, enum arena_kind kind)
{
	size_t size = CHUNK_MAX, n;
	char *p = NULL;

	for (; size >= CHUNK_MIN && !p; size /= 2) {
		p = map_aligned(size, ARENA_UNIT);
		if (p)
			break;
	}
	if (!p)
		return false;
	n = size / ARENA_UNIT;
	if (!pool_reserve(u, n)) {
		range_del((uintptr_t)p);
		sys_munmap(p, size);
		return false;
	}
	if (kind != ARENA_META)
		sys_madvise(p, size, MADV_HUGEPAGE);
	/* Lowest address on top of the stack, so that chunks fill from the front. */
	for (size_t i = n; i-- > 0;)
		u->free_units[u->nr_free++] = p + i * ARENA_UNIT;
	return true;
}

static void *get_unit_locked(enum arena_kind kind)
{
	struct unit_pool *u = &A.pool[kind];

	if (!u->nr_free && !pool_grow(u, kind))
		return NULL;
	relaxed_add(&u->nr_out, 1);
	return u->free_units[--u->nr_free];
}

void *arena_get_unit(enum arena_kind kind)
{
	void *p;

	ps_mutex_lock(&A.lock);
	p = get_unit_locked(kind);
	ps_mutex_unlock(&A.lock);
	return p;
}

void arena_put_unit(enum arena_kind kind, void *unit)
{
	struct unit_pool *u = &A.pool[kind];

	ps_debug_assert(((uintptr_t)unit & (ARENA_UNIT - 1)) == 0);
	sys_madvise(unit, ARENA_UNIT, MADV_DONTNEED);
	ps_mutex_lock(&A.lock);
	relaxed_sub(&u->nr_out, 1);
	/* Room is certain: the table was sized for every unit that is out. */
	ps_assert(u->nr_free < u->cap_free);
	u->free_units[u->nr_free++] = unit;
	ps_mutex_unlock(&A.lock);
}

void *arena_map(size_t size)
{
	void *p;

	size = ALIGN_UP(size, PAGE_SIZE);
	ps_mutex_lock(&A.lock);
	p = map_aligned(size, size >= ARENA_UNIT ? ARENA_UNIT : PAGE_SIZE);
	ps_mutex_unlock(&A.lock);
	if (p)
		relaxed_add(&A.meta_bytes, size);
	return p;
}

void arena_unmap(void *p, size_t size)
{
	if (!p)
		return;
	size = ALIGN_UP(size, PAGE_SIZE);
	ps_mutex_lock(&A.lock);
	range_del((uintptr_t)p);
	sys_munmap(p, size);
	ps_mutex_unlock(&A.lock);
	relaxed_sub(&A.meta_bytes, size);
}

static unsigned size_class(size_t size)
{
	unsigned shift = MIN_CLASS_SHIFT;

	while ((1UL << shift) < size)
		shift++;
	ps_assert(shift - MIN_CLASS_SHIFT < NR_CLASSES);
	return shift - MIN_CLASS_SHIFT;
}

static void *slab_cut(size_t size)
{
	void *p = NULL;

	ps_mutex_lock(&A.lock);
	A.slab = (char *)ALIGN_UP((uintptr_t)A.slab, size);
	if (A.slab + size > A.slab_end) {
		A.slab = get_unit_locked(ARENA_META);
		A.slab_end = A.slab ? A.slab + ARENA_UNIT : NULL;
	}
	if (A.slab) {
		p = A.slab;
		A.slab += size;
	}
	ps_mutex_unlock(&A.lock);
	return p;
}

void *arena_alloc(size_t size)
{
	unsigned c = size_class(size);
	size_t full = 1UL << (c + MIN_CLASS_SHIFT);
	void *p;

	ps_mutex_lock(&A.classes[c].lock);
	p = A.classes[c].free;
	if (p)
		memcpy(&A.classes[c].free, p, sizeof(void *));
	ps_mutex_unlock(&A.classes[c].lock);
	if (p)
		memset(p, 0, full);
	else
		p = slab_cut(full);
	if (p)
		relaxed_add(&A.meta_bytes, full);
	return p;
}

void arena_free(void *p, size_t size)
{
	unsigned c = size_class(size);

	if (!p)
		return;
	ps_mutex_lock(&A.classes[c].lock);
	memcpy(p, &A.classes[c].free, sizeof(void *));
	A.classes[c].free = p;
	ps_mutex_unlock(&A.classes[c].lock);
	relaxed_sub(&A.meta_bytes, 1UL << (c + MIN_CLASS_SHIFT));
}

bool arena_next_range_frozen(uintptr_t addr, uintptr_t *start, uintptr_t *end)
{
	for (unsigned i = 0; i < A.nr_ranges; i++) {
		if (A.ranges[i].end <= addr)
			continue;
		*start = A.ranges[i].start;
		*end = A.ranges[i].end;
		return true;
	}
	return false;
}

bool arena_next_range(uintptr_t addr, uintptr_t *start, uintptr_t *end)
{
	bool found;

	ps_mutex_lock(&A.lock);
	found = arena_next_range_frozen(addr, start, end);
	ps_mutex_unlock(&A.lock);
	return found;
}

void arena_freeze(void)
{
	ps_mutex_lock(&A.lock);
}

void arena_thaw(void)
{
	ps_mutex_unlock(&A.lock);
}

bool arena_owns(const void *addr)
{
	uintptr_t start, end;

	return arena_next_range((uintptr_t)addr, &start, &end) && start <= (uintptr_t)addr;
}

u64 arena_bytes(enum arena_kind kind)
{
	if (kind == ARENA_META)
		return relaxed_load(&A.meta_bytes);
	return relaxed_load(&A.pool[kind].nr_out) * ARENA_UNIT;
}

void arena_lock_future(bool on)
{
	relaxed_store(&A.lock_future, on);
}

void arena_after_fork(void)
{
	relaxed_store(&A.lock_future, 0); /* not inherited */
	memset(&A.lock, 0, sizeof(A.lock));
	for (unsigned i = 0; i < NR_CLASSES; i++)
		memset(&A.classes[i].lock, 0, sizeof(A.classes[i].lock));
}
