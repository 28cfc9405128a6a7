/* SPDX-License-Identifier: MIT */
/* store_file_open.c - the files behind the file store: where they may be, creating, closing. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "store_file_int.h"

#define TMPFS_TYPE 0x01021994
#define RAMFS_TYPE 0x858458f6
#define HUGETLBFS_TYPE 0x958458f6

static const char *reason(long err)
{
	switch (-err) {
	case ENOENT:
		return "no such directory";
	case ENOTDIR:
		return "not a directory";
	case EEXIST:
		return "exists already";
	case EACCES:
	case EPERM:
		return "not permitted";
	case EROFS:
		return "the file system is read-only";
	case ENOSPC:
	case EDQUOT:
		return "no space left";
	case EMFILE:
	case ENFILE:
		return "too many open files";
	case EFBIG:
		return "larger than files may be here (ulimit -f, or the file system)";
	case ENAMETOOLONG:
		return "the path is too long";
	default:
		return "unexpected error";
	}
}

static int complain(struct file_store *fs, const char *what, long err)
{
	if (!fs->told)
		ps_log("file store: %s in '%s': %s (error %d)", what, fs->dir, reason(err),
		       (s64)-err);
	fs->told = true;
	return (int)err;
}

static bool in_memory(u32 type)
{
	return type == TMPFS_TYPE || type == RAMFS_TYPE || type == HUGETLBFS_TYPE;
}

/* Makes fs->dir absolute: a program may change its directory before the next file is created. */
static int make_absolute(struct file_store *fs, const char *path, size_t len)
{
	size_t at = 0;

	if (path[0] != '/') {
		long n = sys_call2(SYS_getcwd, fs->dir, STORE_FILE_PATH_MAX);

		if (n < 0)
			return (int)n;
		at = (size_t)n - 1;
		fs->dir[at++] = '/';
	}
	if (at + len + 1 > STORE_FILE_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(fs->dir + at, path, len);
	fs->dir[at + len] = 0;
	return 0;
}

int file_settle_path(struct file_store *fs)
{
	const char *path = fs->opt.path, *base;
	size_t len = strlen(path);
	struct statfs sfs;
	struct stat sb;
	long err;
	int fd;

	if (len >= STORE_FILE_PATH_MAX)
		return -ENAMETOOLONG;
	err = sys_call4(SYS_newfstatat, AT_FDCWD, path, &sb, 0);
	if (err == -ENOENT) {
		/* A file to create: everything before its name is the directory. */
		for (base = path + len; base > path && base[-1] != '/'; base--)
			;
		if (!*base) {
			memcpy(fs->dir, path, len + 1);
			return complain(fs, "cannot create a file", -ENOENT);
		}
		memcpy(fs->name, base, strlen(base) + 1);
		err = base == path ? make_absolute(fs, ".", 1) :
				     make_absolute(fs, path, (size_t)(base - path));
	} else if (!err && !S_ISDIR(sb.st_mode)) {
		ps_log("file store: '%s' exists and is not a directory; name a directory, or a file "
		       "that does not exist",
		       path);
		return -EEXIST;
	} else if (!err) {
		err = make_absolute(fs, path, len);
	}
	if (err) {
		ps_log("file store: '%s': %s (error %d)", path, reason(err), (s64)-err);
		return (int)err;
	}
	fd = (int)sys_open(fs->dir, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd < 0)
		return complain(fs, "cannot create a file", fd);
	err = sys_call2(SYS_fstatfs, fd, &sfs);
	/* Later the path may lead somewhere else, or nowhere: a program that changes its root. */
	if (fs->opt.flags & STORE_FILE_KEEP_DIR)
		fs->dir_fd = fd;
	else
		sys_close(fd);
	if (err)
		return complain(fs, "cannot look at the file system", err);
	if (in_memory((u32)sfs.f_type)) {
		ps_log("file store: '%s' is in memory (tmpfs): swapping there saves none; name a "
		       "directory on a disk",
		       fs->dir);
		return -EINVAL;
	}
	return 0;
}

static int open_named(struct file_store *fs, const char *name, int flags)
{
	char *path;
	long fd;

	if (fs->dir_fd >= 0) {
		fd = sys_call4(SYS_openat, fs->dir_fd, name, flags | O_CREAT | O_EXCL | O_NOFOLLOW,
			       0600);
		if (fd >= 0)
			sys_call3(SYS_unlinkat, fs->dir_fd, name, 0);
		return (int)fd;
	}
	path = arena_map(2 * STORE_FILE_PATH_MAX);
	if (!path)
		return -ENOMEM;
	ps_format(path, 2 * STORE_FILE_PATH_MAX, "%s/%s", fs->dir, name);
	fd = sys_open(path, flags | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
	if (fd >= 0)
		sys_call3(SYS_unlinkat, AT_FDCWD, path, 0);
	arena_unmap(path, 2 * STORE_FILE_PATH_MAX);
	return (int)fd;
}

static int open_unlinked(struct file_store *fs, int flags)
{
	char name[40];
	u64 random;
	long fd;

	if (fs->name[0])
		return open_named(fs, fs->name, flags);
	fd = fs->dir_fd >= 0 ?
		     sys_call4(SYS_openat, fs->dir_fd, ".", flags | O_TMPFILE | O_EXCL, 0600) :
		     sys_open(fs->dir, flags | O_TMPFILE | O_EXCL, 0600);
	if (fd != -EOPNOTSUPP && fd != -EISDIR && fd != -ENOENT)
		return (int)fd;
	if (sys_call3(SYS_getrandom, &random, sizeof(random), 0) != sizeof(random))
		return -EIO;
	ps_format(name, sizeof(name), ".pswap-%x", random);
	return open_named(fs, name, flags);
}

/* Does the file take direct I/O, and does it hold what we will write? */
static int probe(struct file_store *fs, struct store_fd *f)
{
	off_t size = (off_t)(fs->nr_clusters * CLUSTER_BYTES);
	struct rlimit lim;
	void *block;
	long err;

	/* Beyond this limit a write kills the process (SIGXFSZ). */
	err = sys_call4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, &lim);
	if (!err && lim.rlim_cur != RLIM_INFINITY && lim.rlim_cur < (u64)size)
		return -EFBIG;
	err = sys_call2(SYS_ftruncate, f->fd, size);
	if (err || !f->direct)
		return (int)err;
	/* A hole is enough to see whether reads are taken; it costs no space. */
	block = arena_map(BLOCK);
	if (!block)
		return -ENOMEM;
	if (sys_pread(f->fd, block, BLOCK, 0) == -EINVAL)
		err = -EINVAL;
	arena_unmap(block, BLOCK);
	return (int)err;
}

int file_create(struct file_store *fs, struct store_fd *f)
{
	bool direct = !(fs->opt.flags & STORE_FILE_NO_DIRECT);
	int fd, err;

	for (;;) {
		fd = open_unlinked(fs, O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0));
		err = fd < 0 ? fd : 0;
		if (!err) {
			f->fd = fd;
			f->direct = direct;
			err = probe(fs, f);
			if (!err)
				break;
			sys_close(fd);
		}
		if (err != -EINVAL || !direct)
			return complain(fs, "cannot create a file", err);
		direct = false;
	}
	if (sys_call3(SYS_getrandom, f->key, sizeof(f->key), 0) != sizeof(f->key)) {
		sys_close(fd);
		return complain(fs, "no random key for the file", -EIO);
	}
	if (fs->aes)
		crypto_aead_aes256gcm_beforenm(&f->aes, f->key);
	fs->name[0] = 0;
	fs->told = false;
	relaxed_store(&f->live, 0);
	f->used = true;
	relaxed_add(&fs->nr_files, 1);
	return 0;
}

struct store_fd *file_current(struct file_store *fs, int *err)
{
	u32 cur = atomic_load_explicit(&fs->cur, memory_order_acquire);
	u32 i;

	if (likely(cur != NO_FILE))
		return &fs->files[cur];
	ps_mutex_lock(&fs->lock);
	cur = relaxed_load(&fs->cur);
	if (cur == NO_FILE) {
		for (i = 0; i < MAX_FILES && fs->files[i].used; i++)
			;
		*err = i < MAX_FILES ? file_create(fs, &fs->files[i]) : -ENOSPC;
		if (!*err) {
			cur = i;
			fs->file_end = MAX(fs->file_end, i + 1);
			atomic_store_explicit(&fs->cur, cur, memory_order_release);
		} else if (*err != -ENOMEM) {
			if (i == MAX_FILES && !fs->told)
				ps_log("file store: too many forks with pages in files; no more are "
				       "written");
			fs->told = true;
			*err = *err == -EIO ? -EIO : -ENOSPC;
		}
	}
	ps_mutex_unlock(&fs->lock);
	return cur == NO_FILE ? NULL : &fs->files[cur];
}

void file_close_old(struct file_store *fs)
{
	if (relaxed_load(&fs->nr_files) < 2 && relaxed_load(&fs->cur) != NO_FILE)
		return;
	ps_mutex_lock(&fs->lock);
	for (u32 i = 0; i < fs->file_end; i++) {
		struct store_fd *f = &fs->files[i];

		if (!f->used || i == relaxed_load(&fs->cur) ||
		    atomic_load_explicit(&f->live, memory_order_acquire))
			continue;
		if (f->fd >= 0)
			sys_close(f->fd);
		sodium_memzero(f->key, sizeof(f->key));
		sodium_memzero(&f->aes, sizeof(f->aes));
		f->fd = -1;
		f->used = false;
		relaxed_sub(&fs->nr_files, 1);
	}
	ps_mutex_unlock(&fs->lock);
}
