/* SPDX-License-Identifier: MIT */
/* shm.c - the area that `pswap run` and the members of its tree share (stat.h). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

#define STUCK_POLLS 20 /* of 50 ms */

u32 shm_pid_ns(pid_t pid)
{
	char path[64], link[64];
	unsigned ns = 0;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	n = readlink(path, link, sizeof(link) - 1);
	link[MAX(n, 0)] = 0;
	sscanf(link, "pid:[%u]", &ns);
	return ns;
}

struct ps_shm *shm_create(int *fd)
{
	struct ps_shm *shm;

	*fd = memfd_create(PS_SHM_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return NULL;
	/* Sealed, so that no member can make the others fail by cutting it off. */
	if (ftruncate(*fd, sizeof(*shm)) ||
	    fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		close(*fd);
		return NULL;
	}
	shm = mmap(NULL, sizeof(*shm), PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (shm == MAP_FAILED) {
		close(*fd);
		return NULL;
	}
	shm->size = sizeof(*shm);
	shm->pid_ns = shm_pid_ns(getpid());
	return shm;
}

/* Maps what is at path; NULL if that is not a shared area. */
static struct ps_shm *map_at(const char *path, bool write)
{
	int fd = open(path, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
	struct ps_shm *shm;
	struct stat st;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) || st.st_size != sizeof(*shm)) {
		close(fd);
		return NULL;
	}
	shm = mmap(NULL, sizeof(*shm), write ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (shm == MAP_FAILED)
		return NULL;
	if (shm->magic == PS_SHM_MAGIC && shm->size == sizeof(*shm))
		return shm;
	munmap(shm, sizeof(*shm));
	return NULL;
}

/* Through the environment that the process was started with. */
static struct ps_shm *by_environ(pid_t pid, bool write)
{
	char path[64], *var = NULL;
	struct ps_config *c = malloc(sizeof(*c));
	struct ps_shm *shm = NULL;
	int run, fd, end = 0;
	size_t cap = 0;
	const char *why;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	f = fopen(path, "re");
	while (c && f && getdelim(&var, &cap, 0, f) > 0) {
		if (strncmp(var, PS_ENV "=", sizeof(PS_ENV)))
			continue;
		/* Anybody can write anything into his environment, so it must be such a path. */
		if (!ps_config_parse(c, var + sizeof(PS_ENV), &why) &&
		    sscanf(c->shm_path, "/proc/%d/fd/%d%n", &run, &fd, &end) == 2 &&
		    !c->shm_path[end])
			shm = map_at(c->shm_path, write);
		break;
	}
	if (f)
		fclose(f);
	free(var);
	free(c);
	return shm;
}

/* Through the mapping: also when `pswap run` has ended, but that takes CAP_SYS_ADMIN. */
static struct ps_shm *by_maps(pid_t pid, bool write)
{
	char path[64], *line = NULL;
	struct ps_shm *shm = NULL;
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	while (f && !shm && getline(&line, &cap, f) > 0) {
		char link[128];

		if (!strstr(line, " /memfd:" PS_SHM_NAME " "))
			continue;
		snprintf(link, sizeof(link), "/proc/%d/map_files/%.*s", (int)pid,
			 (int)strcspn(line, " "), line);
		shm = map_at(link, write);
	}
	if (f)
		fclose(f);
	free(line);
	return shm;
}

/* `pswap run` itself has the area open. */
static struct ps_shm *by_fds(pid_t pid, bool write)
{
	char path[400], target[64];
	struct ps_shm *shm = NULL;
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	d = opendir(path);
	while (d && !shm && (e = readdir(d))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, e->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		if (n <= 0)
			continue;
		target[n] = 0;
		if (!strncmp(target, "/memfd:" PS_SHM_NAME " ", sizeof("/memfd:" PS_SHM_NAME)))
			shm = map_at(path, write);
	}
	if (d)
		closedir(d);
	return shm;
}

struct ps_shm *shm_of_pid(pid_t pid, bool write, char *why, size_t size)
{
	struct ps_shm *shm;
	char path[64];

	shm = by_fds(pid, write);
	if (!shm)
		shm = by_environ(pid, write);
	if (!shm)
		shm = by_maps(pid, write);
	if (shm)
		return shm;
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	if (!shm_starttime(pid, NULL))
		snprintf(why, size, "there is no process %d", (int)pid);
	else if (access(path, R_OK))
		snprintf(why, size, "no permission to look into process %d", (int)pid);
	else
		snprintf(why, size, "process %d does not run under pswap", (int)pid);
	return NULL;
}

char *shm_stat(pid_t pid, char *text, size_t size)
{
	char path[64], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	n = read(fd, text, size - 1);
	close(fd);
	text[MAX(n, 0)] = 0;
	/* "PID (comm) S ppid ...": comm may hold anything, so from the last parenthesis. */
	p = strrchr(text, ')');
	return p ? p + 1 : NULL;
}

u64 shm_starttime(pid_t pid, char *comm)
{
	char text[1024], *rest = shm_stat(pid, text, sizeof(text)), *open_paren;
	unsigned long long start = 0;
	char state = 0;
	int threads = 0;

	open_paren = rest ? strchr(text, '(') : NULL;
	if (!open_paren)
		return 0;
	sscanf(rest,
	       " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu",
	       &state, &threads, &start);
	if (comm)
		snprintf(comm, 16, "%.*s", (int)MIN(rest - open_paren - 2, 15), open_paren + 1);
	/* Of a program whose main() ended by pthread_exit, the first thread is a zombie. */
	return (state == 'Z' && threads <= 1) || state == 'X' ? 0 : start;
}

bool shm_is_inner(const struct ps_shm *shm, const struct ps_member *m)
{
	u32 ns = relaxed_load(&m->pid_ns);

	return ns && ns != shm->pid_ns;
}

u32 shm_member_pid(const struct ps_shm *shm, const struct ps_member *m)
{
	return shm_is_inner(shm, m) ? relaxed_load(&m->outer_pid) : relaxed_load(&m->pid);
}

bool shm_member_alive(const struct ps_shm *shm, const struct ps_member *m)
{
	u32 pid = shm_member_pid(shm, m);

	/* Of another namespace, and not met yet. */
	if (!pid && relaxed_load(&m->pid))
		return relaxed_load(&m->state) != PS_MEMBER_ENDED;
	return pid && relaxed_load(&m->state) != PS_MEMBER_ENDED &&
	       shm_starttime((pid_t)pid, NULL) == relaxed_load(&m->starttime);
}

void shm_drain_log(struct ps_shm *shm, u32 *tail)
{
	/* A writer that dies between taking a line and finishing it must not hold up the others. */
	static u32 stuck_at, stuck_times;
	static char said[PS_LOG_LEN + 1]; /* the last line printed */
	static size_t said_len;
	u32 head = atomic_load_explicit(&shm->log_head, memory_order_acquire);

	if (head - *tail > PS_LOG_LINES) {
		cli_warn("%u lines lost", head - *tail - PS_LOG_LINES);
		*tail = head - PS_LOG_LINES;
	}
	for (; *tail != head; (*tail)++) {
		u32 i = *tail % PS_LOG_LINES, seq;
		char text[PS_LOG_LEN + 1];
		size_t n;

		seq = atomic_load_explicit(&shm->log[i].seq, memory_order_acquire);
		if ((s32)(seq - (*tail + 1)) < 0) {
			stuck_times = stuck_at == *tail ? stuck_times + 1 : 0;
			stuck_at = *tail;
			if (stuck_times < STUCK_POLLS)
				return;
			continue;
		}
		n = MIN(shm->log[i].len, PS_LOG_LEN);
		memcpy(text, shm->log[i].text, n);
		atomic_thread_fence(memory_order_acquire);
		if (relaxed_load(&shm->log[i].seq) != *tail + 1)
			continue; /* overwritten meanwhile */
		while (n && (text[n - 1] == '\n' || !text[n - 1]))
			n--;
		text[n++] = '\n';
		/* Many processes may have the same to say. */
		if (n == said_len && !memcmp(text, said, n))
			continue;
		memcpy(said, text, n);
		said_len = n;
		if (write(STDERR_FILENO, text, n) < 0)
			return;
	}
}
