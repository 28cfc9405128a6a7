#!/bin/bash
# SPDX-License-Identifier: MIT
# Namespaces: the same answers, and memory goes on without /proc, root, descriptors.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=48
[ "$(id -u)" = 0 ] || skip "needs root"
for how in newuser newns vm setns chroot newpid files misc; do
	both 40M unshare $how
done
finish
