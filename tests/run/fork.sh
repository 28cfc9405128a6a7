#!/bin/bash
# SPDX-License-Identifier: MIT
# fork, and clone by every way, with swapped memory (FACTS trap 8).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=72
for how in both chain syscalls advice libc syscall; do
	both 64M fork $how
done
# Forks that no hook sees, whose children cannot page out, and floods of them: contents are what counts
# (the bound of the tree is issue B's).
for how in bomb asm asmfork clone3 stack; do
	NOBOUND=1 both 64M fork $how
done
finish
