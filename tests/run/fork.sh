#!/bin/bash
# SPDX-License-Identifier: MIT
# fork, and clone by every way, with swapped memory (FACTS trap 8).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=72
for how in both chain bomb syscalls advice libc syscall asm asmfork clone3 stack; do
	# Children that no hook saw (asm) are served, not limited.
	case $how in
	asm*) NOBOUND=1 both 64M fork $how ;;
	*) both 64M fork $how ;;
	esac
done
finish
