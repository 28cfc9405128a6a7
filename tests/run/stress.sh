#!/bin/bash
# SPDX-License-Identifier: MIT
# libpswap under random operations of four threads, with every fallback switched in.
# STRESS_SECONDS: of the main run (default 6; FULL=1: 600), the fallbacks take a third (FULL=1: 120).
# timeout: 3600
. "$(dirname "$0")/lib.sh"
[ -n "$NATIVE" ] && skip "libpswap has no native half"
[ -e "$TOP/build/libpswap.so" ] || [ -n "${BUILD:-}" ] || skip "no libpswap.so"
exe=$(prog stress) || fail "cannot build stress"
main=${STRESS_SECONDS:-${FULL:+600}}
main=${main:-6}
other=${STRESS_OTHER:-${FULL:+120}}
other=${other:-$(((main + 2) / 3))}
seed=${STRESS_SEED:-$$}
run() {
	local what=$1 secs=$2 rc
	shift 2
	env "$@" "$RUNTO" -t $((secs + 120)) "$exe" -d "$secs" -s "$seed" ${ARGS:-} >"$TMP/out" 2>&1
	rc=$?
	if [ $rc = 77 ]; then
		skip "$(tail -1 "$TMP/out")"
	elif [ $rc != 0 ]; then
		tail -40 "$TMP/out"
		echo "FAIL: stress $what (seed $seed): status $rc"
		FAILED=$((FAILED + 1))
	else
		echo "ok: stress $what, $secs s"
		grep -E '^(map|pages|footprint)' "$TMP/out" | sed 's/^/    /'
		PASSED=$((PASSED + 1))
	fi
}
run "as it is" "$main" A=1
for v in PSWAP_NO_MOVE=1 PSWAP_FREE=entry PSWAP_FAULT=signal PSWAP_NO_THP=1 PSWAP_NO_URING=1; do
	run "$v" "$other" "$v"
done
ARGS="-m 16 -l 160" run "-m 16" "$other" A=1
ARGS="-t 16 -m 128 -l 400" run "16 threads" "$other" A=1
finish
