/* SPDX-License-Identifier: MIT */
/*
 * state.h - run mode: what the preloaded library keeps for a process.
 *
 *   main.c      constructor: configuration, patching, entering the tree
 *   hook.c      on the program's threads: what a system call means for us
 *   proc.c      the engine process: starting it, its threads, its end
 *   control.c   in the engine: requests of hooks, arming, watching the program
 *   adopt.c     which memory is taken over
 *   fork.c      both sides of a fork
 *
 * Life of a process:
 *
 *   COUNTING --memory may grow near the limit--> ENGINE --memory is used--> ARMED
 *
 * COUNTING costs 15 ns for each memory call.  ENGINE: the engine process exists and watches how much
 * is used.  ARMED: memory is registered with the userfaultfd, and may be taken out.
 */
#ifndef PS_PRELOAD_STATE_H
#define PS_PRELOAD_STATE_H

#include "store_spec.h"
#include "types.h"

enum preload_mode {
	MODE_OFF,      /* not swapped: everything goes straight through */
	MODE_COUNTING, /* no engine yet */
	MODE_STARTING, /* a thread is starting it */
	MODE_ENGINE,
	MODE_ARMED,
};

struct addr_range {
	_Atomic u64 start, end; /* start == 0: free */
};

#define MAX_EXCLUDED 4096
#define MAX_PINS 1024
#define MAX_BOOT 64

enum request_op {
	REQ_NONE,
	REQ_ADD,      /* [a, b): new private anonymous memory; c: REGION_* */
	REQ_DROP,     /* [a, b): forget contents (no event will tell) */
	REQ_GUARD,    /* [a, b) becomes guards; c == 0: no longer */
	REQ_FLAGS,    /* [a, b): set c, clear d */
	REQ_PIN,      /* [a, b): bring in and keep */
	REQ_BRING_IN, /* [a, b): bring in */
	REQ_FORK,     /* everything quiet, until fork_done */
	REQ_LOCK_ALL, /* c: mlockall (1) or munlockall (0) */
};

struct preload {
	_Atomic u32 mode;
	u32 generation; /* forks since the program began */
	pid_t pid;
	bool no_events_fork;

	/* configuration */
	u64 limit;
	enum ps_count count;
	bool verbose;
	struct ps_shm *shm;
	struct ps_member *member;
	struct ps_member own_member; /* when there is no shared area */
	struct store_spec specs[PS_MAX_STORES];
	unsigned nr_specs;
	char dir[256];
	char *const *envp;
	unsigned cpus;

	/* what may become resident: private writable memory, bytes */
	_Atomic s64 vm_bytes;
	u64 start_at; /* vm_bytes at which the engine is started */
	_Atomic u64 brk_now;

	/* memory that is never taken over */
	struct {
		u64 start, end;
	} boot[MAX_BOOT]; /* anonymous mappings from before the program */
	unsigned nr_boot;
	u64 bss_start, bss_end; /* of the main program: the exception */
	struct addr_range excluded[MAX_EXCLUDED]; /* thread stacks, memory mapped by ld.so */
	_Atomic u32 nr_excluded;		  /* high-water mark */
	_Atomic u32 too_many_excluded;
	_Atomic u32 special_flags; /* mlock, WIPEONFORK or DONTFORK were used before arming */
	struct addr_range pins[MAX_PINS];
	_Atomic u32 nr_pins;

	/* requests from hooks to the engine: one at a time */
	_Atomic u32 req_lock; /* 0, 1, 2 as a futex mutex */
	_Atomic u32 req_state; /* futex: 0 idle, 1 asked, 2 answered */
	enum request_op req_op;
	u64 req_a, req_b, req_c, req_d;
	long req_ret;

	/* fork */
	_Atomic u32 fork_lock;
	u64 fork_mask;		/* signal mask of the forking thread */
	_Atomic u32 fork_done;	/* futex: the clone call is over */
	_Atomic u32 fork_state; /* futex: 1 while the engine is quiet */
	bool fork_engine;	/* the engine was asked */

	/* the engine */
	_Atomic u32 ready; /* futex: 1 up, 2 failed */
	_Atomic u32 exec_seen; /* an execve is being made */
	_Atomic u32 quit; /* the engine ends because the program has ended or become another */
	pid_t engine_pid;
	int error;
	char why[200];
	struct pswap ps;
};

extern struct preload G;

/* proc.c: starts the engine process and waits until it is up (restart: in a fork's child, keeping
 * the memory state). All signals blocked. 0 or -errno. Safe in any state of the program. */
int proc_start(bool restart);
int proc_spawn(struct pswap *ps, void (*fn)(struct ps_ctx *), struct ps_ctx *ctx);

/* control.c: the engine's first thread. */
void control_main(bool restart);

/* adopt.c */
void adopt_boot(void);			   /* in the constructor: what must stay */
bool adopt_excluded(u64 start, u64 end);   /* is any of it never to be taken over? */
void adopt_exclude(u64 start, u64 end);	   /* general registers only */
void adopt_unexclude(u64 start, u64 end);  /* general registers only */
int adopt_add(struct ps_ctx *ctx, u64 start, u64 end, u32 flags);
void adopt_all(struct ps_ctx *ctx);	   /* arm */
unsigned adopt_more(struct ps_ctx *ctx);	   /* mappings that no hook saw; how many were new */
void adopt_rescan(struct ps_ctx *ctx);	   /* what became resident behind our back */
int adopt_reregister(void);		   /* in a fork's child: all regions with the new uffd */
int adopt_pin(struct ps_ctx *ctx, u64 start, u64 end);

/* fork.c */
void fork_child_state(void);
void fork_foreign(struct ps_mm *parent, int uffd);
bool fork_reap_foreign(struct pswap *ps);  /* ends served children that are gone; true: some are left */

/* main.c */
void member_enter(void);
void preload_log(const char *line, size_t len);
void preload_off(const char *why);

#endif
