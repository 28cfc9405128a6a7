/* SPDX-License-Identifier: MIT */
/* writeback.h - pages on their way from one store to the next. */
#ifndef PS_WRITEBACK_H
#define PS_WRITEBACK_H

#include "types.h"

/* Is there more in memory than the pool may have, and another store for it? */
bool writeback_due(struct pswap *ps);

/* Moves the pages of one extent on. freeze held shared, by a worker. False: nothing could be moved. */
bool writeback_step(struct ps_ctx *ctx);

#endif
