#!/bin/bash
# SPDX-License-Identifier: MIT
# Protection on swapped memory.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=32
for way in libc syscall asm; do
	both 48M vm_mprotect $way
done
finish
