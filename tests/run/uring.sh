#!/bin/bash
# SPDX-License-Identifier: MIT
# io_uring requests pending into pages that are being evicted (FACTS trap 13).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=48
for how in fixed plain async sqpoll write churn; do
	both 32M uring $how
done
finish
