/* SPDX-License-Identifier: MIT */
/*
 * run.c - pswap run: checks everything before anything is started, sets up the shared area and
 * the environment, and hands over to supervise.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "store_spec.h"

#define LIMIT_MOST  (1ULL << 47) /* the address space of a process */
#define FILE_FACTOR 8		 /* default size of the file store, in limits */

extern char **environ;

struct run_args {
	const char *memory, *stats;
	enum ps_count count;
	bool per_process, verbose;
	const char *core; /* NULL: auto */
	const char *stores[PS_MAX_STORES];
	unsigned nr_stores;
	char **cmd;
};

enum {
	OPT_COUNT = 0x100,
	OPT_PER_PROCESS,
	OPT_CORE
};

static const struct argp_option options[] = {
	{ "memory", 'm', "SIZE|auto", 0,
	  "limit of the whole process tree; auto (the default): the smallest cgroup limit up the "
	  "tree, or the machine's memory, less a tenth; at least 16M",
	  0 },
	{ "count", OPT_COUNT, "all|resident", 0,
	  "what the limit bounds: everything (the default), or resident pages only, as the kernel "
	  "does with zram",
	  0 },
	{ "store", 's', "STORE", 0,
	  "where pages go, in order of preference: ram[:codec=lz4|zstd[:LEVEL]][,max=SIZE], "
	  "file[:PATH][,size=SIZE][,encrypt=on|off]; default: ram, then a file in $TMPDIR or "
	  "/var/tmp",
	  0 },
	{ "per-process", OPT_PER_PROCESS, NULL, 0, "the limit is of each process", 0 },
	{ "stats", 'o', "FILE", 0, "write statistics as JSON when CMD has ended; -: standard error",
	  0 },
	{ "core", OPT_CORE, "auto|yes|no", 0,
	  "bring all memory in before a signal dumps core, so that the dump is complete; auto (the "
	  "default): when the limit of core files is not 0",
	  0 },
	{ "verbose", 'v', NULL, 0, "say what is done, and sum up at the end", 0 },
	{ 0 },
};

static error_t parse_arg(int key, char *arg, struct argp_state *state)
{
	struct run_args *a = state->input;

	switch (key) {
	case 'm':
		a->memory = arg;
		return 0;
	case OPT_COUNT:
		if (!strcmp(arg, "resident"))
			a->count = PS_COUNT_RESIDENT;
		else if (!strcmp(arg, "all"))
			a->count = PS_COUNT_ALL;
		else
			cli_fail("run: --count takes all or resident, not '%s'", arg);
		return 0;
	case 's':
		if (a->nr_stores == PS_MAX_STORES)
			cli_fail("run: --store can be given at most %d times", PS_MAX_STORES);
		a->stores[a->nr_stores++] = arg;
		return 0;
	case OPT_PER_PROCESS:
		a->per_process = true;
		return 0;
	case OPT_CORE:
		if (strcmp(arg, "auto") && strcmp(arg, "yes") && strcmp(arg, "no"))
			cli_fail("run: --core takes auto, yes or no, not '%s'", arg);
		a->core = arg;
		return 0;
	case 'o':
		a->stats = arg;
		return 0;
	case 'v':
		a->verbose = true;
		return 0;
	case ARGP_KEY_ARG:
		/* The rest is CMD's. */
		a->cmd = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static bool wants_core(const char *when)
{
	struct rlimit l;

	if (when && strcmp(when, "auto"))
		return !strcmp(when, "yes");
	return !getrlimit(RLIMIT_CORE, &l) && l.rlim_cur;
}

static u64 limit_of(const char *text, bool verbose)
{
	struct memory_limit l;
	u64 v = UINT64_MAX; /* what a size over 63 bits leaves */

	if (!text || !strcmp(text, "auto")) {
		limit_of_machine(&l);
		v = (l.bytes - l.bytes / 10) & PAGE_MASK;
		if (v < PS_LIMIT_MIN)
			cli_fail("run: the limit of %s (%s) less a tenth is under the least, 16M",
				 l.from, cli_size(l.bytes));
		if (verbose)
			cli_warn("limit %s: nine tenths of %s", cli_size(v), l.from);
		return v;
	}
	if (ps_parse_size(text, &v) == -EINVAL)
		cli_fail(
			"run: --memory takes a size (a number with K, M, G or T) or auto, not '%s'",
			text);
	if (v < PS_LIMIT_MIN)
		cli_fail("run: --memory takes at least 16M, not '%s'", text);
	if (v >= LIMIT_MOST)
		cli_fail("run: --memory takes less than the address space (128T), not '%s'", text);
	return v;
}

/* A directory, or a file that is to be made in one. */
static void check_place(const char *text, const char *path)
{
	char *copy = strdup(path);
	struct stat st;

	if (!copy)
		cli_fail("run: out of memory");
	if (stat(path, &st) || !S_ISDIR(st.st_mode))
		path = dirname(copy);
	if (access(path, W_OK | X_OK))
		cli_fail("run: --store '%s': %s: %s", text, path, strerror(errno));
	free(copy);
}

/* The specification with everything filled in that its defaults leave open. */
static const char *store_of(const char *text, u64 limit)
{
	static struct store_spec spec;
	char why[600], *full;
	const char *dir;

	if (store_spec_parse(text, &spec, why, sizeof(why)))
		cli_fail("run: --store: %s", why);
	if (spec.kind != STORE_FILE)
		return text;
	if (!*spec.path) {
		dir = limit_file_dir();
		if (!dir)
			cli_fail("run: --store '%s': neither $TMPDIR nor /var/tmp is a directory "
				 "on disk that can be written; give file:PATH",
				 text);
	} else {
		dir = spec.path;
		check_place(text, dir);
		if (limit_is_tmpfs(dir))
			cli_warn("run: --store '%s': that is in memory, so it does not help", text);
	}
	if (asprintf(&full, "file:%s,size=%llu,encrypt=%s", dir,
		     (unsigned long long)(spec.size_bytes ? spec.size_bytes : limit * FILE_FACTOR),
		     spec.encrypt ? "on" : "off") < 0)
		cli_fail("run: out of memory");
	return full;
}

static void default_stores(struct run_args *a)
{
	a->stores[a->nr_stores++] = "ram";
	if (limit_file_dir())
		a->stores[a->nr_stores++] = "file";
	else if (a->verbose)
		cli_warn("no file store: neither $TMPDIR nor /var/tmp is a directory on disk that "
			 "can be written");
}

/* The preloaded library: beside this program (build directory), or in ../lib/pswap (installed). */
static const char *preload_path(void)
{
	static char path[PATH_MAX];
	static const char *const places[] = { "libpswap-preload.so",
					      "../lib/pswap/libpswap-preload.so" };
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 40);
	char *end;

	if (n <= 0)
		cli_fail("run: cannot read /proc/self/exe: %s", strerror(errno));
	path[n] = 0;
	end = strrchr(path, '/') + 1;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		strcpy(end, places[i]);
		if (!access(path, R_OK)) {
			if (strpbrk(path, " :"))
				cli_fail("run: the path of the library, '%s', has a space or colon "
					 "in it, which LD_PRELOAD cannot hold",
					 path);
			return path;
		}
	}
	*end = 0;
	cli_fail("run: libpswap-preload.so is neither in %s nor in %s../lib/pswap", path, path);
}

#define ASAN "ASAN_OPTIONS="
#define ASAN_ORDER "verify_asan_link_order=0"

/* AddressSanitizer's runtime ends a program that has a library before it. (Such a program then runs
 * unswapped: the sanitizer has the system calls to itself.) */
static char *asan_options(void)
{
	const char *old = getenv("ASAN_OPTIONS");
	char *s;

	if (asprintf(&s, ASAN "%s%s" ASAN_ORDER, old ? old : "", old && *old ? ":" : "") < 0)
		cli_fail("run: out of memory");
	return s;
}

static char **envp_with(const struct ps_config *c, bool preload)
{
	static char value[PS_ENV_MAX + sizeof(PS_ENV)] = PS_ENV "=";
	const char *lib = preload ? preload_path() : NULL, *old = getenv("LD_PRELOAD");
	char **envp, *ld = NULL;
	size_t n = 0, out = 0;

	if (!preload)
		return environ;
	if (!ps_config_build(value + sizeof(PS_ENV), PS_ENV_MAX, c))
		cli_fail("run: the --store specifications are too long");
	/* In a tree that runs under another pswap, the library is there already. */
	if (old && strncmp(old, lib, strlen(lib)) == 0)
		old += strlen(lib);
	if (asprintf(&ld, "LD_PRELOAD=%s%s%s", lib, old && *old && !strchr(" :", *old) ? ":" : "",
		     old ? old : "") < 0)
		cli_fail("run: out of memory");
	while (environ[n])
		n++;
	envp = calloc(n + 4, sizeof(*envp));
	if (!envp)
		cli_fail("run: out of memory");
	for (size_t i = 0; i < n; i++) {
		if (strncmp(environ[i], PS_ENV "=", sizeof(PS_ENV)) &&
		    strncmp(environ[i], ASAN, sizeof(ASAN) - 1) &&
		    strncmp(environ[i], "LD_PRELOAD=", sizeof("LD_PRELOAD=") - 1))
			envp[out++] = environ[i];
	}
	envp[out++] = ld;
	envp[out++] = value;
	envp[out++] = asan_options();
	return envp;
}

static FILE *open_stats(const char *path)
{
	FILE *f;
	int fd;

	if (!path)
		return NULL;
	fd = strcmp(path, "-") ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
			       : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f)
		cli_fail("run: --stats takes a file that can be written, not '%s': %s", path,
			 strerror(errno));
	return f;
}

static void summary(const struct tree_stat *t)
{
	cli_warn("limit %s, peak footprint %s (pool at most %s); out %s, in %s, swapped at the end "
		 "%s; %llu faults, half within %.0f us",
		 cli_size(t->limit_bytes), cli_size(t->peak_footprint_bytes),
		 cli_size(t->peak_pool_bytes), cli_size(t->pages_out * PAGE_SIZE),
		 cli_size(t->pages_in * PAGE_SIZE), cli_size(t->swapped_pages * PAGE_SIZE),
		 (unsigned long long)t->faults, (double)stats_percentile(t, 50) / 1000);
}

static void find_cmd(const struct run_args *a, struct exe *x)
{
	int err = exe_find(a->cmd[0], x);

	if (!err)
		return;
	cli_warn("run: cannot execute '%s': %s", a->cmd[0], strerror(err));
	exit(err == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT);
}

/* Can CMD be swapped?  Ends with the cure when only the machine's settings are in the way. */
static bool can_preload(const struct exe *x, const char *cmd)
{
	const char *reason = exe_unswapped_reason(x);
	struct uffd_probe probe;
	char cure[400];

	uffd_probe(&probe);
	if (reason)
		cli_warn("run: '%s' %s", cmd, reason);
	if (probe.access >= UFFD_DEVICE)
		return !reason || x->kind == EXE_STATIC;
	if (reason)
		return false;
	uffd_cure(&probe, cure, sizeof(cure));
	cli_fail("run: %s", cure);
}

int cmd_run(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse_arg,
		.args_doc = "[--] CMD [ARG...]",
		.doc = "Runs CMD so that it and all it starts stay within a memory limit: what "
		       "does not fit is compressed in memory or written to a file, and comes back "
		       "when it is used.\vSIZE takes K, M, G, T (powers of 1024). The exit status "
		       "is CMD's; 125: pswap failed, 126: CMD cannot be executed, 127: CMD was not "
		       "found.",
	};
	static struct exe exe;
	static struct sampler sampler;
	static struct ps_config config;
	struct run_args a = { 0 };
	struct supervise s = { .exe = &exe, .sampler = &sampler };
	struct tree_stat t;
	char shm_path[64];
	FILE *stats;
	int fd, status, exit_status;
	bool preload;

	cli_parse(&argp, "run", argc, argv, true, &a);
	config.limit_bytes = limit_of(a.memory, a.verbose);
	if (!a.cmd)
		cli_fail("run: no CMD given; usage: pswap run [-m SIZE] [--] CMD [ARG...]");
	if (!a.nr_stores)
		default_stores(&a);
	config.nr_stores = a.nr_stores;
	for (unsigned i = 0; i < a.nr_stores; i++)
		config.stores[i] = store_of(a.stores[i], config.limit_bytes);
	config.count = a.count;
	config.per_process = a.per_process;
	config.verbose = a.verbose;
	config.core = wants_core(a.core);
	find_cmd(&a, &exe);
	preload = can_preload(&exe, a.cmd[0]);

	s.shm = shm_create(&fd);
	if (!s.shm)
		cli_fail("run: cannot make the shared area: %s", strerror(errno));
	s.shm->limit_bytes = config.limit_bytes;
	s.shm->count = config.count;
	s.shm->per_process = config.per_process;
	s.shm->verbose = config.verbose;
	s.shm->magic = PS_SHM_MAGIC;
	snprintf(shm_path, sizeof(shm_path), "/proc/%d/fd/%d", (int)getpid(), fd);
	config.shm_path = shm_path;
	s.argv = a.cmd;
	s.envp = envp_with(&config, preload);
	stats = open_stats(a.stats);

	status = supervise(&s, &exit_status);
	if (status < 0)
		return exit_status;
	stats_sum(&t, s.shm, &sampler);
	if (stats && (!stats_json(stats, s.shm, &t, &sampler) || fclose(stats)))
		cli_warn("run: cannot write the statistics to '%s': %s", a.stats, strerror(errno));
	if (a.verbose)
		summary(&t);
	supervise_end(status);
}
