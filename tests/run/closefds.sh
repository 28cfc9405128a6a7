#!/bin/bash
# SPDX-License-Identifier: MIT
# All descriptors closed, in every way (FACTS trap 17).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in closefrom close_range unshare loop dup2 asm; do
	both 40M closefds $how
done
finish
