#!/bin/bash
# SPDX-License-Identifier: MIT
# Nobody waits for a fork whose call does not return, and a fork waits for nothing that is out.
# timeout: 300
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=72
TMO=45
for how in syscall clone3; do
	both 64M forkquiet vfork $how
done
# A child that no hook saw is served, not limited; what this is about is that nobody waits.
NOBOUND=1 both 64M forkquiet vfork asm
MINOUT=0 both 64M forkquiet early
both 64M forkquiet tid
NOBOUND=1 both 64M forkquiet ownstack
[ "$(id -u)" = 0 ] && both 64M forkquiet newuser
finish
