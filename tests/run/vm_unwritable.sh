#!/bin/bash
# SPDX-License-Identifier: MIT
# More memory that may not be written to than the limit: it goes out, and its protection has no gap.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
SIZE=${FULL:+512} LIMIT=${FULL:+128M}
SIZE=${SIZE:-96} LIMIT=${LIMIT:-40M}
MINOUT=10000
for prot in none r rx rwx; do
	both "$LIMIT" unwritable $prot "$SIZE"
done
for prot in r rx; do
	both "$LIMIT" unwritable fork $prot "$SIZE"
	both "$LIMIT" unwritable forks $prot "$SIZE"
	both "$LIMIT" unwritable beside $prot "$SIZE"
done
both "$LIMIT" unwritable barrier "$SIZE" "${FULL:+6}5"
finish
