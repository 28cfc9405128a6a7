/* SPDX-License-Identifier: MIT */
/* store_ram.h - what the tests and the benchmark need of the RAM store beyond store.h. */
#ifndef PS_STORE_RAM_H
#define PS_STORE_RAM_H

#include "store.h"

/* Flips a bit of the object stored for slot. False when the slot is empty or is held as one word
 * inside the tables, so that there is no object. */
bool store_ram_flip(struct store *st, u64 slot);

/* Recomputes from the descriptors what is counted elsewhere: live slots and bytes of clusters,
 * segments and the store. NULL, or what is wrong (static text). Nothing may run meanwhile. */
const char *store_ram_check(struct store *st);

#endif
