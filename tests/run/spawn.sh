#!/bin/bash
# SPDX-License-Identifier: MIT
# vfork, posix_spawn, system, popen, exec; also the ones that fail.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in vfork posix_spawn system popen clonevm failing wait exec execthread execenv; do
	both 32M spawn $how
done
finish
