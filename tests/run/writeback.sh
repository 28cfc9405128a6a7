#!/bin/bash
# SPDX-License-Identifier: MIT
# A pool that has become too large for its share goes on to the file.
# timeout: 180
. "$(dirname "$0")/lib.sh"
need_pswap
both 64M writeback
[ -n "$NATIVE" ] || { [ $FAILED = 0 ] && {
	n=$(j "$TMP/stats.json" pages_written_back) || exit 1
	[ "$n" -ge 500 ] || fail "only $n pages were moved from memory to the file"
	echo "ok: $n pages went on"
}; }
OPTS="-s ram" both 96M writeback # nowhere to go
finish
