#!/bin/bash
# SPDX-License-Identifier: MIT
# io_uring requests pending into pages that are being evicted (FACTS trap 13).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in fixed plain async sqpoll write churn; do
	both 40M uring $how
done
finish
