#!/bin/bash
# SPDX-License-Identifier: MIT
# vfork, posix_spawn, system, popen, exec; also the ones that fail.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in vfork posix_spawn system popen clonevm failing wait exec execthread; do
	both 40M spawn $how
done
# an environment without LD_PRELOAD and PSWAP: they are put back
both 40M spawn execenv
MINOUT=0 both 40M spawn badenv
finish
