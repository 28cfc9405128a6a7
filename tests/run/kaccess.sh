#!/bin/bash
# SPDX-License-Identifier: MIT
# The kernel reads and writes swapped memory.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in rw small sock futex sigstack storm outside; do
	both 48M kaccess $how
done
finish
