#!/bin/bash
# SPDX-License-Identifier: MIT
# More ways in which the kernel reads and writes swapped memory.
# timeout: 300
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=36
for how in ${HOW:-vec msgs zerocopy futex2 pimutex aio structs settid exec ptrace local uctx devs}; do
	case $how in
	settid | exec | ptrace | local | uctx | devs) prog=kaccess3 ;;
	*) prog=kaccess2 ;;
	esac
	# settid: children that no hook saw are served, not limited (docs/design.md).
	case $how in
	settid) NOBOUND=1 both 40M $prog settid ;;
	*) both 40M $prog $how ;;
	esac
done
[ -n "${HOW:-}" ] || BEFORE="export GLIBC_TUNABLES=glibc.pthread.rseq=0" both 40M kaccess3 rseq
finish
