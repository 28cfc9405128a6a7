#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs that adopt orphans do not find the engine among their children.
# timeout: 200
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=48
# Whose child the engine is, not how large they are: three processes copy what a fork left shared.
NOBOUND=1 both 48M reaper self
both 48M reaper late
[ "$(id -u)" = 0 ] && both 48M reaper init
finish
