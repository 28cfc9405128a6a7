/* SPDX-License-Identifier: MIT */
/*
 * unwritable - memory that may not be written to, and more of it than the limit: it goes out and comes back as other
 * memory does, and its protection never has a gap.
 *
 *     unwritable none|r|rx|rwx MIB    filled in pieces, each protected at once, read at random, made writable again
 *     unwritable fork r|rx MIB        a child reads what went out, and changes its own copy
 *     unwritable forks r|rx MIB       a child for each piece, so that all of it was shared once while resident
 *     unwritable beside r|rx MIB      next to pages that cannot go, because they are locked past the hooks
 *     unwritable barrier MIB SECONDS  two threads write to random read-only pages; the handler of SIGSEGV notes the page
 *                                     and makes it writable, as collectors of garbage do; every write must be noted
 */
#include "pt.h"

#define PIECE (4 * PT_MIB)
#define RW (PROT_READ | PROT_WRITE)

static const struct {
	const char *name;
	int prot;
} rights[] = { { "none", PROT_NONE }, { "r", PROT_READ }, { "rx", PROT_READ | PROT_EXEC }, { "rwx", RW | PROT_EXEC } };

static int prot_of(const char *name)
{
	for (unsigned i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
		if (!strcmp(rights[i].name, name))
			return rights[i].prot;
	DIE("what is %s?", name);
}

static u64 rnd(u64 *s)
{
	return *s = pt_mix(*s + 0x9e3779b97f4a7c15);
}

static char *protected_memory(size_t len, int prot)
{
	char *p = pt_map_huge_aligned(len);

	for (size_t o = 0; o < len; o += PIECE) {
		pt_fill_at(p + o, PIECE, 1, o / PT_PAGE);
		CHECK(mprotect(p + o, PIECE, prot) == 0);
	}
	return p;
}

static void read_at_random(char *p, size_t len, u64 n)
{
	u64 s = 1;

	for (u64 i = 0; i < n; i++) {
		u64 at = rnd(&s) % (len / PT_PAGE);

		pt_verify_at(p + at * PT_PAGE, PT_PAGE, 1, at);
	}
}

static void run_rights(int prot, size_t len)
{
	char *p = protected_memory(len, prot);

	if (prot & PROT_READ)
		read_at_random(p, len, len / PT_PAGE);
	for (size_t o = 0; o < len; o += 211 * PT_PAGE) {
		CHECK(pt_touch(p + o, false) == (prot & PROT_READ ? 0 : SIGSEGV));
		if (!(prot & PROT_WRITE))
			CHECK(pt_touch(p + o, true) == SIGSEGV && pt_fault_addr == p + o);
	}
	for (size_t o = 0; o < len; o += PIECE) {
		CHECK(mprotect(p + o, PIECE, RW) == 0);
		pt_verify_at(p + o, PIECE, 1, o / PT_PAGE);
		pt_fill_at(p + o, PIECE, 2, o / PT_PAGE);
	}
	pt_verify(p, len, 2);
	CHECK(munmap(p, len) == 0);
}

#define UNIT 64 /* pages: 40 that may be written to, a locked one, and protected ones */
#define LOW 0x100000000000UL /* with terabytes above it, which a length that is wrong may be of */

static void run_beside(int prot, size_t len)
{
	char *p = mmap((void *)LOW, len, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	CHECK(p == (char *)LOW);
	pt_fill(p, len, 1);
	for (size_t i = 0; i < len / PT_PAGE; i += UNIT) {
		CHECK(pt_raw(PT_ASM, SYS_mlock, (long)(p + (i + 40) * PT_PAGE), PT_PAGE, 0, 0, 0, 0) == 0);
		CHECK(mprotect(p + (i + 41) * PT_PAGE, (UNIT - 41) * PT_PAGE, prot) == 0);
	}
	read_at_random(p, len, len / PT_PAGE);
	for (size_t i = 0; i < len / PT_PAGE; i++)
		CHECKF(pt_touch(p + i * PT_PAGE, true) == (i % UNIT > 40 ? SIGSEGV : 0), "page %zu", i);
	pt_verify(p, len, 1);
	CHECK(munmap(p, len) == 0);
}

static void run_fork(int prot, size_t len)
{
	char *p = protected_memory(len, prot);
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		read_at_random(p, len, len / PT_PAGE / 2);
		CHECK(pt_touch(p + len / 2, true) == SIGSEGV);
		CHECK(mprotect(p, len, RW) == 0);
		pt_fill(p, len / 2, 3);
		pt_verify(p, len / 2, 3);
		pt_verify_at(p + len / 2, len / 2, 1, len / 2 / PT_PAGE);
		_exit(0);
	}
	read_at_random(p, len, len / PT_PAGE / 2);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	pt_verify(p, len, 1);
	CHECK(munmap(p, len) == 0);
}

static void run_forks(int prot, size_t len)
{
	char *p = pt_map_huge_aligned(len);
	int status;

	for (size_t o = 0; o < len; o += PIECE) {
		pid_t pid;

		pt_fill_at(p + o, PIECE, 1, o / PT_PAGE);
		CHECK(mprotect(p + o, PIECE, prot) == 0);
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			pt_verify_at(p + o, PIECE, 1, o / PT_PAGE);
			_exit(0);
		}
		CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	}
	pt_verify(p, len, 1);
	read_at_random(p, len, len / PT_PAGE / 2);
	CHECK(munmap(p, len) == 0);
}

/* ---- a write barrier ---- */

static struct {
	char *mem;
	u64 pages;
	_Atomic u64 *value; /* what each page's first word must be */
	_Atomic u8 *noted;
	pthread_rwlock_t stopped; /* exclusive: no writer runs */
	_Atomic bool stop;
	_Atomic u64 faults, writes;
} B;

static void on_segv(int sig, siginfo_t *si, void *uc)
{
	u64 page = ((u64)si->si_addr - (u64)B.mem) / PT_PAGE;

	(void)sig;
	(void)uc;
	if ((char *)si->si_addr < B.mem || page >= B.pages)
		DIE("SIGSEGV at %p", si->si_addr);
	atomic_fetch_add(&B.faults, 1);
	atomic_store(&B.noted[page], 1);
	if (mprotect(B.mem + page * PT_PAGE, PT_PAGE, RW))
		DIE("mprotect in the handler");
}

/* Each thread has every second page, so that the values are known. */
static void *writer(void *arg)
{
	u64 me = (u64)arg, s = me + 5;

	while (!atomic_load(&B.stop)) {
		pthread_rwlock_rdlock(&B.stopped);
		for (unsigned i = 0; i < 20; i++) {
			u64 page = (rnd(&s) % (B.pages / 2)) * 2 + me, v = rnd(&s);
			volatile u64 *at = (volatile u64 *)(B.mem + page * PT_PAGE);

			if (*at != atomic_load(&B.value[page]))
				DIE("page %lu has lost a write", page);
			atomic_store(&B.value[page], v);
			*at = v;
			atomic_fetch_add(&B.writes, 1);
		}
		pthread_rwlock_unlock(&B.stopped);
	}
	return NULL;
}

static void run_barrier(size_t len, int seconds)
{
	struct sigaction sa = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_NODEFER };
	u64 end = pt_now_ns() + (u64)seconds * 1000000000, *seen;
	pthread_rwlockattr_t attr;
	unsigned rounds = 0;
	pthread_t t[2];

	B.mem = pt_map_huge_aligned(len);
	B.pages = len / PT_PAGE;
	B.value = calloc(B.pages, sizeof(*B.value));
	B.noted = calloc(B.pages, 1);
	seen = calloc(B.pages, sizeof(*seen));
	/* Or the two writers never leave a gap. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&B.stopped, &attr);
	for (u64 i = 0; i < B.pages; i++) {
		pt_fill_page(B.mem + i * PT_PAGE, 7, i);
		B.value[i] = seen[i] = *(u64 *)(B.mem + i * PT_PAGE);
	}
	CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
	CHECK(mprotect(B.mem, len, PROT_READ) == 0);
	for (u64 i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, writer, (void *)i) == 0);
	while (pt_now_ns() < end) {
		usleep(100000);
		pthread_rwlock_wrlock(&B.stopped);
		for (u64 i = 0; i < B.pages; i++) {
			u64 now = atomic_load(&B.value[i]);

			if (now != seen[i] && !atomic_load(&B.noted[i]))
				DIE("round %u: page %lu was written to, and nobody was told", rounds, i);
			seen[i] = now;
			atomic_store(&B.noted[i], 0);
		}
		/* Some pages only, so that few mappings become many and few again. */
		for (u64 i = 0; i < B.pages; i += 512)
			CHECK(mprotect(B.mem + i * PT_PAGE, PT_HUGE, PROT_READ) == 0);
		rounds++;
		pthread_rwlock_unlock(&B.stopped);
	}
	atomic_store(&B.stop, true);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	for (u64 i = 0; i < B.pages; i++)
		if (*(u64 *)(B.mem + i * PT_PAGE) != B.value[i])
			DIE("page %lu is wrong at the end", i);
	CHECK(B.faults > 100 && B.writes > 200);
	fprintf(stderr, "%u rounds, %lu writes, %lu of them noted\n", rounds, (u64)B.writes, (u64)B.faults);
}

int main(int argc, char **argv)
{
	pt_catch_faults();
	if (argc == 3)
		run_rights(prot_of(argv[1]), (size_t)atol(argv[2]) * PT_MIB);
	else if (argc == 4 && !strcmp(argv[1], "fork"))
		run_fork(prot_of(argv[2]), (size_t)atol(argv[3]) * PT_MIB);
	else if (argc == 4 && !strcmp(argv[1], "forks"))
		run_forks(prot_of(argv[2]), (size_t)atol(argv[3]) * PT_MIB);
	else if (argc == 4 && !strcmp(argv[1], "beside"))
		run_beside(prot_of(argv[2]), (size_t)atol(argv[3]) * PT_MIB);
	else if (argc == 4 && !strcmp(argv[1], "barrier"))
		run_barrier((size_t)atol(argv[2]) * PT_MIB, atoi(argv[3]));
	else
		DIE("none|r|rx|rwx MIB, fork[s]|beside r|rx MIB or barrier MIB SECONDS");
	puts("ok");
	return 0;
}
