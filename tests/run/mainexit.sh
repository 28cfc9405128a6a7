#!/bin/bash
# SPDX-License-Identifier: MIT
# main() ends with pthread_exit, other threads go on.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
both 40M mainexit last
WANT=7 both 40M mainexit exit
finish
