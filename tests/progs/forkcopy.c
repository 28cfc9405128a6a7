/* SPDX-License-Identifier: MIT */
/*
 * forkcopy - a fork leaves all memory shared, then it is written to as fast as memory can be copied, which
 * no fault of a missing page announces.
 *
 *     forkcopy parent|child|both seq|random MIB THREADS
 *
 * A page holds the tag of who wrote it last: of the parent before the fork (1), of the parent after (2), of the
 * child (3).  Whoever does not write checks that nothing has changed for it; everything is checked at
 * the end, also memory that the kernel wrote (read(2) into shared pages), and that a thread made after the
 * fork ends (the kernel writes to its control block, and does not wait).
 */
#include "pt.h"

struct job {
	char *base;
	size_t from, pages, stride;
	u64 tag;
};

/* A whole page at a time, one of eight by the kernel. */
static void write_page(char *page, u64 tag, size_t i, int pipe_fd[2])
{
	char buf[PT_PAGE];

	if (i % 8) {
		pt_fill_page(page, tag, i);
		return;
	}
	pt_fill_page(buf, tag, i);
	CHECK(write(pipe_fd[1], buf, PT_PAGE) == (ssize_t)PT_PAGE);
	CHECK(read(pipe_fd[0], page, PT_PAGE) == (ssize_t)PT_PAGE);
}

static void *writer(void *arg)
{
	struct job *j = arg;
	int fd[2];

	CHECK(pipe(fd) == 0);
	for (size_t n = 0, i = 0; n < j->pages; n++, i = (i + j->stride) % j->pages)
		write_page(j->base + (j->from + i) * PT_PAGE, j->tag, j->from + i, fd);
	close(fd[0]);
	close(fd[1]);
	return NULL;
}

static size_t gcd(size_t a, size_t b)
{
	return b ? gcd(b, a % b) : a;
}

static void write_all(char *base, size_t pages, unsigned threads, bool seq, u64 tag)
{
	pthread_t th[16];
	struct job job[16];
	size_t each = pages / threads;

	for (unsigned t = 0; t < threads; t++) {
		job[t] = (struct job){ base, t * each, each, 1, tag };
		/* Prime to the number of pages: each once, none next to the one before. */
		if (!seq)
			job[t].stride = each / 3;
		while (gcd(job[t].stride, each) != 1)
			job[t].stride++;
		PCHECK(pthread_create(&th[t], NULL, writer, &job[t]));
	}
	for (unsigned t = 0; t < threads; t++)
		PCHECK(pthread_join(th[t], NULL));
}

int main(int argc, char **argv)
{
	bool seq, by_child, by_parent;
	int go[2], done[2];
	unsigned threads;
	size_t len, pages;
	char *mem, c;
	pid_t pid;

	CHECK(argc == 5);
	by_child = strcmp(argv[1], "parent") != 0;
	by_parent = strcmp(argv[1], "child") != 0;
	seq = strcmp(argv[2], "seq") == 0;
	len = strtoul(argv[3], NULL, 0) * PT_MIB;
	threads = (unsigned)strtoul(argv[4], NULL, 0);
	CHECK(threads >= 1 && threads <= 16);
	pages = len / PT_PAGE / threads * threads;
	mem = pt_map(len);
	CHECK(pipe(go) == 0 && pipe(done) == 0);
	pt_fill(mem, len, 1);
	/* Resident at the fork is what was touched last. */
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		if (by_child)
			write_all(mem, pages, threads, seq, 3);
		/* The parent has written all by now. */
		CHECK(read(go[0], &c, 1) == 1);
		pt_verify(mem, pages * PT_PAGE, by_child ? 3 : 1);
		CHECK(write(done[1], &c, 1) == 1);
		_exit(0);
	}
	if (by_parent)
		write_all(mem, pages, threads, seq, 2);
	CHECK(write(go[1], "g", 1) == 1);
	pt_verify(mem, pages * PT_PAGE, by_parent ? 2 : 1);
	CHECK(read(done[0], &c, 1) == 1);
	pt_reap(pid);
	/* Nothing is shared any more; all of it can be written to, and goes on to be swapped. */
	write_all(mem, pages, threads, seq, 4);
	pt_press();
	pt_verify(mem, pages * PT_PAGE, 4);
	printf("ok %s %s\n", argv[1], argv[2]);
	return 0;
}
