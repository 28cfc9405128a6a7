/* SPDX-License-Identifier: MIT */
/*
 * config.h - how `pswap run` tells the programs of its tree what to do: one environment variable,
 *
 *   PSWAP=v1:shm=/proc/PID/fd/N:limit=BYTES:count=all|resident[:per-process=1][:verbose=1][:core=1]:stores=SPEC;SPEC...
 *
 * Values are percent-encoded wherever a byte would end a value or a SPEC (`:`, `;`, `%`), or is not
 * printable.  Unknown keys are ignored, so that a newer CLI can talk to an older library.
 *
 * The variable carries the limit and the stores although the shared area has the first as well: a
 * member that cannot open the area (another user, another pid namespace, `pswap run` has ended) can
 * still keep the limit for itself.
 */
#ifndef PS_CONFIG_H
#define PS_CONFIG_H

#include "stat.h"

#define PS_ENV	     "PSWAP"
#define PS_ENV_MAX   16384   /* longest value, its 0 included */
#define PS_SHM_NAME  "pswap" /* of the memfd: /memfd:pswap in /proc/PID/maps */
#define PS_LIMIT_MIN MiB(16)

struct ps_config {
	u64 limit_bytes; /* 0: not given */
	enum ps_count count;
	bool per_process, verbose;
	bool core; /* memory comes in before a signal dumps core */
	unsigned nr_stores;
	const char *shm_path;		   /* "" when not given */
	const char *stores[PS_MAX_STORES]; /* store specifications, see store_spec.h */
	char text[PS_ENV_MAX];		   /* what the pointers point into after ps_config_parse */
};

/* Writes the variable's value. Returns its length, or 0 when it does not fit into size bytes. */
size_t ps_config_build(char *buf, size_t size, const struct ps_config *c);

/* Reads a value. 0, or -EINVAL with *why (static text) set and *c of no use. c->text is used, so
 * *c cannot be copied. No malloc, no libc state. */
int ps_config_parse(struct ps_config *c, const char *value, const char **why);

/* The value of NAME in an environment block, or NULL. (getenv is of no use in a constructor that
 * runs before libc's.) */
const char *ps_env(char *const *envp, const char *name);

#endif
