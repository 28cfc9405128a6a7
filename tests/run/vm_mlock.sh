#!/bin/bash
# SPDX-License-Identifier: MIT
# Locked memory stays.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=36
for way in libc syscall asm; do
	both 40M vm_mlock $way
done
both 32M vm_mlock all
finish
