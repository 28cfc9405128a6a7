#!/bin/bash
# SPDX-License-Identifier: MIT
# io_uring: structures, advice, vectors, rings in swapped memory, zero copy, huge pages, fork.
# timeout: 300
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=36

for how in ${HOW:-structs advise vectors bufring nommap sendzc hugefixed forked}; do
	both 40M uring2 $how
done
finish
