/* SPDX-License-Identifier: MIT */
/*
 * bench_fork.c - `pswap bench fork`: what a fork costs a process whose memory is swapped out.
 *
 * libpswap is not for programs that fork, so here pswap's side is a whole program under `pswap
 * run`:
 *
 *   measured process of bench_child.c  --exec-->  pswap run ... -- pswap bench fork-program FD
 *
 * The kernel's side is the same program without `pswap run`, beside zram.  Request and sample go
 * through FD, a memfd, because nothing else of ours is there after an exec.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "cli.h"
#include "stat.h"

#define READ_PART   16	    /* the child reads one page in so many */
#define LIMIT_PART  8	    /* limit of pswap run: this part of the size, */
#define LIMIT_LEAST MiB(64) /* and enough for huge pages */
#define SETTLE_NS   100000000
#define REST_PAGES  256 /* that may be out of what the program has besides the region */
#define PUSH_TRIES  4
#define GONE_MS	    10000 /* an engine that stays longer shows */
#define PUSH_LOOKS  50

struct exchange {
	struct bench_req req;
	struct bench_sample sample;
};

uint64_t bench_fork_limit(uint64_t size)
{
	return MAX(size / LIMIT_PART & ~(BENCH_PMD - 1), LIMIT_LEAST);
}

/* ---- in the program ---- */

static struct ps_shm *tree; /* NULL: on the kernel's side */

static void settle(void)
{
	const struct timespec ts = { .tv_nsec = SETTLE_NS };

	nanosleep(&ts, NULL);
}

/* What the engine of a process of our tree tells, also after its end; NULL if it has none. */
static const struct ps_member *member_of(pid_t pid)
{
	for (u32 i = 0; i < MIN(relaxed_load(&tree->nr_members), PS_SHM_MEMBERS); i++)
		if (shm_member_pid(tree, &tree->members[i]) == (u32)pid)
			return &tree->members[i];
	return NULL;
}

/*
 * pswap's side of a page-out.  `pswap run` takes out what was not used for the longest time when
 * its limit comes near, and does not listen to MADV_PAGEOUT: so twice as much as the limit is
 * touched after the region, and goes again.  Then what is in memory is neither.
 */
static bool push_out(const struct bench_req *req, struct bench_sample *s)
{
	uint64_t pages = req->size / BENCH_PAGE, other = 2 * req->limit, t;
	char why[BENCH_WHY] = "pswap run does not know the program";
	const struct ps_member *m = NULL;

	tree = shm_of_pid(getpid(), false, why, sizeof(why));
	if (tree)
		m = member_of(getpid());
	if (!m) {
		bench_fail(s, "%s", why);
		return false;
	}
	for (unsigned i = 0; i < PUSH_TRIES; i++) {
		void *p = mmap(NULL, other, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);

		if (p == MAP_FAILED) {
			bench_fail(s, "mmap: %s", strerror(errno));
			return false;
		}
		bench_fill_range(FILL_SAME, p, other);
		munmap(p, other);
		t = bench_now();
		/* Figures of after the unmap, without what was unmapped. */
		for (unsigned k = 0; k < PUSH_LOOKS; k++) {
			settle();
			s->swapped_pages = relaxed_load(&m->swapped_pages);
			if (relaxed_load(&m->updated_ns) > t &&
			    s->swapped_pages <= pages + REST_PAGES)
				break;
		}
		if (s->swapped_pages >= pages - pages / 100)
			break;
	}
	s->pool_bytes = relaxed_load(&m->pool_bytes);
	s->peak_pool_bytes = relaxed_load(&m->peak_pool_bytes);
	s->metadata_bytes = relaxed_load(&m->metadata_bytes);
	/* The rule is the same on the kernel's side. */
	if (s->swapped_pages >= pages - pages / 100)
		return true;
	bench_fail(s, "pswap run swapped only %lu of %lu pages", (unsigned long)s->swapped_pages,
		   (unsigned long)pages);
	return false;
}

/* In the child: reads its part, in the same order on all sides. */
static bool read_part(const struct bench_req *req, const void *addr, struct bench_sample *s)
{
	uint64_t state = req->seed << 32;

	return bench_random_pass(req, addr, req->size / BENCH_PAGE / READ_PART, &state, s);
}

/* False: there is no child, or it did not end as it should. */
static bool wait_for(pid_t pid, struct bench_sample *s)
{
	int status = 0;

	if (pid < 0) {
		bench_fail(s, "fork: %s", strerror(errno));
		return false;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	/* A wrong word is said already. */
	if (status && !*s->why)
		bench_child_ended(s, status);
	return !status;
}

static void wait_gone(pid_t pid)
{
	int fd = pid > 0 ? pidfd_open(pid, 0) : -1;
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	if (fd < 0)
		return;
	while (poll(&pfd, 1, GONE_MS) < 0 && errno == EINTR)
		;
	close(fd);
}

/* The engine shares the child's memory: when it is gone, so is that. */
static void wait_returned(pid_t child)
{
	const struct ps_member *m = tree ? member_of(child) : NULL;

	if (!m)
		return;
	wait_gone((pid_t)relaxed_load(&m->engine_pid));
	wait_gone((pid_t)relaxed_load(&m->guard_pid));
}

/* A child that ends at once.  Nanoseconds until fork has returned, until waitpid has, and until the
 * child's memory is back at the system, which the kernel's waitpid waits for. */
static bool fork_exit(struct bench_sample *s)
{
	uint64_t t = bench_now();
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	s->value = (double)(bench_now() - t);
	if (!wait_for(pid, s))
		return false;
	s->fork_exit = (double)(bench_now() - t);
	wait_returned(pid);
	s->returned = (double)(bench_now() - t);
	return true;
}

/* Bytes of memory that this process has, and the child, if there is one. */
static double mem_used(const struct bench_req *req, pid_t child)
{
	pid_t pids[] = { getpid(), child };
	uint64_t n = 0;

	/* What the kernel and engines give back or copy after the last step. */
	settle();
	if (*req->cgroup) {
		n = bench_group_bytes(req, false);
	} else {
		for (unsigned i = 0; i < 2 && pids[i]; i++)
			n += sample_kib(pids[i], "smaps_rollup", "Pss_Anon", 0) +
			     sample_kib(pids[i], "status", "VmPTE", 0);
	}
	return (double)(n + bench_zram_pool(req));
}

/* Waits at fd for a byte; false: the other side is gone. */
static bool await(int fd)
{
	char c;

	return recv(fd, &c, 1, 0) == 1;
}

static bool tell(int fd)
{
	return send(fd, "", 1, MSG_NOSIGNAL) == 1;
}

/*
 * A child that lives on, after it has read its part or not.  *mem is what is used then; *ns, until
 * waitpid has returned, without the time in which that was found out.
 */
static bool fork_live(const struct bench_req *req, const void *addr, bool reads, double *mem,
		      double *ns, struct bench_sample *s)
{
	uint64_t t;
	pid_t pid;
	int sv[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv)) {
		bench_fail(s, "socketpair: %s", strerror(errno));
		return false;
	}
	t = bench_now();
	pid = fork();
	if (!pid) {
		close(sv[0]);
		if ((reads && !read_part(req, addr, s)) || !tell(sv[1]))
			_exit(1);
		await(sv[1]);
		_exit(0);
	}
	close(sv[1]);
	if (pid > 0 && await(sv[0])) {
		*ns = (double)(bench_now() - t);
		*mem = mem_used(req, pid);
	}
	t = bench_now();
	close(sv[0]);
	if (!wait_for(pid, s))
		return false;
	*ns += (double)(bench_now() - t);
	return true;
}

static void measure(const struct bench_req *req, struct bench_sample *s)
{
	void *addr = bench_map_filled(req, s);
	double before, ns = 0;

	s->limit_bytes = req->limit;
	if (!addr)
		return;
	if (!(bench_side_kernel(req->side) ? bench_kernel_page_out(req, addr, s)
					   : push_out(req, s)))
		return;
	if (!fork_exit(s))
		return;
	/* Reading comes last: what the child has read stays in the kernel's swap cache, and would
	 * be found there by the next one. */
	before = mem_used(req, 0);
	if (!fork_live(req, addr, false, &s->mem, &ns, s) ||
	    !fork_live(req, addr, true, &s->mem_read, &s->fork_read, s))
		return;
	s->mem -= before;
	s->mem_read -= before;
	s->by_pss = !*req->cgroup;
	s->cpu_ns = 0; /* the page-out's */
	s->ok = true;
}

static struct exchange *map_exchange(int fd)
{
	void *p = mmap(NULL, sizeof(struct exchange), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

int bench_fork_program(int argc, char **argv)
{
	struct exchange *x = NULL;
	struct stat st;
	int fd = argc == 2 ? atoi(argv[1]) : -1;

	if (fd > STDERR_FILENO && !fstat(fd, &st) && st.st_size == sizeof(*x))
		x = map_exchange(fd);
	if (!x)
		cli_fail("bench: " BENCH_FORK_PROGRAM " is a part of `pswap bench fork`");
	close(fd);
	measure(&x->req, &x->sample);
	return 0;
}

/* ---- around the program ---- */

static _Noreturn void exec_program(const struct bench_req *req, int fd, pid_t parent)
{
	char limit[32], fd_text[16];
	char *argv[] = { "pswap", "run", "-m", limit,	"--count=resident", "-s",
			 "ram",	  "--",	 NULL, "bench", BENCH_FORK_PROGRAM, fd_text,
			 NULL };
	static char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (n <= 0 || getppid() != parent)
		_exit(EXIT_PSWAP);
	snprintf(limit, sizeof(limit), "%lu", (unsigned long)req->limit);
	snprintf(fd_text, sizeof(fd_text), "%d", fd);
	argv[8] = self;
	execv(self, bench_side_kernel(req->side) ? argv + 8 : argv);
	_exit(EXIT_CANNOT);
}

void bench_fork_worker(const struct bench_req *req, struct bench_sample *s)
{
	int fd = memfd_create("pswap-bench", 0);
	struct exchange *x = NULL;
	pid_t self = getpid(), pid;

	if (fd >= 0 && !ftruncate(fd, sizeof(*x)))
		x = map_exchange(fd);
	if (!x) {
		bench_fail(s, "memfd: %s", strerror(errno));
		return;
	}
	if (*req->cgroup && !bench_enter_group(req, s))
		return;
	x->req = *req;
	pid = fork();
	if (!pid)
		exec_program(req, fd, self);
	if (wait_for(pid, &x->sample) && !x->sample.ok && !*x->sample.why)
		bench_fail(&x->sample, "the measured process has no result");
	*s = x->sample;
}
