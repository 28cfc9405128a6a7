#!/bin/bash
# SPDX-License-Identifier: MIT
# fork, and clone by every way, with swapped memory (FACTS trap 8).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=72
for how in both chain bomb syscalls advice libc syscall asm asmfork clone3 stack; do
	# Contents are what counts here. The bound of a tree whose members all fill memory at once is
	# issue B's: 65 to 85 MiB quiet, some MiB more on a busy machine.
	both 64M fork $how
done
finish
