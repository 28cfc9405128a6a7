# SPDX-License-Identifier: MIT
# lib.sh - sourced by the tests of run mode; not a test (executed by itself it does nothing).
#
# A test is an executable *.sh here: exit 0 passed, 77 skipped (the reason is the last line), anything
# else failed.  Environment:
#   PSWAP      the command (default: build/pswap of this tree)
#   PROGS      where the compiled tests/progs are (default: build/tests/progs; compiled to
#              a cache in $TMPDIR when a program is missing there)
#   FULL=1     the sizes of the acceptance runs, not of CI
#   NATIVE=1   only the native halves: proves the programs, needs no pswap
#   NOBOUND=1  do not check the footprint against the limit (to see the other results)
#   KEEP=1     keep the temporary directory
# Everything else in the environment goes on to pswap, so PSWAP_NO_MOVE=1 tests/run/trap-vm.sh
# tests a fallback.

set -u
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOP=$(cd "$HERE/../.." && pwd)
PSWAP=${PSWAP:-$TOP/build/pswap}
PROGS=${PROGS:-$TOP/build/tests/progs}
FULL=${FULL:-}
NATIVE=${NATIVE:-}
TEST=$(basename "$0" .sh)
MIB=1048576

TMP=$(mktemp -d "${TMPDIR:-/tmp}/pswap-$TEST.XXXXXX")
cleanup() {
	[ -n "${KEEP:-}" ] && { echo "kept $TMP"; return; }
	rm -rf "$TMP"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

skip() {
	echo "skip: $*"
	exit 77
}

fail() {
	echo "FAIL: $TEST: $*"
	exit 1
}

need() {
	local c
	for c in "$@"; do
		command -v "$c" >/dev/null 2>&1 || skip "no $c"
	done
}

# pswap must exist and be able to swap here.
need_pswap() {
	[ -n "$NATIVE" ] && return
	[ -x "$PSWAP" ] || skip "no $PSWAP (make build)"
	need jq
	[ -e /dev/userfaultfd ] || [ "$(cat /proc/sys/vm/unprivileged_userfaultfd 2>/dev/null)" = 1 ] ||
		[ "$(id -u)" = 0 ] || skip "no userfaultfd for this user"
}

# prog NAME: the path of a compiled test program.
prog() {
	local src="$TOP/tests/progs/$1.c" out="$PROGS/$1" libs
	if [ ! -x "$out" ] || [ "$src" -nt "$out" ] || [ "$TOP/tests/progs/pt.h" -nt "$out" ]; then
		out="${TMPDIR:-/tmp}/pswap-progs.$(id -u)/$1"
		if [ ! -x "$out" ] || [ "$src" -nt "$out" ] || [ "$TOP/tests/progs/pt.h" -nt "$out" ]; then
			mkdir -p "$(dirname "$out")"
			libs=$(sed -n '2s,^// LIBS:,,p' "$src" | sed "s,-lpswap,-L$TOP/build -lpswap -Wl\,-rpath\,$TOP/build,")
			# shellcheck disable=SC2086
			${CC:-gcc} -std=gnu17 -Wall -Wextra -O1 -g -pthread -I"$TOP/include" \
				"$src" -o "$out.$$" $libs >&2 && mv "$out.$$" "$out" ||
				{ echo "cannot compile $src" >&2; return 1; }
		fi
	fi
	echo "$out"
}

RUNTO=$(prog runto) || exit 1

# j FILE KEY: an integer of the statistics.
j() {
	jq -re ".$2" "$1" || fail "no $2 in $1: $(head -c 300 "$1" 2>/dev/null)"
}

# bytes SIZE (K, M, G)
bytes() {
	case $1 in
	*K) echo $((${1%K} * 1024)) ;;
	*M) echo $((${1%M} * MIB)) ;;
	*G) echo $((${1%G} * 1024 * MIB)) ;;
	*) echo "$1" ;;
	esac
}

# bound LIMIT: what a footprint may be at most: 5 % + 16 MiB over the limit.
bound() {
	local l
	l=$(bytes "$1")
	echo $((l + l / 20 + 16 * MIB))
}

mib() {
	echo $((($1 + MIB / 2) / MIB))
}

# check_stats JSON LIMIT MIN_PAGES_OUT: well-formed, not vacuous, inside the limit.
check_stats() {
	local json=$1 limit=$2 min=$3 peak out
	jq -e . "$json" >/dev/null 2>&1 || fail "$WHAT: bad statistics: $(head -c 300 "$json" 2>/dev/null)"
	out=$(j "$json" pages_out) || exit 1
	peak=$(j "$json" peak_footprint_bytes) || exit 1
	[ "$out" -ge "$min" ] || fail "$WHAT: vacuous: pages_out $out, expected at least $min"
	if [ -z "${NOBOUND:-}" ] && [ "$peak" -gt "$(bound "$limit")" ]; then
		echo "FAIL: $TEST: $WHAT: peak footprint $(mib "$peak") MiB with -m $limit (bound" \
			"$(mib "$(bound "$limit")") MiB)"
		exit $OVER
	fi
}

# both LIMIT PROGRAM [ARG...]: natively, then under pswap; status and standard output must be equal,
# and natively 0.  A failure is noted, the script goes on; `finish` at its end gives the verdict.
# Settings: TMO (seconds, 60), MINOUT (pages that must have gone out at least, 1000), WANT (exit
# status, 0), OPTS (further options of pswap run), PRESS (MiB), RESULT (a file that an orphan of the
# program makes, with "ok" in it), BEFORE (a shell command that execs the rest: "ulimit -n 4; exec").
FAILED=0 PASSED=0 SKIPPED=
OVER=3 # the status of a run in which all is right but the peak
both() {
	local rc
	(both_ "$@")
	rc=$?
	# On a busy machine a single peak may be nobody's fault; two in a row are.
	[ $rc = $OVER ] && { (both_ "$@"); rc=$?; }
	case $rc in
	0) PASSED=$((PASSED + 1)) ;;
	77) SKIPPED=1 ;;
	*) FAILED=$((FAILED + 1)) ;;
	esac
}

finish() {
	[ $FAILED -gt 0 ] && { echo "FAIL: $TEST: $FAILED failed, $PASSED passed"; exit 1; }
	[ $PASSED = 0 ] && [ -n "$SKIPPED" ] && skip "${1:-nothing of it can be had here}"
	exit 0
}

both_() {
	local limit=$1 rc exe opts
	shift
	exe=$(prog "$1") || fail "cannot build $1"
	WHAT="$*"
	shift
	trap - EXIT
	TMO=${TMO:-60}
	export PT_PRESS=${PRESS:-40}
	opts="-t $TMO -g ${GRACE:-10} -a"
	set -- "$exe" "$@"
	[ -n "${BEFORE:-}" ] && set -- sh -c "$BEFORE; exec \"\$@\"" sh "$@"
	[ -n "${RESULT:-}" ] && rm -f "$RESULT"
	# shellcheck disable=SC2086
	PT_SWAP=0 "$RUNTO" $opts "$@" >"$TMP/native.out" 2>"$TMP/native.err" </dev/null
	rc=$?
	if [ $rc = 77 ]; then
		echo "skip $WHAT: $(tail -1 "$TMP/native.err")"
		exit 77
	fi
	if [ $rc != "${WANT:-0}" ]; then
		tail -30 "$TMP/native.err"
		fail "$WHAT: natively status $rc, expected ${WANT:-0} (the test itself is wrong here)"
	fi
	if [ -n "${RESULT:-}" ]; then
		[ "$(cat "$RESULT" 2>/dev/null)" = ok ] || fail "$WHAT: natively no result"
		rm -f "$RESULT"
	fi
	[ -n "$NATIVE" ] && { echo "ok native: $WHAT"; exit 0; }
	rm -f "$TMP/stats.json"
	[ -n "${BEFORE:-}" ] && shift 4
	set -- "$PSWAP" run -m "$limit" -o "$TMP/stats.json" ${OPTS:-} -- "$@"
	[ -n "${BEFORE:-}" ] && set -- sh -c "$BEFORE; exec \"\$@\"" sh "$@"
	# shellcheck disable=SC2086
	PT_SWAP=1 "$RUNTO" -r "$TMP/rss" $opts "$@" >"$TMP/pswap.out" 2>"$TMP/pswap.err" </dev/null
	rc=$?
	if [ $rc != "${WANT:-0}" ]; then
		tail -80 "$TMP/pswap.err"
		[ -n "${RESULT:-}" ] && cat "$RESULT.err" 2>/dev/null
		fail "$WHAT: under pswap run -m $limit ${OPTS:-}: status $rc, natively ${WANT:-0}"
	fi
	if ! cmp -s "$TMP/native.out" "$TMP/pswap.out"; then
		diff "$TMP/native.out" "$TMP/pswap.out" | head -20
		tail -20 "$TMP/pswap.err"
		fail "$WHAT: standard output differs from the native run's"
	fi
	if [ -n "${RESULT:-}" ] && [ "$(cat "$RESULT" 2>/dev/null)" != ok ]; then
		tail -80 "$TMP/pswap.err"
		fail "$WHAT: the orphan did not get to its end"
	fi
	check_stats "$TMP/stats.json" "$limit" "${MINOUT:-1000}"
	echo "ok: $WHAT (-m $limit, pages_out $(j "$TMP/stats.json" pages_out)," \
		"peak $(mib "$(j "$TMP/stats.json" peak_footprint_bytes)") MiB)"
}
