/* SPDX-License-Identifier: MIT */
/*
 * main.c - the constructor of the preloaded library.  It is linked with -z initfirst, so that it
 * runs before any other constructor could start a thread; getenv() does not work there yet, the
 * constructor's own envp does.
 */
#include <sched.h>
#include <sys/utsname.h>

#include "account.h"
#include "config.h"
#include "hook.h"
#include "log.h"
#include "state.h"
#include "swapoff.h"
#include "vma.h"

#define FORK_STACK KiB(256)

struct preload G;

static u32 kernel_version(void)
{
	struct utsname u;
	u32 v[2] = { 0 };
	const char *p = u.release;

	if (sys_call1(SYS_uname, &u))
		return 0;
	for (int i = 0; i < 2; i++, p += *p == '.')
		for (; *p >= '0' && *p <= '9'; p++)
			v[i] = v[i] * 10 + (u32)(*p - '0');
	return KERNEL(v[0], v[1]);
}

static _Alignas(64) char fork_stack[FORK_STACK];
void *hook_fork_stack_top = fork_stack + FORK_STACK;

/* ---- messages: the engine has no descriptors of the program ---- */

void preload_log(const char *line, size_t len)
{
	struct ps_shm *shm = G.shm;
	u32 ticket;

	if (!shm) {
		sys_write(2, line, len);
		return;
	}
	ticket = relaxed_add(&shm->log_head, 1);
	len = MIN(len, (size_t)PS_LOG_LEN);
	/* Whoever still reads what was here notices. */
	atomic_store_explicit(&shm->log[ticket % PS_LOG_LINES].seq, ticket, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	memcpy(shm->log[ticket % PS_LOG_LINES].text, line, len);
	shm->log[ticket % PS_LOG_LINES].len = (u32)len;
	atomic_store_explicit(&shm->log[ticket % PS_LOG_LINES].seq, ticket + 1,
			      memory_order_release);
}

void preload_off(const char *why)
{
	if (atomic_exchange(&G.mode, MODE_OFF) != MODE_OFF)
		ps_log("%s: %s: it runs unswapped", G.member->comm, why);
	relaxed_store(&G.member->state, PS_MEMBER_UNSWAPPED);
}

/* ---- the tree ---- */

static u64 start_time(void)
{
	char buf[1024];
	int fd = (int)sys_open("/proc/self/stat", O_RDONLY | O_CLOEXEC, 0);
	long n = fd < 0 ? 0 : sys_read(fd, buf, sizeof(buf) - 1);
	char *p;
	u64 v = 0;

	if (fd >= 0)
		sys_close(fd);
	buf[MAX(n, 0)] = 0;
	/* Fields are counted from behind the last ')', as comm may hold anything. */
	for (p = buf + MAX(n, 0); p > buf && *p != ')'; p--)
		;
	for (int field = 2; *p && field < 22; p++)
		field += *p == ' ';
	for (; *p >= '0' && *p <= '9'; p++)
		v = v * 10 + (*p - '0');
	return v;
}

static u32 pid_ns(void)
{
	char buf[40];
	long n = sys_call4(SYS_readlinkat, AT_FDCWD, "/proc/self/ns/pid", buf, sizeof(buf) - 1);
	u32 v = 0;

	for (long i = 0; i < n; i++)
		if (buf[i] >= '0' && buf[i] <= '9')
			v = v * 10 + (u32)(buf[i] - '0');
	return v;
}

static bool is_alive(struct ps_member *m, u32 ns)
{
	u32 pid = relaxed_load(&m->pid);

	if (relaxed_load(&m->pid_ns) != ns)
		return relaxed_load(&m->state) != PS_MEMBER_ENDED;
	return sys_call2(SYS_kill, pid, 0) != -ESRCH;
}

static void fill_member(struct ps_member *m)
{
	long n;
	int fd;

	memset(m->comm, 0, sizeof(m->comm));
	fd = (int)sys_open("/proc/self/comm", O_RDONLY | O_CLOEXEC, 0);
	n = fd < 0 ? 0 : sys_read(fd, m->comm, sizeof(m->comm) - 1);
	if (fd >= 0)
		sys_close(fd);
	if (n > 0 && m->comm[n - 1] == '\n')
		m->comm[n - 1] = 0;
	relaxed_store(&m->starttime, start_time());
	relaxed_store(&m->state, PS_MEMBER_NEW);
}

/* Adds the counters of a member that has ended to the tree's, so that its slot can be used. */
static void fold(struct ps_shm *shm, struct ps_member *m)
{
#define X(name) relaxed_add(&shm->ended.name, relaxed_load(&m->name));
	PS_COUNTERS(X)
#undef X
	for (unsigned b = 0; b < PS_HIST_BUCKETS; b++)
		relaxed_add(&shm->ended.fault_hist[b], relaxed_load(&m->fault_hist[b]));
	stat_peak(&shm->ended.peak_footprint_bytes, relaxed_load(&m->peak_footprint_bytes));
	stat_peak(&shm->ended.peak_pool_bytes, relaxed_load(&m->peak_pool_bytes));
}

/* A slot of the tree's area for this process. */
void member_enter(void)
{
	struct ps_shm *shm = G.shm;
	u32 pid = (u32)sys_getpid(), ns = shm ? pid_ns() : 0;

	/* Without /proc (a child after chroot): as in the parent, most likely. */
	if (!ns)
		ns = relaxed_load(&G.member->pid_ns);
	G.member = &G.own_member;
	for (unsigned round = 0; shm && round < 2; round++) {
		for (unsigned i = 0; i < PS_SHM_MEMBERS; i++) {
			struct ps_member *m = &shm->members[i];
			u32 old = relaxed_load(&m->pid);

			/* First round: a free slot; second: one of a process that is gone. An exec
			 * of a member finds its own slot again. */
			bool own = old == pid && relaxed_load(&m->pid_ns) == ns;

			if (old && !own && (round == 0 || is_alive(m, ns)))
				continue;
			if (!atomic_compare_exchange_strong(&m->pid, &old, pid))
				continue;
			if (own)
				G.old_engine = (pid_t)relaxed_load(&m->engine_pid);
			if (old) {
				fold(shm, m);
				memset((char *)m + sizeof(m->pid), 0,
				       sizeof(*m) - sizeof(m->pid));
			}
			while (relaxed_load(&shm->nr_members) < i + 1) {
				u32 n = relaxed_load(&shm->nr_members);

				if (n < i + 1)
					atomic_compare_exchange_strong(&shm->nr_members, &n, i + 1);
			}
			relaxed_store(&m->pid_ns, ns);
			G.member = m;
			fill_member(m);
			return;
		}
	}
	memset(&G.own_member, 0, sizeof(G.own_member));
	relaxed_store(&G.own_member.pid, pid);
	fill_member(&G.own_member);
}

static void map_shm(const char *path)
{
	struct ps_shm *shm;
	int fd;

	if (!path[0])
		return;
	fd = (int)sys_open(path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return;
	shm = sys_mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	sys_close(fd);
	if (sys_is_err((long)shm))
		return;
	if (shm->magic != PS_SHM_MAGIC || shm->size != sizeof(*shm)) {
		sys_munmap(shm, sizeof(*shm));
		return;
	}
	G.shm = shm;
}

/* ---- who runs the program's instructions ---- */

/* Valgrind makes the program's calls itself, and ends it at the first clone that is not libc's. Outside of it these
 * instructions do nothing. */
static bool under_valgrind(void)
{
	volatile u64 request[6] = { 0x1001 /* RUNNING_ON_VALGRIND */ };
	u64 ret = 0;

#if defined(__x86_64__)
	__asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
			 : "+d"(ret) : "a"(request) : "cc", "memory");
#endif
	return ret != 0;
}

/*
 * A user mode emulator (qemu-x86_64) that is swapped itself: its program has the process's slot and environment, but
 * an exec it was not.  The kernel shows the program's code where the emulator has it, and never executable.  (Such
 * emulators make up self/maps, not thread-self/maps.)
 */
static bool inside_member(void)
{
	struct ps_shm *shm = G.shm;
	u32 pid = (u32)sys_getpid(), ns = 0, n = shm ? relaxed_load(&shm->nr_members) : 0;
	u64 here = (u64)(uintptr_t)&inside_member;
	struct vma v;
	int fd, ret;

	for (; n; n--) {
		if (relaxed_load(&shm->members[n - 1].pid) != pid)
			continue;
		/* Mostly it does not come to this. */
		if (!ns)
			ns = pid_ns();
		if (relaxed_load(&shm->members[n - 1].pid_ns) == ns)
			break;
	}
	if (!n)
		return false;
	fd = (int)sys_open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	ret = vma_query(fd, here, &v);
	sys_close(fd);
	return ret == -ENOENT || (ret == 0 && (v.start > here || !(v.prot & PROT_EXEC)));
}

/* ---- the constructor ---- */

static struct ps_config config;

/* For programs that are started without them (hook_exec.c). The program may write over its own. */
static void note_environment(char *const *envp, const char *value)
{
	const char *preload = ps_env(envp, "LD_PRELOAD"), *name = "libpswap-preload.so", *at, *end;

	ps_format(G.own_variable, sizeof(G.own_variable), "%s=%s", PS_ENV, value);
	at = preload ? strstr(preload, name) : NULL;
	if (!at)
		return;
	end = at + strlen(name);
	while (at > preload && at[-1] != ':' && at[-1] != ' ')
		at--;
	if ((size_t)(end - at) < sizeof(G.own_library))
		memcpy(G.own_library, at, (size_t)(end - at));
}

static const char *configure(char *const *envp)
{
	const char *value = ps_env(envp, PS_ENV), *why = NULL, *dir;
	char err[160];

	if (!value)
		return "no PSWAP variable";
	if (ps_config_parse(&config, value, &why))
		return why;
	if (config.limit_bytes < PS_LIMIT_MIN)
		return "no limit is given";
	G.limit = config.limit_bytes;
	G.count = config.count;
	G.verbose = config.verbose;
	G.envp = envp;
	for (unsigned i = 0; i < config.nr_stores; i++)
		if (store_spec_parse(config.stores[i], &G.specs[G.nr_specs++], err, sizeof(err)))
			return "a store cannot be understood";
	if (!G.nr_specs)
		return "no store is given";
	dir = ps_env(envp, "TMPDIR");
	if (!dir || !*dir || strlen(dir) >= sizeof(G.dir))
		dir = "/var/tmp";
	memcpy(G.dir, dir, strlen(dir) + 1);
	map_shm(config.shm_path);
	note_environment(envp, value);
	return NULL;
}

static unsigned count_cpus(void)
{
	unsigned long mask[16] = { 0 };
	long n = sys_call3(SYS_sched_getaffinity, 0, sizeof(mask), mask);
	unsigned cpus = 0;

	for (long i = 0; i < n / (long)sizeof(long); i++)
		cpus += __builtin_popcountl(mask[i]);
	return cpus;
}

/* Where libc keeps a thread's robust list, from its control block. */
static void robust_offset(void)
{
	u64 head = 0, len = 0, tcb;

	__asm__("mov %%fs:0x10, %0" : "=r"(tcb));
	if (sys_call3(SYS_get_robust_list, 0, &head, &len) == 0 && head > tcb && head - tcb < 4096)
		G.robust_offset = head - tcb;
}

__attribute__((constructor)) static void preload_init(int argc, char **argv, char **envp)
{
	struct hook_report report;
	const char *why;
	int reaper = 0;

	(void)argc, (void)argv;
	ps_log_to(preload_log);
	G.member = &G.own_member;
	why = configure(envp);
	if (why) {
		/* Only the library without `pswap run`: nothing to do, and no one to tell. */
		return;
	}
	/* The emulator's memory is the program's, and is looked after. */
	if (inside_member())
		return;
	member_enter();
	/* It survives exec. */
	if (sys_call2(SYS_prctl, 37 /* PR_GET_CHILD_SUBREAPER */, &reaper) == 0 && reaper)
		proc_note_reaper();
	atomic_store(&G.mode, MODE_COUNTING);
	if (under_valgrind()) {
		preload_off("valgrind runs it");
		return;
	}
	G.cpus = count_cpus();
	G.kernel = kernel_version();
	G.start_at = MAX(MiB(4), G.limit / 16);
	G.brk_now = (u64)sys_call1(SYS_brk, 0);
	robust_offset();
	G.fork_page = sys_mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			       -1, 0);
	if (sys_is_err((long)G.fork_page)) {
		preload_off("out of address space");
		return;
	}
	if (hooks_install(&report)) {
		preload_off(report.why);
		return;
	}
	adopt_boot();
	if (config.core)
		coredump_install();
}
