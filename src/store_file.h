/* SPDX-License-Identifier: MIT */
/* store_file.h - what fork, the tests and the benchmark need of the file store beyond store.h. */
#ifndef PS_STORE_FILE_H
#define PS_STORE_FILE_H

#include "store.h"

/*
 * Fork.  The engine of a child has a copy of the program's descriptor table, not of the engine's
 * of the parent: the parent's engine hands the files over.  store_file_fds gives the descriptors
 * of the files in use (at most max) and returns how many there are; after store.ops.after_fork, the
 * child passes its own numbers for the same files, in the same order, to store_file_set_fds.  A
 * child that has the parent's table need not call either.
 */
int store_file_fds(struct store *st, int *fds, int max);
void store_file_set_fds(struct store *st, const int *fds, int n);
/* The same for the directory in which new files are made (-1: found by its path, as without). */
int store_file_dir(struct store *st);
void store_file_set_dir(struct store *st, int fd);
/* Is anything in a file whose descriptor was given as negative?  Files with nothing in them are left to
 * the parent. */
bool store_file_missing(struct store *st);

/* Where the record of slot (4096 bytes and a tag of 16) begins, in the file that new writes go to,
 * which is the last one of store_file_fds. */
u64 store_file_offset(u64 slot);

/* Recomputes live counts. NULL, or what is wrong (static text). Nothing may run meanwhile. */
const char *store_file_check(struct store *st);

#endif
