#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs from Debian under pswap: the same output as without.  Limit for each: the larger of a
# quarter of its native peak N and (c + 0.15) N, where c is its pool/memory ratio, measured here.
# APPS="sort xz" runs only these.  Times in the table are not a benchmark (see bench/apps.sh).
# Skipped in the short run of CI: FULL=1 runs all of them, APPS=... those named.
# timeout: 7200
[ -n "$FULL" ] || [ -n "$APPS" ] || { echo "skip: minutes long; FULL=1 or APPS=\"python sort\" runs it"; exit 77; }
. "$(dirname "$0")/lib.sh"
need_pswap
. "$HERE/lib_apps.sh"
TMO=${TMO:-${FULL:+1200}}
TMO=${TMO:-100}

one() {
	local app=$1 secs peak out
	if ! app_needs "$app"; then
		echo "skip $app: not installed"
		exit 77
	fi
	app_make "$app" || fail "$app: no input"
	WHAT=$app
	app_native "$app"
	[ -n "$NATIVE" ] && { echo "ok native: $app, $SECS s, $(mib "$N") MiB"; exit 0; }
	secs=$SECS
	app_ratio "$app"
	app_limit
	rm -f "$TMP/$app.out" "$TMP/stats.json"
	timed "$PSWAP" run -m $LIMIT -o "$TMP/stats.json" -- sh "$TMP/$app.app"
	[ $RC = 0 ] || { tail -60 "$TMP/app.log"; fail "$app: -m $(mib $LIMIT)M: status $RC"; }
	[ "$(app_hash "$app")" = "$HASH" ] || fail "$app: -m $(mib $LIMIT)M: output differs from the native run's"
	# a program that fits (unxz of a small file) has nothing to swap
	check_stats "$TMP/stats.json" $LIMIT $((N > LIMIT + 8 * MIB ? 1000 : 0))
	out=$(j "$TMP/stats.json" pages_out)
	peak=$(j "$TMP/stats.json" peak_footprint_bytes)
	echo "ok: $app: native $secs s, $(mib "$N") MiB; c $(thousandths $C); -m $(mib $LIMIT) MiB:" \
		"$SECS s, peak $(mib "$peak") MiB, max RSS $(mib "$RSS") MiB, pages_out $out"
}
for app in $APPS; do
	trap - EXIT
	(one "$app")
	case $? in
	0) PASSED=$((PASSED + 1)) ;;
	77) SKIPPED=1 ;;
	*) FAILED=$((FAILED + 1)) ;;
	esac
done
trap cleanup EXIT
finish
