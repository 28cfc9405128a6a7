#!/bin/bash
# SPDX-License-Identifier: MIT
# fork, and clone by every way, with swapped memory (FACTS trap 8).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=72
for how in both chain bomb syscalls advice libc syscall asm asmfork clone3 stack; do
	# The bound is of the tree, which issue B makes exact; contents are what counts here.
	NOBOUND=1 both 64M fork $how
done
finish
