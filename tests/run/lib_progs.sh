# SPDX-License-Identifier: MIT
# lib_progs.sh - for the tests that run large programs nobody here wrote; sourced after lib.sh, not a test.
# These take minutes each: only with FULL=1, or NATIVE=1.
[ -n "$FULL$NATIVE" ] || skip "it takes minutes: FULL=1 runs it"
need_pswap
SAMPLE=$(prog treesample) || exit 1

# sampled NAME LIMIT COMMAND...: its memory is looked at every 20 ms from outside, for $TMP/NAME.peak.  With
# LIMIT 0 natively, otherwise under pswap run, with $TMP/NAME.json.  OPTS: options of pswap run.
sampled() {
	local name=$1 limit=$2
	shift 2
	if [ "$limit" = 0 ]; then
		exec "$SAMPLE" -i 20 "$TMP/$name.peak" "$@"
	fi
	# shellcheck disable=SC2086
	exec "$SAMPLE" -i 20 -b "$(bound "$limit")" "$TMP/$name.peak" "$PSWAP" run -m "$limit" ${OPTS:-} \
		-o "$TMP/$name.json" -- "$@"
}

# peak NAME: bytes
peak() {
	awk '/^peak/ { print $2 }' "$TMP/$1.peak"
}

# in_bounds NAME LIMIT MIN_PAGES_OUT: prints the figures; fails when samples were over the bound
in_bounds() {
	local json=$TMP/$1.json over
	over=$(awk '/^over/ { print $2 }' "$TMP/$1.peak")
	echo "    -m $2: peak $(mib "$(peak "$1")") MiB, $over of $(awk '/^samples/ { print $2 }' "$TMP/$1.peak")" \
		"samples over $(mib "$(bound "$2")"); pswap says $(mib "$(j "$json" peak_footprint_bytes)") MiB," \
		"$(j "$json" pages_out) pages out, $(j "$json" pages_in) in"
	[ "$(j "$json" pages_out)" -ge "$3" ] || fail "$WHAT: vacuous, expected $3 pages out"
	[ "$over" = 0 ] || [ -n "${NOBOUND:-}" ] || fail "$WHAT: -m $2: over the bound"
}

# each FUNCTION ARG...: a test of several; `finish` gives the verdict
each() {
	(trap - EXIT; "$@")
	case $? in
	0) PASSED=$((PASSED + 1)) ;;
	77) SKIPPED=1 ;;
	*) FAILED=$((FAILED + 1)) ;;
	esac
}
