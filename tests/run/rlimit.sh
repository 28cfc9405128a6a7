#!/bin/bash
# SPDX-License-Identifier: MIT
# Small resource limits, set by the program or before it.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in as data nofile fsize memlock; do
	both 40M rlimit $how
done
BEFORE="ulimit -v 4000000" both 40M rlimit none
BEFORE="ulimit -n 32" both 40M rlimit none
BEFORE="ulimit -l 0" both 40M rlimit none
BEFORE="ulimit -s 256" both 40M rlimit none
# Too few descriptors for an engine, where the limit cannot be raised: unswapped and said so, never half.
if [ -z "$NATIVE" ]; then
	(ulimit -n 12 && exec timeout -k 5 60 "$PSWAP" run -m 40M -o "$TMP/few.json" -- "$(prog fill)" 60M) \
		2>"$TMP/few.err" >"$TMP/few.out" || fail "ulimit -n 12: status $?: $(cat "$TMP/few.err")"
	grep -q 'open files.*runs unswapped' "$TMP/few.err" || [ "$(j "$TMP/few.json" pages_out)" -gt 1000 ] ||
		fail "ulimit -n 12: neither swapped nor said: $(cat "$TMP/few.err")"
	echo "ok: ulimit -n 12: $(cat "$TMP/few.err")"
fi
finish
