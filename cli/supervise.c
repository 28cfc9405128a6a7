/* SPDX-License-Identifier: MIT */
/*
 * supervise.c - runs CMD as a child as if this process were CMD itself.
 *
 * The child is in the same process group, so that it has the terminal, and whatever the terminal
 * sends to the group reaches it by itself.  A signal that is sent to this process alone is passed
 * on. Which of the two happened the kernel does not tell: siginfo is the same for kill(pid) and
 * kill(-pgid).  So a third process, the *ear*, sits in the group and does nothing but hear: what
 * it hears was sent to all, and the child has it already.  When the child stops, so do we, and then
 * the ear watches for what only the child is told: to go on.
 *
 * All signals are blocked here and read from a signalfd; no disposition but SIGCHLD's is changed,
 * so the child inherits what we were given.
 */
#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli.h"
#include "sys.h"

#define POLL_MOST    50000000ULL /* ns between looks at the log */
#define EAR_PATIENCE 3		 /* ms until a signal counts as not heard by the ear */
#define EAR_SLOWEST  1000	 /* ms until a pending one must have been */
#define NR_SIGNALS   65
#define STOPPED_NS   50000000 /* between looks at a stopped child */

struct ear {
	pid_t pid;
	_Atomic u32 *heard; /* counts by signal number, in shared memory; [0]: the child, while it and we
			     * are stopped */
	u32 known[NR_SIGNALS];
};

/* The state and the parent of a process; 0: there is none. */
static char proc_state(pid_t pid, int *parent)
{
	char text[512], state = 0, *rest = shm_stat(pid, text, sizeof(text));

	return rest && sscanf(rest, " %c %d", &state, parent) == 2 ? state : 0;
}

static bool is_stopped(pid_t pid)
{
	int parent;
	char state = proc_state(pid, &parent);

	return state == 'T' || state == 't';
}

static _Noreturn void ear_main(_Atomic u32 *heard, pid_t parent)
{
	sigset_t all;

	prctl(PR_SET_NAME, "pswap-ear");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	/* Not to keep a pipe or a terminal open that somebody waits for the end of. */
	close_range(0, ~0U, 0);
	sigfillset(&all);
	for (;;) {
		const struct timespec while_stopped = { .tv_nsec = STOPPED_NS };
		pid_t child = (pid_t)atomic_load(&heard[0]);
		siginfo_t si;
		int sig;

		if (child && !is_stopped(child))
			kill(parent, SIGCONT);
		sig = child ? sigtimedwait(&all, &si, &while_stopped) : sigwaitinfo(&all, &si);
		/* Our parent wakes us with SIGCONT: not sent to the group. */
		if (sig > 0 && sig < NR_SIGNALS && si.si_pid != parent)
			atomic_fetch_add(&heard[sig], 1);
	}
}

static void ear_start(struct ear *ear)
{
	pid_t self = getpid();

	ear->pid = -1;
	ear->heard = mmap(NULL, NR_SIGNALS * sizeof(u32), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ear->heard == MAP_FAILED)
		return;
	ear->pid = fork();
	if (!ear->pid)
		ear_main(ear->heard, self);
}

/* Tells when `child` goes on after a stop; 0: no more. */
static void ear_watch(struct ear *ear, pid_t child)
{
	if (ear->pid <= 0)
		return;
	atomic_store(&ear->heard[0], (u32)child);
	if (child)
		kill(ear->pid, SIGCONT); /* to look at it */
}

static void ear_stop(struct ear *ear)
{
	if (ear->pid > 0) {
		kill(ear->pid, SIGKILL);
		waitpid(ear->pid, NULL, 0);
	}
}

/* Is the signal waiting to be heard? */
static bool ear_pending(const struct ear *ear, int sig)
{
	char path[64], line[128];
	unsigned long long mask = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)ear->pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "ShdPnd: %llx", &mask) == 1)
			break;
	}
	if (f)
		fclose(f);
	return mask >> (sig - 1) & 1;
}

/* Was the signal that we just got sent to the whole group?  The kernel gives it to all before
 * any of them can do something else, so the ear has it by now, pending or heard. */
static bool ear_heard(struct ear *ear, int sig)
{
	int patience = EAR_PATIENCE;

	for (int ms = 0; ear->pid > 0 && ms < patience; ms++) {
		u32 n = atomic_load(&ear->heard[sig]);

		if (n != ear->known[sig]) {
			/* Only real-time signals queue. */
			ear->known[sig] = sig >= SIGRTMIN ? ear->known[sig] + 1 : n;
			return true;
		}
		if (patience == EAR_PATIENCE && ear_pending(ear, sig))
			patience = EAR_SLOWEST;
		sys_sleep_ns(1000000);
	}
	return false;
}

/* What we were given and CMD is to be given. */
struct inherited {
	sigset_t mask;
	struct sigaction sigchld; /* ignored, wait would not tell us anything */
};

struct child {
	pid_t pid;
	bool ended;
	int status;
	u64 max_rss_bytes;
};

/* In the child: never returns. Failures go to the parent through fd as an errno. */
static _Noreturn void child_exec(const struct supervise *s, const struct inherited *in,
				 pid_t parent, int fd)
{
	int err;

	/* Who kills this process for good means CMD: it must not go on alone. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_PSWAP);
	sigaction(SIGCHLD, &in->sigchld, NULL);
	sigprocmask(SIG_SETMASK, &in->mask, NULL);
	if (!s->exe->needs_shell)
		execve(s->exe->path, s->argv, s->envp);
	err = errno;
	if (s->exe->needs_shell || err == ENOEXEC) {
		unsigned n = 0;
		char **argv;

		while (s->argv[n])
			n++;
		argv = calloc(n + 2, sizeof(*argv));
		if (argv) {
			argv[0] = (char *)_PATH_BSHELL;
			argv[1] = (char *)s->exe->path;
			memcpy(argv + 2, s->argv + 1, n * sizeof(*argv));
			execve(_PATH_BSHELL, argv, s->envp);
		}
		err = errno;
	}
	if (write(fd, &err, sizeof(err)) < 0)
		_exit(EXIT_PSWAP);
	_exit(EXIT_CANNOT);
}

/* 0, or the errno of execve. */
static int child_start(const struct supervise *s, const struct inherited *in, struct child *c)
{
	int pipe_fd[2], err = 0;
	pid_t self = getpid();
	ssize_t n;

	if (pipe2(pipe_fd, O_CLOEXEC))
		cli_fail("run: cannot make a pipe: %s", strerror(errno));
	c->pid = fork();
	if (c->pid < 0)
		cli_fail("run: cannot fork: %s", strerror(errno));
	if (!c->pid)
		child_exec(s, in, self, pipe_fd[1]);
	close(pipe_fd[1]);
	do
		n = read(pipe_fd[0], &err, sizeof(err));
	while (n < 0 && errno == EINTR);
	close(pipe_fd[0]);
	if (n != sizeof(err))
		return 0;
	waitpid(c->pid, NULL, 0);
	return err;
}

/* Stops as the child stopped, so that the shell sees the job stop. */
static void stop_self(int sig)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL }, old;
	sigset_t one;

	sigemptyset(&one);
	sigaddset(&one, sig);
	if (sig == SIGSTOP) {
		kill(getpid(), SIGSTOP);
		return;
	}
	sigaction(sig, &dfl, &old);
	kill(getpid(), sig);
	sigprocmask(SIG_UNBLOCK, &one, NULL); /* stops here until SIGCONT */
	sigprocmask(SIG_BLOCK, &one, NULL);
	sigaction(sig, &old, NULL);
}

/* Takes the state changes of all children: as process 1 of a container, or with children that a
 * shell had before it exec'ed us, there are others than ours. */
static void reap(struct child *c, struct ear *ear)
{
	struct rusage ru;
	int status;
	pid_t pid;

	while ((pid = wait4(-1, &status, WNOHANG | WUNTRACED, &ru)) > 0) {
		if (pid != c->pid)
			continue;
		if (WIFSTOPPED(status)) {
			ear_watch(ear, c->pid);
			stop_self(WSTOPSIG(status));
			ear_watch(ear, 0);
			continue;
		}
		c->ended = true;
		c->status = status;
		c->max_rss_bytes = KiB((u64)ru.ru_maxrss);
	}
}

/* Is pid the child or below it? */
static bool in_tree(pid_t pid, pid_t child)
{
	for (int depth = 0; pid > 1 && depth < 64; depth++) {
		int parent = 0;

		if (pid == child)
			return true;
		if (!proc_state(pid, &parent))
			return false;
		pid = parent;
	}
	return false;
}

static void pass_on(struct child *c, struct ear *ear, const struct signalfd_siginfo *si)
{
	int sig = (int)si->ssi_signo;

	if (sig == SIGCHLD || ear_heard(ear, sig))
		return;
	if (si->ssi_code > 0) {
		/* From the kernel and not to the group: our own (SIGPIPE), except that a hang-up of
		 * the terminal is told to the leader of the session alone. */
		if ((sig == SIGHUP || sig == SIGCONT) && getsid(0) == getpid())
			kill(c->pid, sig);
		return;
	}
	/* CMD that signals its parent did not mean itself, and the ear meant us. */
	if ((pid_t)si->ssi_pid == ear->pid)
		return;
	if (in_tree((pid_t)si->ssi_pid, c->pid))
		return;
	if (sig == SIGCONT && ear->pid > 0)
		kill(ear->pid, SIGCONT);
	if (si->ssi_code == SI_QUEUE)
		sigqueue(c->pid, sig, (union sigval){ .sival_ptr = (void *)si->ssi_ptr });
	else
		kill(c->pid, sig);
}

/* Whoever waits for the end of CMD's input or output must not wait for ours. Standard error stays:
 * what engines log goes there. */
static void let_go_of_stdio(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return;
	dup2(fd, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

/* What came before there was a child: to the group or not, the child does not have it. */
static void pass_on_early(struct child *c, struct ear *ear, const struct signalfd_siginfo *si, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int sig = (int)si[i].ssi_signo;

		if (sig == SIGCHLD)
			continue;
		ear_heard(ear, sig); /* it is accounted for */
		kill(c->pid, sig);
	}
}

static void watch(struct supervise *s, struct child *c, struct ear *ear, int sigfd)
{
	struct pollfd pfd = { .fd = sigfd, .events = POLLIN };
	struct signalfd_siginfo si[8];

	while (!c->ended) {
		u64 ns = MIN(sampler_poll(s->sampler), POLL_MOST);
		struct timespec ts = { 0, (long)ns };

		shm_drain_log(s->shm, &s->log_tail);
		if (ppoll(&pfd, 1, &ts, NULL) > 0) {
			ssize_t n = read(sigfd, si, sizeof(si));

			for (ssize_t i = 0; i < n / (ssize_t)sizeof(si[0]); i++)
				pass_on(c, ear, &si[i]);
		}
		reap(c, ear);
	}
}

int supervise(struct supervise *s, int *exit_status)
{
	struct child c = { 0 };
	struct ear ear = { 0 };
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	struct inherited in;
	sigset_t all;
	struct signalfd_siginfo early[8];
	ssize_t nr_early;
	int sigfd, err;

	sigfillset(&all);
	/* A fault of our own must not be held back. */
	for (const int *f =
		     (const int[]){ SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, 0 };
	     *f; f++)
		sigdelset(&all, *f);
	sigprocmask(SIG_BLOCK, &all, &in.mask);
	sigaction(SIGCHLD, &dfl, &in.sigchld);
	sigfd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	if (sigfd < 0)
		cli_fail("run: cannot make a signalfd: %s", strerror(errno));
	ear_start(&ear);
	nr_early = read(sigfd, early, sizeof(early));
	err = child_start(s, &in, &c);
	if (err) {
		ear_stop(&ear);
		cli_warn("run: cannot execute '%s': %s", s->argv[0], strerror(err));
		*exit_status = err == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT;
		return -1;
	}
	pass_on_early(&c, &ear, early, nr_early > 0 ? (unsigned)nr_early / sizeof(early[0]) : 0);
	let_go_of_stdio();
	sampler_init(s->sampler, s->shm, c.pid, exe_unswapped_reason(s->exe) != NULL);
	watch(s, &c, &ear, sigfd);
	ear_stop(&ear);
	close(sigfd);
	shm_drain_log(s->shm, &s->log_tail);
	/* Too short to be seen. */
	if (!relaxed_load(&s->shm->peak_footprint_bytes))
		stat_peak(&s->shm->peak_footprint_bytes, c.max_rss_bytes);
	return c.status;
}

void supervise_end(int status)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	struct rlimit none = { 0, 0 };
	sigset_t one;
	int sig;

	if (!WIFSIGNALED(status))
		exit(WEXITSTATUS(status));
	fflush(NULL);
	sig = WTERMSIG(status);
	/* The core that matters is CMD's. */
	setrlimit(RLIMIT_CORE, &none);
	prctl(PR_SET_DUMPABLE, 0);
	sigaction(sig, &dfl, NULL);
	sigemptyset(&one);
	sigaddset(&one, sig);
	kill(getpid(), sig);
	sigprocmask(SIG_UNBLOCK, &one, NULL);
	/* Still here: process 1, or a signal that does not kill. */
	_exit(128 + sig);
}
