#!/bin/bash
# SPDX-License-Identifier: MIT
# Pages that lie in a pipe by reference (FACTS trap 16).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in 4k huge gift; do
	both 32M vmsplice $how
done
finish
