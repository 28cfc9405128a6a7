#!/bin/bash
# SPDX-License-Identifier: MIT
# Advice on swapped memory.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=32
for way in libc syscall asm; do
	both 32M vm_madvise $way
	both 48M vm_madvise $way kept
done
finish
