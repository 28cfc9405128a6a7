#!/bin/bash
# SPDX-License-Identifier: MIT
# Namespaces: the same answers, and memory goes on without /proc, root, descriptors.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
[ "$(id -u)" = 0 ] || skip "needs root"
for how in newuser newns vm setns chroot newpid files misc; do
	both 32M unshare $how
done
finish
