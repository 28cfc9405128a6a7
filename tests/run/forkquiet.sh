#!/bin/bash
# SPDX-License-Identifier: MIT
# Nobody waits for a fork whose call does not return, and a fork waits for nothing that is out.
# timeout: 300
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=72
TMO=45
for how in syscall clone3 asm; do
	both 64M forkquiet vfork $how
done
MINOUT=0 both 64M forkquiet early
both 64M forkquiet tid
both 64M forkquiet ownstack
[ "$(id -u)" = 0 ] && both 64M forkquiet newuser
finish
