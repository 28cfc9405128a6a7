#!/bin/bash
# SPDX-License-Identifier: MIT
# munmap of any part, MAP_FIXED over it.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=32
for way in libc syscall asm; do
	both 40M vm_munmap $way
done
finish
