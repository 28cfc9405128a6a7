/* SPDX-License-Identifier: MIT */
/*
 * bench.h - what the files of `pswap bench` share.
 *
 * One sample is one measurement of one side, made in a process forked for it, so that nothing of a
 * sample (heap, page tables, engine threads, swap slots) is there for the next.  The process gets
 * a struct bench_req and fills a struct bench_sample in shared memory; its parent waits for it.
 * Samples of pswap are forked by `pswap bench` itself, those of the kernel by a guardian
 * (bench_peer_guard.c), which also sets the machine up for them and puts it back.
 */
#ifndef BENCH_H
#define BENCH_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_PAGE     4096UL
#define BENCH_PMD      (2UL << 20)
#define BENCH_WHY      192
#define BENCH_MAX_SETS 12
#define BENCH_OBJECT   (4UL << 20) /* truncate */
#define BENCH_GROUP_MAX 64u	   /* truncate: objects of one process */
#define BENCH_COLUMN   23	   /* width of a column's name */

enum bench_kind {
	BENCH_MUNMAP,
	BENCH_PAGEOUT,
	BENCH_SCAN,
	BENCH_RANDOM,
	BENCH_TRUNCATE,
	BENCH_EXIT,
	BENCH_FORK,
	BENCH_NR
};
enum bench_fill {
	FILL_SAME,
	FILL_MIXED,
	FILL_RANDOM,
	FILL_NR
};
enum bench_side {
	SIDE_PSWAP,
	SIDE_PSWAP_ENTRY,    /* PSWAP_FREE=entry: slots freed one by one */
	SIDE_PSWAP_4K,	     /* PSWAP_MAP_NOHUGE */
	SIDE_PSWAP_RESIDENT, /* PSWAP_COUNT_RESIDENT */
	SIDE_PSWAP_EVERY,    /* truncate, PSWAP_DRAIN=every */
	SIDE_PSWAP_HUGE,     /* truncate, objects of huge pages */
	SIDE_PSWAP_HUGE_EVERY,
	SIDE_MEMFD,	     /* truncate: mapped and touched, then ftruncate */
	SIDE_MEMFD_UNMAPPED, /* the same, but unmapped before */
	SIDE_DRAIN_0,	     /* truncate: lru_add_drain alone */
	SIDE_DRAIN_1,	     /* while one thread adds folios */
	SIDE_DRAIN_8,
	SIDE_ZRAM_4K, /* from here on: sets that need the zram peer */
	SIDE_ZRAM_64K,
	SIDE_ZRAM_THP,
	SIDE_ZRAM_RESIDENT_4K, /* the cgroup's limit not lessened by pswap's pool */
	SIDE_ZRAM_RESIDENT_64K,
	SIDE_NR
};

struct bench_opts {
	uint64_t size;
	enum bench_fill fill;
	bool fill_given;
	unsigned rounds; /* 0: not given, the benchmark's default */
	bool peer_zram;
	bool json;
};

/* What was asked for. */
struct bench_args {
	struct bench_opts opts;
	bool kinds[BENCH_NR], all;
	const char *name;
};

struct bench_req {
	enum bench_kind kind;
	enum bench_fill fill;
	enum bench_side side;
	uint64_t size;
	uint64_t limit;	      /* scan and random: bytes allowed to this side; truncate: objects; fork: of
			       * pswap run */
	uint64_t seed;	      /* random: order of the accesses */
	const uint64_t *sums; /* scan: bench_page_sum of each page, in memory shared by fork */
	/* Filled in by the guardian. */
	char zram_sys[64];    /* "/sys/block/zramN" */
	char folio_stat[128]; /* the folio size's swpout counter; "" if it has none */
	char cgroup[256];     /* group to enter; "": none */
	bool cgroup_v2;
};

struct bench_sample {
	bool ok;
	double value;	 /* in the unit of the benchmark (bench_unit) */
	double returned; /* munmap, pswap: until the memory was back at the system; else 0 */
	uint64_t cpu_ns; /* of the whole process, engine threads included, during value */
	uint64_t swapped_pages;
	uint64_t pool_bytes; /* compressed bytes and their overhead, before the timed munmap */
	uint64_t pool_after_bytes; /* after it (pswap: after pswap_purge) */
	uint64_t metadata_bytes;
	uint64_t peak_pool_bytes;
	uint64_t peak_bytes; /* pswap: peak footprint; kernel: the cgroup's peak */
	uint64_t limit_bytes;
	double drains;	     /* truncate: lru_drains of one drop */
	uint64_t folios_out; /* kernel: folios of the set's size that were swapped out whole */
	uint64_t left[3];    /* pswap: slots, frames, segments two seconds after the unmap */
	uint64_t exit_ns;    /* exit: when the process was about to end */
	/* fork: ns until the child was waited for, one that ends at once and one that reads; bytes that
	 * the pair takes more than the parent alone, before and after the child has read */
	double fork_exit, fork_read, mem, mem_read;
	bool by_pss; /* these bytes are not a cgroup's */
	char why[BENCH_WHY]; /* !ok: the reason, one line */
};

struct bench_set {
	const char *name;
	enum bench_side side;
	bool dropped; /* this machine cannot do it */
	unsigned n;
	unsigned retried;	      /* samples that failed and were taken again */
	struct bench_sample *samples; /* one a round; truncate: one an object and round */
};

struct bench_result {
	enum bench_kind kind;
	const struct bench_opts *opts;
	unsigned n_sets;
	struct bench_set sets[BENCH_MAX_SETS];
	char zram_why[BENCH_WHY]; /* "": there is a peer */
	char zram_algorithm[32];
	char notes[BENCH_MAX_SETS][BENCH_WHY];
	unsigned n_notes;
};

/* bench.c */
extern volatile sig_atomic_t bench_stop; /* a signal that asks us to end came in */
const char *bench_kind_name(enum bench_kind kind);
const char *bench_fill_name(enum bench_fill fill);
const char *bench_unit(enum bench_kind kind);
enum bench_fill bench_used_fill(enum bench_kind kind, const struct bench_opts *o); /* asked for, or the default */
static inline bool bench_side_kernel(enum bench_side side)
{
	return side >= SIDE_ZRAM_4K;
}
static inline bool bench_limited(enum bench_kind kind)
{
	return kind == BENCH_SCAN || kind == BENCH_RANDOM;
}

static inline bool bench_side_drain(enum bench_side side)
{
	return side >= SIDE_DRAIN_0 && side <= SIDE_DRAIN_8;
}

/* bench_args.c */
void bench_parse(int argc, char **argv, struct bench_args *p);

/* bench_child.c */
typedef void bench_worker(const struct bench_req *req, struct bench_sample *s);
void bench_signals(void);
int bench_child(bench_worker *fn, const struct bench_req *req, struct bench_sample *shared,
		int hup_fd, volatile pid_t *pid_out);
void bench_child_ended(struct bench_sample *s, int status);
void *bench_shared(size_t size);
uint64_t bench_now(void);
uint64_t bench_cpu(void);
__attribute__((format(printf, 2, 3))) void bench_fail(struct bench_sample *s, const char *fmt, ...);

/* bench_fill.c */
void bench_fill_range(enum bench_fill fill, void *addr, uint64_t size);
uint64_t bench_word(enum bench_fill fill, uint64_t page, unsigned i);
uint64_t bench_page_sum(enum bench_fill fill, uint64_t page);
bool bench_scan_pass(const struct bench_req *req, const void *addr, struct bench_sample *s);
bool bench_random_pass(const struct bench_req *req, const void *addr, uint64_t n, uint64_t *state,
		       struct bench_sample *s);
uint64_t bench_timed_accesses(const struct bench_req *req);
bool bench_timed_passes(const struct bench_req *req, const void *addr, struct bench_sample *s);

/* bench_pswap.c, bench_kernel.c, bench_fork.c: the measured processes */
bench_worker bench_pswap_worker;
bench_worker bench_kernel_worker;
bench_worker bench_fork_worker;
static inline bench_worker *bench_worker_of(const struct bench_req *req)
{
	if (req->kind == BENCH_FORK)
		return bench_fork_worker;
	return bench_side_kernel(req->side) ? bench_kernel_worker : bench_pswap_worker;
}

/* bench_kernel.c: parts of it */
bool bench_enter_group(const struct bench_req *req, struct bench_sample *s);
uint64_t bench_group_bytes(const struct bench_req *req, bool peak);
uint64_t bench_zram_pool(const struct bench_req *req);
void *bench_map_filled(const struct bench_req *req, struct bench_sample *s);
bool bench_kernel_page_out(const struct bench_req *req, void *addr, struct bench_sample *s);

/* bench_fork.c: the program that `pswap bench fork` starts */
#define BENCH_FORK_PROGRAM "fork-program"
int bench_fork_program(int argc, char **argv);
uint64_t bench_fork_limit(uint64_t size);

/* bench_truncate.c */
unsigned bench_truncate_samples(const struct bench_opts *o);
int bench_truncate_run(struct bench_result *r, struct bench_req *req, char why[BENCH_WHY]);

/* bench_table.c: v is sorted where it says so, and always by bench_print_columns */
struct bench_column {
	const char *name;
	double *v;
	unsigned n; /* at least 1 */
};
void bench_sort(double *v, unsigned n);
double bench_mean(const double *v, unsigned n);
double bench_stddev(const double *v, unsigned n);
double bench_quantile(const double *sorted, unsigned n, double p);
double bench_t_two_sided(double t, double df);
double bench_difference(const double *a, unsigned na, const double *b, unsigned nb,
			unsigned percent);
/* The comparison table of two or three columns; the first is what the others are compared with. */
void bench_print_columns(struct bench_column *c, unsigned n, const char *unit);

/* bench_compare.c */
int cmd_bench_compare(int argc, char **argv);

/* bench_out.c */
struct bench_figures {
	double median, min, max, spread; /* spread: (max - min) / median */
};
int bench_print_json(const struct bench_opts *o, struct bench_result *const *res, unsigned n,
		     bool all);
void bench_print_table(const struct bench_result *r);
int bench_flush(void);

#endif
