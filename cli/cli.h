/* SPDX-License-Identifier: MIT */
/*
 * cli.h - what the files of the command line share.  The CLI is an ordinary program: it uses libc
 * freely; of the engine it uses the formats (config.h, stat.h, store_spec.h) and, for `bench`,
 * libpswap.
 */
#ifndef PS_CLI_H
#define PS_CLI_H

#include <argp.h>
#include <stdio.h>
#include <sys/types.h>

#include "config.h"

/* Exit statuses, as env(1) and nice(1) have them. */
#define EXIT_PSWAP     125 /* pswap itself failed */
#define EXIT_CANNOT    126 /* CMD was found but cannot be executed */
#define EXIT_NOT_FOUND 127 /* CMD was not found */

/* Subcommands. argv[0] is the subcommand's name; the return value is the exit status. */
int cmd_run(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_swapoff(int argc, char **argv);
int cmd_swapon(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

/*
 * args.c.  Parses like argp_parse, with two differences: anything wrong is one line on standard
 * error that names the option and what it takes, exit status 125; and parsing stops at the first
 * argument that is not an option when in_order is set.  `name` is the subcommand's ("run").  The
 * parser function reports a bad value with cli_fail().
 */
void cli_parse(const struct argp *argp, const char *name, int argc, char **argv, bool in_order,
	       void *input);
/* Prints "pswap: ", the message and a newline in one write, and exits with 125. */
_Noreturn void cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same without the exit. */
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A process id that was given to subcommand `name`; fails if it is none. */
pid_t cli_pid(const char *name, const char *text);
/* Bytes as a person writes them ("512M", "1.5G"), in a static buffer of which there are eight. */
const char *cli_size(u64 bytes);

/* limits.c */
struct memory_limit {
	u64 bytes;	/* the smallest limit, or the machine's memory */
	char from[256]; /* where it comes from, for people */
};
void limit_of_machine(struct memory_limit *l);
/* A directory for the file store, writable and not in memory: $TMPDIR, else /var/tmp, else NULL. */
const char *limit_file_dir(void);
bool limit_is_tmpfs(const char *path);

/* exe.c */
enum exe_kind {
	EXE_DYNAMIC, /* a dynamic program of this architecture, with glibc's loader */
	EXE_STATIC,  /* statically linked */
	EXE_SECURE,  /* set-user-id, set-group-id or file capabilities: LD_PRELOAD is ignored */
	EXE_FOREIGN, /* 32 bits, another architecture, or another loader than glibc's */
	EXE_UNKNOWN, /* not an ELF file; the kernel will know what to do */
};
struct exe {
	char path[4096];    /* what is executed */
	char program[4096]; /* what that is in the end, after following #! lines */
	enum exe_kind kind;
	bool needs_shell; /* a script without #!, to be run by /bin/sh */
};
/* Finds and inspects CMD as execvp would. 0, ENOENT, EACCES, or another errno. */
int exe_find(const char *cmd, struct exe *x);
/* A clause saying why CMD is not swapped and what to do, or NULL when it is. */
const char *exe_unswapped_reason(const struct exe *x);

/* probe.c */
enum uffd_access {
	UFFD_NONE,	/* not at all */
	UFFD_USER_ONLY, /* faults of the program's own code only: not enough for run mode */
	UFFD_DEVICE,	/* full, through /dev/userfaultfd */
	UFFD_SYSCALL,	/* full, through the system call */
};
struct uffd_probe {
	enum uffd_access access;
	bool event_fork; /* needs CAP_SYS_PTRACE */
	u64 features;	 /* UFFDIO_API's answer */
	u64 ioctls;
	bool move, poison, wp_async;	 /* features, by name */
	int error_syscall, error_device; /* errno of each way that failed */
};
void uffd_probe(struct uffd_probe *p);
/* One line, without newline: why run mode cannot work and the cure. */
void uffd_cure(const struct uffd_probe *p, char *buf, size_t size);

/* shm.c: the shared area of a tree */
struct ps_shm *shm_create(int *fd);
/* Finds the area of the tree that pid belongs to, to read or also to write. NULL with a reason in why. */
struct ps_shm *shm_of_pid(pid_t pid, bool write, char *why, size_t size);
/* Reads /proc/PID/stat to text. What follows the name in it, NULL if there is no such process. */
char *shm_stat(pid_t pid, char *text, size_t size);
/* Field 22 of /proc/PID/stat, 0 if there is no such process. comm may be NULL (16 bytes). */
u64 shm_starttime(pid_t pid, char *comm);
bool shm_member_alive(const struct ps_shm *shm, const struct ps_member *m);
/* Inode of the pid namespace of a process, 0 if it cannot be had; whether a member is of another one than
 * `pswap run`; its pid here, 0 if that is not known (yet). */
u32 shm_pid_ns(pid_t pid);
bool shm_is_inner(const struct ps_shm *shm, const struct ps_member *m);
u32 shm_member_pid(const struct ps_shm *shm, const struct ps_member *m);
/* Prints what engines have logged since *tail. */
void shm_drain_log(struct ps_shm *shm, u32 *tail);

/*
 * sample.c: the footprint of a tree as seen from outside.  Members with an engine publish their own
 * figures; for the others, and for processes that never joined (static ones, say), `pswap run`
 * looks.
 */
struct sample_proc {
	pid_t pid;
	u64 starttime;
	char comm[16];
	u64 footprint_bytes; /* last seen */
};
struct sampler {
	struct ps_shm *shm;
	pid_t root; /* CMD */
	u64 due_ns, interval_ns;
	unsigned nr_procs;
	struct sample_proc procs[256]; /* that never joined; later ones only enter the sums */
	u64 others_bytes;	       /* footprint of those, in the last round */
	/* starttime of members that had ended before the last round in which CMD was alive: their
	 * gauges say nothing about the end of the tree. */
	u64 gone[PS_SHM_MEMBERS];
	u64 told[64]; /* starttimes of processes of which was said that they run unswapped; 0 at the end */
	u8 unmet[PS_SHM_MEMBERS]; /* looks in which it was not found under a number of ours */
	bool tight;		  /* near the limit because of processes that nobody limits */
};
/* told: why CMD runs unswapped has been said. */
void sampler_init(struct sampler *s, struct ps_shm *shm, pid_t root, bool told);
/* Looks, if it is time; returns nanoseconds until it is time again. */
u64 sampler_poll(struct sampler *s);
/* A field in kB of a file of /proc, in bytes; 0 when it has none or the process is gone, `otherwise` if that is
 * not to be known. */
u64 sample_field(const char *path, const char *key, u64 otherwise);
/* The same of /proc/PID/FILE. */
u64 sample_kib(pid_t pid, const char *file, const char *key, u64 otherwise);

/* stats.c: sums over a tree */
struct tree_stat {
	u64 limit_bytes, footprint_bytes, peak_footprint_bytes, resident_bytes;
	u64 pool_bytes, peak_pool_bytes, metadata_bytes, swapped_pages;
#define X(name) u64 name;
	PS_COUNTERS(X)
#undef X
	u64 hist[PS_HIST_BUCKETS];
	unsigned nr_stores;
	struct {
		char name[24];
		u64 used_bytes, capacity_bytes, io_errors;
	} stores[PS_MAX_STORES];
};
/* Without a sampler gauges are those of living members; with one, those of the members that lived
 * when CMD was last seen alive. */
void stats_sum(struct tree_stat *t, struct ps_shm *shm, const struct sampler *s);
/* Nanoseconds within which `percent` of the faults were served. */
u64 stats_percentile(const struct tree_stat *t, unsigned percent);
/* Writes the JSON of DESIGN section 9. False on a write error. */
bool stats_json(FILE *f, struct ps_shm *shm, const struct tree_stat *t, const struct sampler *s);
void stats_prometheus(FILE *f, const struct tree_stat *t);

/* supervise.c: runs CMD and waits for it. */
struct supervise {
	const struct exe *exe;
	char **argv; /* CMD and its arguments */
	char **envp;
	struct ps_shm *shm;
	struct sampler *sampler;
	u32 log_tail;
};
/* Returns the wait status, or -1 with the exit status in *exit_status when CMD could not start. */
int supervise(struct supervise *s, int *exit_status);
/* Ends this process as status says CMD ended. */
_Noreturn void supervise_end(int status);

#endif
