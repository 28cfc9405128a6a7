#!/bin/bash
# SPDX-License-Identifier: MIT
# O_DIRECT, synchronous and by kernel AIO, from and into swapped buffers.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
dir=$TMP
: >"$dir/probe"
dd if=/dev/zero of="$dir/probe" bs=4096 count=1 oflag=direct 2>/dev/null || skip "no O_DIRECT in $dir"
both 40M odirect "$dir"
finish
