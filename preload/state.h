/* SPDX-License-Identifier: MIT */
/*
 * state.h - run mode: what the preloaded library keeps for a process.
 *
 *   main.c      constructor: configuration, patching, entering the tree
 *   hook.c      on the program's threads: what a memory call means for us
 *   hook_proc.c the same for threads, fork, exec
 *   proc.c      the engine process: starting it, its threads, its end
 *   control.c   in the engine: requests of hooks, arming
 *   watch.c     in the engine: has the program ended?  The guard
 *   adopt.c     which memory is taken over
 *   fork.c      both sides of a fork
 *   swapoff.c   everything back in, for a debugger or a core dump
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

#include "config.h"
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

#define KERNEL(major, minor) ((u32)((major) << 16 | (minor)))

#define MAX_EXCLUDED 4096
#define MAX_PINS 1024
#define MAX_BOOT 64
#define MAX_STORE_FDS 512

/*
 * A fork under way.  One at a time is prepared and copied, under fork_lock; but a call with
 * CLONE_VFORK goes on until its child is through, and by then others may have been made.
 */
#define MAX_FORK_CALLS 64

struct fork_call {
	_Atomic u64 key; /* the caller's frame; 0: free */
	u64 mask;	 /* its signal mask */
	u32 ticket;
	_Atomic u32 done;  /* the call has returned: 1 a child was made, 2 none */
	_Atomic u32 quiet; /* 1 until the engine goes on */
};

/*
 * Shared with the child, which says there that it has been made: from then on its copy of everything is
 * complete.  A parent's call may return much later.
 */
#define FORK_MARKS 512

struct fork_page {
	_Atomic u32 next; /* ticket; odd ones are of vforks */
	_Atomic u32 settled; /* children that need nothing of this one's engine any more */
	_Atomic u32 made[FORK_MARKS];
};

static inline bool fork_made(const struct fork_page *p, u32 ticket)
{
	return atomic_load(&p->made[ticket / 2 % FORK_MARKS]) == ticket;
}

enum request_op {
	REQ_NONE,
	REQ_ADD,      /* [a, b): new private anonymous memory; c: REGION_* */
	REQ_GUARD,    /* [a, b) becomes guards; c == 0: no longer */
	REQ_FLAGS,    /* [a, b): set c, clear d */
	REQ_PIN,      /* [a, b): bring in and keep */
	REQ_FORK,     /* a: flags, b: fork_calls[b]; everything quiet until it is made */
	REQ_REPLACED, /* the mapping at a took the place of others without an event */
	REQ_VMA_END,  /* end of the mapping at a, or minus the start of the next one, or 0 */
	REQ_OWN_UFFD, /* the program uses userfaultfd itself */
	REQ_THREADS,  /* how many threads the program has */
	REQ_UNBIND,   /* what follows must not see a thread bound to one CPU (handoff.c) */
	REQ_LOCK_ALL, /* c: mlockall (1) or munlockall (0) */
	REQ_SWAPOFF,  /* all of the program's memory in, and nothing out from now on */
};

/*
 * A request.  The hook fills it and touches its bell, a page that is registered as missing with a
 * userfaultfd of the engine's own: the fault carries the request over and lets the thread sleep
 * until the answer maps the page.  So a hook makes no system call that a seccomp filter of the
 * program could object to, and needs no lock, so that a signal handler may ask in the middle of
 * it.
 */
#define NR_REQUESTS 64

enum request_state { REQUEST_FREE, REQUEST_FILLING, REQUEST_ASKED, REQUEST_ANSWERED };

struct request {
	_Atomic u32 state;
	_Atomic u32 armed; /* the bell's page is missing */
	enum request_op op;
	u64 a, b, c, d;
	pid_t tid; /* of who asks, as the bell told */
	long ret;
	u64 answered_ns;
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
	char own_variable[PS_ENV_MAX + sizeof(PS_ENV)]; /* "PSWAP=..." */
	char own_library[512]; /* our path, as it stands in LD_PRELOAD; "" when not known */
	unsigned cpus;
	u32 kernel; /* KERNEL(major, minor) of the running one */

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

	/* requests from hooks to the engine, see control.c */
	struct request req[NR_REQUESTS];
	char *bells; /* a page for each request */
	int bell_uffd;
	u64 robust_offset; /* from a thread's control block to its robust list; 0: unknown */
	_Atomic u32 no_adopt; /* nothing new is taken over */
	_Atomic u32 filtered; /* the program installed a seccomp filter */

	/* fork */
	_Atomic u32 fork_lock; /* ticket of who forks or starts the engine; 0: nobody */
	struct fork_page *fork_page;
	struct fork_page *parent_page; /* until we are settled; or NULL */
	struct fork_call fork_calls[MAX_FORK_CALLS];
	u32 fork_ticket;	/* of the last one: in the child, its own */
	u64 fork_mask;		/* signal mask of the forking thread; for the child */
	bool fork_engine;	/* the engine was asked; for the child */
	int store_fds[MAX_STORE_FDS]; /* the parent engine's, for the child's to take over */
	int nr_store_fds[PS_MAX_STORES];
	int lent_fds[MAX_STORE_FDS]; /* the same in the program's table, for a child that may not ask */
	int nr_lent_fds;	     /* 0: none */
	bool lent_shared;	     /* parent and child have one table */
	int store_dir_fd[PS_MAX_STORES];
	pid_t parent_engine;
	u32 children; /* forks whose child takes descriptors from our engine */
	int parent_proc_fd;
	bool fork_foreign;	/* the child cannot have an engine of its own: ours serves it */

	/* the engine */
	_Atomic u32 ready; /* futex: 1 up, 2 failed */
	_Atomic u32 peers;     /* processes that share the program's memory were made */
	_Atomic u32 exec_seen; /* an execve is being made */
	_Atomic u32 ended;     /* the program has, all its threads */
	_Atomic u32 quit; /* the engine ends because the program has ended or become another */
	pid_t engine_pid;
	pid_t old_engine; /* of the program before exec: perhaps a zombie child of ours */
	bool has_reaper;  /* when there is no shared area: see ps_shm */
	int error;
	const char *step; /* of starting it, for the message */
	char why[200];
	struct pswap ps;
};

extern struct preload G;

/* proc.c: starts the engine process and waits until it is up (restart: in a fork's child, keeping
 * the memory state). All signals blocked. 0 or -errno. Safe in any state of the program. */
int proc_start(bool restart);
/* A process of the tree adopts orphans from now on. */
void proc_note_reaper(void);
int proc_spawn(struct pswap *ps, void (*fn)(struct ps_ctx *), struct ps_ctx *ctx);
/* clone() to fn(arg) on a new stack; nothing of libc. */
long raw_clone(unsigned long flags, void *stack_top, void (*fn)(void *), void *arg, void *tls);

/* control.c: the engine's first thread. */
void control_main(bool restart);

/* watch.c */
bool program_replaced(void); /* by an exec */
bool peer_left(void);	     /* another process shares the memory and goes on */
void program_gone(void);     /* ends the engine, when nobody needs it any more */
void watch_program(struct ps_ctx *ctx); /* a thread's body */
int watch_open(void);
int watch_start_guard(void);
long count_threads(void);
bool child_can_have_engine(pid_t tid);
int pidfd_open(pid_t pid);

/* adopt.c */
void adopt_boot(void);			   /* in the constructor: what must stay */
bool adopt_excluded(u64 start, u64 end);   /* is any of it never to be taken over? */
void adopt_exclude(u64 start, u64 end);	   /* general registers only */
void adopt_unexclude(u64 start, u64 end);  /* general registers only */
int adopt_add(struct ps_ctx *ctx, u64 start, u64 end, u32 flags);
void adopt_all(struct ps_ctx *ctx);	   /* arm */
unsigned adopt_more(struct ps_ctx *ctx);	   /* mappings that no hook saw; how many were new */
int adopt_reregister(void);		   /* in a fork's child: all regions with the new uffd */
void adopt_replaced(u64 addr);		   /* the mapping at addr has taken the place of others unseen */
void adopt_guards(struct ps_ctx *ctx, u64 start, u64 end); /* gate held exclusively */
int adopt_pin(struct ps_ctx *ctx, u64 start, u64 end);

/* fork.c */
void fork_child_state(void);
void fork_settled(bool known);
void fork_foreign(struct ps_mm *parent, int uffd);
bool fork_reap_foreign(struct pswap *ps);  /* ends served children that are gone; true: some are left */

/* main.c */
void member_enter(void);
void preload_log(const char *line, size_t len);
void preload_off(const char *why);

#endif
