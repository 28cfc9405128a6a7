/* SPDX-License-Identifier: MIT */
/*
 * unshare - unshare and setns give what they give natively (CLONE_NEWUSER, CLONE_VM and others fail
 * in a process with more than one thread or a shared address space), and memory goes on working
 * where /proc, the descriptors or the root directory are no longer what they were.
 *
 *     unshare newuser|newns|vm|setns|chroot|newpid|files|misc
 */
#include "pt.h"

#include <sched.h>
#include <sys/mount.h>

static char *mem;
static const size_t size = 24 * PT_MIB;

static void result(const char *what, int r)
{
	int e = errno;

	pt_say("%s: %d %s", what, r, r ? strerror(e) : "");
}

#define TRY(call) result(#call, call)

static void go_on(u64 tag)
{
	pt_verify(mem, size, tag);
	pt_fill(mem, size, tag + 1);
	pt_evict(mem, size);
	pt_verify(mem, size, tag + 1);
}

static int try_mask(const char *what, int mask)
{
	int r = unshare(mask);

	result(what, r);
	return r;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "newuser";
	pid_t pid;
	int fd;

	mem = pt_map(size);
	pt_fill(mem, size, 1);
	pt_evict(mem, size);
	if (!strcmp(how, "newuser")) {
		TRY(unshare(CLONE_NEWUSER | CLONE_NEWNS));
		go_on(1);
		pt_say("uid %d", getuid());
		TRY(unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS));
		go_on(2);
	} else if (!strcmp(how, "newns")) {
		TRY(unshare(CLONE_NEWNS));
		TRY(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
		TRY(umount2("/proc", MNT_DETACH)); /* no /proc from here on */
		fd = open("/proc/self/maps", O_RDONLY);
		result("open", fd < 0 ? -1 : 0);
		go_on(1);
		TRY(mount("none", "/tmp", "tmpfs", 0, NULL));
		TRY(mount("none", "/var/tmp", "tmpfs", 0, NULL));
		go_on(2);
	} else if (!strcmp(how, "vm")) {
		try_mask("CLONE_VM", CLONE_VM);
		try_mask("CLONE_SIGHAND|CLONE_VM", CLONE_SIGHAND | CLONE_VM);
		try_mask("CLONE_THREAD", CLONE_THREAD | CLONE_SIGHAND | CLONE_VM);
		go_on(1);
	} else if (!strcmp(how, "setns")) {
		/* a child's user namespace: joining wants a single-threaded caller with its own fs
		 */
		int p[2], q[2];
		char path[64], c = 0;

		CHECK(pipe(p) == 0 && pipe(q) == 0);
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			CHECK(unshare(CLONE_NEWUSER) == 0);
			CHECK(write(p[1], &c, 1) == 1);
			CHECK(read(q[0], &c, 1) == 1);
			_exit(0);
		}
		CHECK(read(p[0], &c, 1) == 1);
		snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
		fd = open(path, O_RDONLY);
		CHECK(fd >= 0);
		TRY(setns(fd, CLONE_NEWUSER));
		CHECK(write(q[1], &c, 1) == 1);
		pt_reap(pid);
		go_on(1);
	} else if (!strcmp(how, "chroot")) {
		char dir[] = "/tmp/pt-chroot-XXXXXX";

		CHECK(mkdtemp(dir));
		CHECK(chdir(dir) == 0);
		CHECK(rmdir(dir) == 0); /* an empty root that nobody else sees */
		TRY(chroot("."));
		result("open", open("/proc/self/maps", O_RDONLY) < 0 ? -1 : 0);
		go_on(1);
		pid = fork(); /* the child has to find itself without /proc, too */
		CHECK(pid >= 0);
		if (!pid) {
			go_on(2);
			_exit(0);
		}
		pt_reap(pid);
		go_on(2);
	} else if (!strcmp(how, "newpid")) {
		TRY(unshare(CLONE_NEWPID));
		pid = fork();
		CHECK(pid >= 0);
		if (!pid) { /* pid 1 of its namespace; /proc shows another one's pids */
			CHECK(getpid() == 1);
			go_on(1);
			pid = fork();
			CHECK(pid >= 0 && pid < 100); /* natively 2 */
			go_on(2);
			if (!pid)
				_exit(0);
			pt_reap(pid);
			_exit(0);
		}
		pt_reap(pid);
		go_on(1);
	} else if (!strcmp(how, "files")) {
		TRY(unshare(CLONE_FILES));
		TRY(unshare(CLONE_FS));
		TRY(unshare(CLONE_SYSVSEM));
		closefrom(3);
		go_on(1);
	} else if (!strcmp(how, "misc")) {
		TRY(unshare(CLONE_NEWCGROUP));
		TRY(unshare(CLONE_NEWTIME));
		TRY(unshare(CLONE_NEWUTS));
		TRY(setsid() < 0 ? -1 : 0);
		pt_say("wait: %d", (int)waitpid(-1, NULL, WNOHANG | __WALL));
		result("waitpid", waitpid(-1, NULL, WNOHANG | __WALL));
		go_on(1);
		result("waitpid", waitpid(-1, NULL, __WALL | __WNOTHREAD));
	} else {
		return 2;
	}
	pt_say("%s done", how);
	return 0;
}
