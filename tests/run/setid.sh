#!/bin/bash
# SPDX-License-Identifier: MIT
# setuid and setgid with 8 busy threads.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=48
[ "$(id -u)" = 0 ] || skip "needs root"
both 48M setid libc
both 48M setid raw
finish
