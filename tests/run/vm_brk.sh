#!/bin/bash
# SPDX-License-Identifier: MIT
# The heap up and down.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=48
for how in sbrk syscall asm malloc steps; do
	both 48M vm_brk $how
done
finish
