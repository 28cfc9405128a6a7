#!/bin/bash
# SPDX-License-Identifier: MIT
# A page here and one there: the limit holds, what is noted of them included.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
# natively there are as many mappings as every second one leaves
both 48M sparse 20000 512
both 48M sparse 20000 40
both 48M sparse 20000 1
finish
