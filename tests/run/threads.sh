#!/bin/bash
# SPDX-License-Identifier: MIT
# What the kernel writes at thread start and exit; what threads share (FACTS trap 6).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=48
for how in join detached stacks robust cleartid cancel tls sync; do
	both 40M threads $how
done
finish
