/* SPDX-License-Identifier: MIT */
/* sample.c - the footprint of a tree as seen from outside. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "sys.h"

#define INTERVAL_FIRST 1000000ULL /* short programs want to be seen too */
#define INTERVAL_MOST  50000000ULL
#define INTERVAL_TIGHT 10000000ULL /* when processes that nobody limits bring the tree near its limit */
#define COST_FACTOR    50     /* looking may take 2 % of the time, */
#define COST_TIGHT     10     /* or 10 % */
#define ROLLUP_LEAST   MiB(8) /* below this, sharing is not worth the look at every page */
#define MAX_DEPTH      64
#define UNMET_MOST     40 /* looks for a member of another pid namespace that is not found */

struct round {
	struct sampler *s;
	u64 footprint, measured, pool, others;
	unsigned members; /* alive */
	unsigned watched; /* processes without an engine */
	bool inner;	  /* there are members of other pid namespaces that have not been met */
};

u64 sample_field(const char *path, const char *key, u64 otherwise)
{
	FILE *f = fopen(path, "re");
	size_t n = strlen(key);
	char line[128];
	u64 kib = 0;

	if (!f)
		return errno == ENOENT || errno == ESRCH ? 0 : otherwise;
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, key, n) && line[n] == ':') {
			kib = strtoull(line + n + 1, NULL, 10);
			break;
		}
	}
	fclose(f);
	return KiB(kib);
}

u64 sample_kib(pid_t pid, const char *file, const char *key, u64 otherwise)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	return sample_field(path, key, otherwise);
}

static bool read_statm(pid_t pid, unsigned long long *resident, unsigned long long *shared)
{
	char path[64], text[128];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[MAX(n, 0)] = 0;
	return sscanf(text, "%*u %llu %llu", resident, shared) == 2 && *resident >= *shared;
}

/* A thread of a process whose first thread has ended, and has no memory any more; 0 if none. */
static pid_t other_thread(pid_t pid)
{
	char path[64];
	struct dirent *e;
	pid_t tid = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (!tid || tid == pid) && (e = readdir(d)))
		tid = (pid_t)strtol(e->d_name, NULL, 10);
	if (d)
		closedir(d);
	return tid == pid ? 0 : tid;
}

/* The anonymous memory of a process; what it shares with others counted in part when several are
 * watched (after a fork both parent and child have the same pages). */
static u64 anon_bytes(pid_t pid, bool several)
{
	unsigned long long resident = 0, shared = 0;
	u64 bytes;

	if (!read_statm(pid, &resident, &shared))
		return 0;
	if (!resident) {
		pid = other_thread(pid);
		if (!pid || !read_statm(pid, &resident, &shared))
			return 0;
	}
	bytes = (resident - shared) * PAGE_SIZE;
	if (!several || bytes < ROLLUP_LEAST)
		return bytes;
	return sample_kib(pid, "smaps_rollup", "Pss_Anon", bytes);
}

static bool has_library(pid_t pid)
{
	char path[64], line[PATH_MAX + 128];
	bool has = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return true;
	while (!has && fgets(line, sizeof(line), f))
		has = strstr(line, "/libpswap-preload.so") != NULL;
	has |= ferror(f) != 0;
	fclose(f);
	return has;
}

/* Of CMD exe.c says why; what it starts is seen here, when it is large: once for each process. */
static void say_unswapped(struct sampler *s, pid_t pid, u64 anon)
{
	char comm[16] = "";
	u64 starttime;
	unsigned i = 0;

	if (anon < ROLLUP_LEAST)
		return;
	starttime = shm_starttime(pid, comm);
	while (i < ARRAY_SIZE(s->told) && s->told[i] && s->told[i] != starttime)
		i++;
	if (i == ARRAY_SIZE(s->told) || s->told[i] || !starttime || has_library(pid))
		return;
	s->told[i] = starttime;
	cli_warn("%.16s (process %d) is not linked with glibc dynamically, or changes its rights: it runs unswapped",
		 comm, (int)pid);
}

static void look_at_members(struct round *r)
{
	struct ps_shm *shm = r->s->shm;
	u32 nr = MIN(relaxed_load(&shm->nr_members), PS_SHM_MEMBERS);

	for (u32 i = 0; i < nr; i++) {
		struct ps_member *m = &shm->members[i];
		u32 state = relaxed_load(&m->state), pid = shm_member_pid(shm, m);

		if (!relaxed_load(&m->pid) || state == PS_MEMBER_ENDED)
			continue;
		/* It could not look into /proc itself. */
		if (pid && !relaxed_load(&m->starttime))
			relaxed_store(&m->starttime, shm_starttime((pid_t)pid, NULL));
		r->s->unmet[i] = pid ? 0 : r->s->unmet[i] + 1;
		if (!shm_member_alive(shm, m) || r->s->unmet[i] > UNMET_MOST) {
			/* Killed: nobody else will say so. */
			if (atomic_compare_exchange_strong(&m->state, &state, PS_MEMBER_ENDED))
				relaxed_add(&shm->epoch, 1);
			continue;
		}
		r->members++;
		r->inner |= !pid;
		if (pid && (state == PS_MEMBER_NEW || state == PS_MEMBER_UNSWAPPED)) {
			u64 anon = anon_bytes((pid_t)pid, nr > 1);

			relaxed_store(&m->footprint_bytes, anon);
			relaxed_store(&m->measured_bytes, anon);
			relaxed_store(&m->resident_bytes, anon);
			stat_peak(&m->peak_footprint_bytes, anon);
			if (state == PS_MEMBER_NEW)
				say_unswapped(r->s, (pid_t)pid, anon);
			r->watched++;
		}
		r->footprint += relaxed_load(&m->footprint_bytes);
		r->measured += relaxed_load(&m->measured_bytes);
		r->pool += relaxed_load(&m->pool_bytes);
	}
}

static bool is_member(const struct ps_shm *shm, pid_t pid)
{
	u32 nr = MIN(relaxed_load(&shm->nr_members), PS_SHM_MEMBERS);

	for (u32 i = 0; i < nr; i++) {
		const struct ps_member *m = &shm->members[i];

		if (shm_member_pid(shm, m) == (u32)pid && relaxed_load(&m->state) != PS_MEMBER_ENDED)
			return true;
		/* The engine of a member has no memory of its own. */
		if (!shm_is_inner(shm, m) && (relaxed_load(&m->engine_pid) == (u32)pid ||
					      relaxed_load(&m->guard_pid) == (u32)pid))
			return true;
	}
	return false;
}

/* The process id in the innermost namespace; 0: it is not in another. */
static u32 inner_pid(pid_t pid)
{
	char path[64], line[256], *p, *end;
	u32 last = 0, n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "NSpid:", 6))
			continue;
		for (p = line + 6;; p = end, n++) {
			unsigned long v = strtoul(p, &end, 10);

			if (end == p)
				break;
			last = (u32)v;
		}
		break;
	}
	if (f)
		fclose(f);
	return n > 1 ? last : 0;
}

/* Is it a member that knows itself by another number? */
static bool meets_inner(struct round *r, pid_t pid, u64 starttime)
{
	struct ps_shm *shm = r->s->shm;
	u32 nr = MIN(relaxed_load(&shm->nr_members), PS_SHM_MEMBERS), own, ns;

	own = r->inner ? inner_pid(pid) : 0;
	if (!own)
		return false;
	ns = shm_pid_ns(pid);
	for (u32 i = 0; i < nr; i++) {
		struct ps_member *m = &shm->members[i];

		if (relaxed_load(&m->pid) != own || relaxed_load(&m->pid_ns) != ns ||
		    relaxed_load(&m->starttime) != starttime ||
		    relaxed_load(&m->state) == PS_MEMBER_ENDED)
			continue;
		relaxed_store(&m->outer_pid, (u32)pid);
		return true;
	}
	return false;
}

static struct sample_proc *proc_of(struct sampler *s, pid_t pid, u64 starttime)
{
	struct sample_proc *p;

	for (unsigned i = 0; i < s->nr_procs; i++) {
		if (s->procs[i].pid == pid && s->procs[i].starttime == starttime)
			return &s->procs[i];
	}
	if (s->nr_procs == ARRAY_SIZE(s->procs))
		return NULL;
	p = &s->procs[s->nr_procs++];
	p->pid = pid;
	p->starttime = starttime;
	return p;
}

void sampler_init(struct sampler *s, struct ps_shm *shm, pid_t root, bool told)
{
	char comm[16] = "";
	u64 starttime = shm_starttime(root, comm);
	struct sample_proc *p;

	memset(s, 0, sizeof(*s));
	s->shm = shm;
	s->root = root;
	s->interval_ns = INTERVAL_FIRST;
	s->due_ns = ps_now_ns() + s->interval_ns;
	/* CMD is listed even if it ends before the first look. */
	p = proc_of(s, root, starttime);
	memcpy(p->comm, comm, sizeof(p->comm));
	if (told)
		s->told[0] = starttime;
}

/*
 * A child of a member is about to become one, mostly, and then says itself what it uses; counted here it would be
 * counted twice until the next look.
 */
static bool may_join(struct round *r, pid_t parent)
{
	return parent && is_member(r->s->shm, parent);
}

static void look_at_other(struct round *r, pid_t pid, pid_t parent, u64 starttime, const char comm[16])
{
	unsigned known = r->s->nr_procs;
	struct sample_proc *p = proc_of(r->s, pid, starttime);
	u64 anon;

	if (r->s->nr_procs > known && may_join(r, parent))
		return;
	anon = anon_bytes(pid, r->members + r->watched > 0);
	if (p) {
		memcpy(p->comm, comm, sizeof(p->comm));
		p->footprint_bytes = anon;
	}
	say_unswapped(r->s, pid, anon);
	r->watched++;
	r->others += anon;
}

/* A vfork child, or the engine of a member: its memory is another's, for an engine mostly not its
 * parent's. */
static bool shares_memory(pid_t pid, pid_t parent, const char *comm)
{
	return !strcmp(comm, "pswap-engine") || !strcmp(comm, "pswap-guard") ||
	       syscall(SYS_kcmp, pid, parent, KCMP_VM, 0, 0) == 0;
}

/* pid and its children, those that are not members. */
static void look_at_tree(struct round *r, pid_t pid, pid_t parent, int depth)
{
	char path[80], text[4096], *next, *end;
	ssize_t n;
	int fd;

	if (!is_member(r->s->shm, pid)) {
		char comm[16] = "";
		u64 starttime = shm_starttime(pid, comm);

		if (starttime && !(parent && shares_memory(pid, parent, comm)) &&
		    !meets_inner(r, pid, starttime))
			look_at_other(r, pid, parent, starttime, comm);
	}
	if (depth == MAX_DEPTH)
		return;
	/* Children of other threads than the first are rare, and join as members if they are
	 * dynamic. */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[MAX(n, 0)] = 0;
	for (next = text;; next = end) {
		long child = strtol(next, &end, 10);

		if (end == next || child <= 0)
			break;
		look_at_tree(r, (pid_t)child, pid, depth + 1);
	}
}

static void look(struct sampler *s)
{
	struct round r = { .s = s };

	look_at_members(&r);
	look_at_tree(&r, s->root, 0, 0);
	s->others_bytes = r.others;
	relaxed_store(&s->shm->others_bytes, r.others);
	s->tight = r.others && r.footprint + r.others > s->shm->limit_bytes / 4 * 3;
	stat_peak(&s->shm->peak_footprint_bytes, r.measured + r.others);
	stat_peak(&s->shm->peak_pool_bytes, r.pool);
	if (!shm_starttime(s->root, NULL))
		return;
	for (u32 i = 0; i < MIN(relaxed_load(&s->shm->nr_members), PS_SHM_MEMBERS); i++) {
		const struct ps_member *m = &s->shm->members[i];

		s->gone[i] = relaxed_load(&m->state) == PS_MEMBER_ENDED
				     ? relaxed_load(&m->starttime)
				     : 0;
	}
}

u64 sampler_poll(struct sampler *s)
{
	u64 now = ps_now_ns(), took;

	if (now < s->due_ns)
		return s->due_ns - now;
	look(s);
	took = ps_now_ns() - now;
	s->interval_ns = MIN(s->interval_ns * 2, INTERVAL_MOST);
	s->due_ns = now + took + (s->tight ? MAX(INTERVAL_TIGHT, took * COST_TIGHT)
					   : MAX(s->interval_ns, took * COST_FACTOR));
	return s->due_ns - now - took;
}
