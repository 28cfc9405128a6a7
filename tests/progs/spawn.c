/* SPDX-License-Identifier: MIT */
/*
 * spawn - vfork, posix_spawn, system, popen and exec from a process whose memory is swapped.
 *
 *     spawn vfork|posix_spawn|system|popen|clonevm|failing|wait
 *     spawn badenv                                    environments that cannot be read
 *     spawn exec|execthread|execenv [GENERATION]      the program becomes itself again
 *
 * failing: an exec that fails must leave the program as it was; wait: no children that the program
 * did not make.
 */
#include "pt.h"

#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;
static char *mem;
static const size_t size = 24 * PT_MIB;
static char self[4096];

static void step(u64 v)
{
	pt_verify(mem, size, v);
	pt_fill(mem, size, v + 1);
	pt_evict(mem, size);
}

static void do_vfork(void)
{
	for (volatile u64 v = 1; v < 4; v++) {
		volatile int seen = 0;
		pid_t pid = vfork();

		CHECK(pid >= 0);
		if (!pid) { /* borrows the address space: reads and writes swapped memory */
			seen = 1;
			for (size_t i = 0; i < 64; i++)
				pt_fill_page(mem + i * 60 * PT_PAGE, 900, i * 60);
			if (v == 1)
				execl("/nonexistent/program", "x", NULL);
			else
				execl("/bin/true", "true", NULL);
			_exit(v == 1 ? 0 : 1);
		}
		pt_reap(pid);
		CHECK(seen);
		for (size_t i = 0; i < 64; i++) {
			pt_verify_at(mem + i * 60 * PT_PAGE, PT_PAGE, 900, i * 60);
			pt_fill_page(mem + i * 60 * PT_PAGE, v, i * 60);
		}
		step(v);
	}
}

static void do_posix_spawn(void)
{
	char *argv[] = { "sh", "-c", "read x; test \"$x\" = 123 && echo spawned", NULL };

	for (u64 v = 1; v < 4; v++) {
		posix_spawn_file_actions_t fa;
		posix_spawnattr_t at;
		pid_t pid;
		int p[2];

		CHECK(pipe(p) == 0);
		PCHECK(posix_spawn_file_actions_init(&fa));
		PCHECK(posix_spawn_file_actions_adddup2(&fa, p[0], 0));
		PCHECK(posix_spawn_file_actions_addclosefrom_np(&fa, 3));
		PCHECK(posix_spawnattr_init(&at));
		PCHECK(posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP));
		PCHECK(posix_spawnp(&pid, "sh", &fa, &at, argv, environ));
		CHECK(write(p[1], "123\n", 4) == 4);
		pt_reap(pid);
		close(p[0]);
		close(p[1]);
		posix_spawn_file_actions_destroy(&fa);
		posix_spawnattr_destroy(&at);
		/* one that fails: the error comes back */
		char *none[] = { "none", NULL };
		CHECK(posix_spawn(&pid, "/nonexistent/none", NULL, NULL, none, environ) == ENOENT);
		step(v);
	}
}

static void do_system(void)
{
	for (u64 v = 1; v < 4; v++) {
		CHECK(system("echo from system; exit 3") == 3 << 8);
		CHECK(system(NULL) != 0);
		step(v);
	}
}

static void do_popen(void)
{
	static char buf[100000];

	for (u64 v = 1; v < 4; v++) {
		FILE *f = popen("head -c 90000 /dev/zero | tr '\\0' x", "r");
		size_t n;

		CHECK(f);
		n = fread(buf, 1, sizeof(buf), f);
		CHECKF(n == 90000, "%zu", n);
		for (size_t i = 0; i < n; i++)
			CHECK(buf[i] == 'x');
		CHECK(pclose(f) == 0);
		f = popen("cksum", "w"); /* swapped memory to a child's input */
		CHECK(f);
		CHECK(fwrite(mem, 1, size, f) == size);
		CHECK(pclose(f) == 0);
		step(v);
	}
}

/* A process that shares the memory (as vfork, but running at the same time). */
static _Atomic int shared_done;
static int shared_child(void *arg)
{
	pt_verify(mem, size, (uintptr_t)arg);
	pt_fill(mem, size, (uintptr_t)arg + 1);
	atomic_store(&shared_done, 1);
	return 0;
}

static void do_clonevm(void)
{
	char *stack = pt_map(PT_MIB);

	for (u64 v = 1; v < 4; v++) {
		pid_t pid;

		atomic_store(&shared_done, 0);
		pid = clone(shared_child, stack + PT_MIB, CLONE_VM | SIGCHLD, (void *)v);
		CHECK(pid > 0);
		pt_press();
		pt_reap(pid);
		CHECK(atomic_load(&shared_done));
		pt_verify(mem, size, v + 1);
		pt_fill(mem, size, v);
		step(v);
	}
}

static void do_failing(void)
{
	char *argv[] = { "x", NULL }, *huge[] = { "x", NULL, NULL };
	char dir[] = "/tmp/pt-spawn-XXXXXX", path[100];
	FILE *f;

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/text", dir);
	f = fopen(path, "w");
	CHECK(f && fputs("this is no program\n", f) >= 0 && fclose(f) == 0);
	for (u64 v = 1; v < 4; v++) {
		CHECK(execv("/nonexistent/x", argv) == -1 && errno == ENOENT);
		CHECK(execv("/etc/passwd", argv) == -1 && errno == EACCES);
		pt_verify(mem, size, v);
		chmod(path, 0755);
		CHECK(execve(path, argv, environ) == -1 && errno == ENOEXEC);
		huge[1] = malloc(8 << 20);
		memset(huge[1], 'y', (8 << 20) - 1);
		huge[1][(8 << 20) - 1] = 0;
		CHECK(execve("/bin/true", huge, environ) == -1 && errno == E2BIG);
		free(huge[1]);
		CHECK(syscall(SYS_execveat, -1, "", argv, environ, 0x1000) == -1);
		CHECK(pt_sys6(SYS_execve, (long)"/nonexistent/y", (long)argv, (long)environ, 0, 0,
			      0) == -ENOENT);
		step(v);
	}
	unlink(path);
	rmdir(dir);
}

static volatile sig_atomic_t got_chld;
static void on_chld(int sig)
{
	(void)sig;
	got_chld++;
}

static void do_wait(void)
{
	struct rusage ru;
	siginfo_t si;
	int st;

	signal(SIGCHLD, on_chld);
	for (u64 v = 1; v < 3; v++) {
		CHECK(waitpid(-1, &st, WNOHANG) == -1 && errno == ECHILD);
		CHECK(waitpid(-1, &st, WNOHANG | __WALL) == -1 && errno == ECHILD);
		CHECK(waitpid(-1, &st, __WCLONE) == -1 && errno == ECHILD);
		CHECK(waitid(P_ALL, 0, &si, WEXITED | WSTOPPED | WNOHANG) == -1 && errno == ECHILD);
		CHECK(wait4(-1, &st, 0, &ru) == -1 && errno == ECHILD);
		CHECK(waitpid(0, &st, 0) == -1 && errno == ECHILD);
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid)
			_exit(9);
		CHECK(wait(&st) == pid && WEXITSTATUS(st) == 9);
		CHECK(wait(&st) == -1 && errno == ECHILD);
		CHECKF(got_chld == (int)v, "%d SIGCHLD", (int)got_chld);
		step(v);
	}
	/* a signal to the whole group must not hurt what serves the memory */
	setpgid(0, 0);
	signal(SIGUSR1, on_chld);
	signal(SIGHUP, on_chld);
	signal(SIGTERM, on_chld);
	got_chld = 0;
	CHECK(kill(0, SIGUSR1) == 0);
	CHECK(kill(0, SIGHUP) == 0);
	CHECK(kill(-getpgrp(), SIGTERM) == 0);
	CHECK(got_chld == 3);
	pt_verify(mem, size, 3);
	step(3);
}

static void *exec_thread(void *arg)
{
	char **argv = arg;

	if (!strcmp(argv[1], "execenv")) { /* an environment of its own */
		char press[50], *env[] = { "A=b", press, NULL };

		snprintf(press, sizeof(press), "PT_PRESS=%zu", pt_press_bytes() / PT_MIB);
		execve(self, argv, env);
	} else {
		execv(self, argv);
	}
	DIE("exec");
}

static void *busy(void *arg)
{
	struct pt_churn c = { .bytes = 8 * PT_MIB, .tag = (uintptr_t)arg * 1000 };

	return pt_churn_main(&c);
}

/* Environments that cannot be read are the kernel's to refuse; one whose last byte is the last of a page can. */
static int bad_environments(void)
{
	char *page = pt_map(2 * PT_PAGE), *last = page + PT_PAGE - 6;
	char *args[] = { "true", NULL }, *wild[] = { (char *)16, NULL }, *edge[] = { last, NULL };
	char **bad[] = { (char **)8, (char **)-16L, wild, edge };

	CHECK(mprotect(page + PT_PAGE, PT_PAGE, PROT_NONE) == 0);
	memcpy(last, "A=bcde", 6);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECKF(execve("/bin/true", args, bad[i]) == -1 && errno == EFAULT, "%zu", i);
	last[5] = 0;
	printf("refused\n");
	fflush(stdout);
	execve("/bin/true", args, edge);
	DIE("exec");
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "vfork";
	int generation = argc > 2 ? atoi(argv[2]) : 0;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	CHECK(n > 0);
	self[n] = 0;
	if (!strcmp(how, "badenv"))
		return bad_environments();
	setvbuf(stdout, NULL, _IONBF, 0);
	mem = pt_map(size);
	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	if (!strcmp(how, "vfork")) {
		do_vfork();
	} else if (!strcmp(how, "posix_spawn")) {
		do_posix_spawn();
	} else if (!strcmp(how, "system")) {
		do_system();
	} else if (!strcmp(how, "popen")) {
		do_popen();
	} else if (!strcmp(how, "clonevm")) {
		do_clonevm();
	} else if (!strcmp(how, "failing")) {
		do_failing();
	} else if (!strcmp(how, "wait")) {
		do_wait();
	} else if (!strncmp(how, "exec", 4)) {
		char gen[20];
		char *av[] = { self, (char *)how, gen, NULL };
		pthread_t th;

		pt_verify(mem, size, 1);
		pt_say("generation %d", generation);
		if (generation < 3) {
			snprintf(gen, sizeof(gen), "%d", generation + 1);
			if (!strcmp(how, "execthread")) { /* others busy, main waits for them */
				for (uintptr_t i = 0; i < 3; i++)
					PCHECK(pthread_create(&th, NULL, busy, (void *)i));
				usleep(50000);
				PCHECK(pthread_create(&th, NULL, exec_thread, av));
				PCHECK(pthread_join(th, NULL));
			}
			exec_thread(av);
		}
	} else {
		return 2;
	}
	pt_say("spawn %s done", how);
	return 0;
}
