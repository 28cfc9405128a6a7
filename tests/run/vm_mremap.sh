#!/bin/bash
# SPDX-License-Identifier: MIT
# Every form of mremap.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=32
for way in libc syscall asm; do
	both 40M vm_mremap $way
done
both 40M vm_mremap libc huge
finish
