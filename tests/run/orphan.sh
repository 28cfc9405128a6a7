#!/bin/bash
# SPDX-License-Identifier: MIT
# Parents die first; daemons go on after pswap run has returned.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=56
RESULT=$TMP/result
GRACE=40
both 48M fork orphan "$RESULT"
WANT=137 both 48M fork killed "$RESULT"
both 48M fork orphans "$RESULT"
both 48M daemonize double "$RESULT"
both 48M daemonize libc "$RESULT"
finish
