#!/bin/bash
# SPDX-License-Identifier: MIT
# Seccomp filters that kill, on all threads or one (FACTS trap 23).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in tsync prctl asm errno strict; do
	both 40M seccomp $how
done
finish
