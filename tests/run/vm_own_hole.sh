#!/bin/bash
# SPDX-License-Identifier: MIT
# The program's own holes, failing calls, and memory that grows in one call or in many small ones.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in fixed unmap noreplace hint mremap populate malloc; do
	both 40M vm_own_hole $how
done
RESULT=$TMP/result
GRACE=40
both 40M vm_own_hole peer "$RESULT"
finish
