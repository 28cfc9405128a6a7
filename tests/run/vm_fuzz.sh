#!/bin/bash
# SPDX-License-Identifier: MIT
# Random calls on memory, natively and under pswap: the model of tests/progs/vm_fuzz.c is right in both, and the counts of
# results are equal.  How much is in memory is not looked at: ranges of calls that no hook saw stay for a second.
# FULL=1: FUZZ_SEEDS (default 30) seeds of each kind, from FUZZ_SEED (default: by the clock) on.
# timeout: 3600
. "$(dirname "$0")/lib.sh"
need_pswap
EXE=$(prog vm_fuzz) || fail "cannot build vm_fuzz"
SEEDS=${FULL:+${FUZZ_SEEDS:-30}}
FIRST=${FUZZ_SEED:-${FULL:+$(date +%s)}}

# one SEED OPS THREADS MIB [WAY]
one() {
	local rc
	PT_SWAP=0 "$RUNTO" -t 60 "$EXE" "$@" >"$TMP/native.out" 2>"$TMP/native.err"
	rc=$?
	[ $rc = 0 ] || { tail -5 "$TMP/native.err"; fail "vm_fuzz $*: natively status $rc"; }
	[ -n "$NATIVE" ] && { PASSED=$((PASSED + 1)); return; }
	PT_SWAP=1 "$RUNTO" -t 200 -g 10 -a "$PSWAP" run -m 24M -o "$TMP/stats.json" -- "$EXE" "$@" \
		>"$TMP/swap.out" 2>"$TMP/swap.err"
	rc=$?
	if [ $rc != 0 ]; then
		tail -5 "$TMP/swap.err"
		echo "FAIL: vm_fuzz $*: status $rc"
	elif ! cmp -s "$TMP/native.out" "$TMP/swap.out"; then
		diff "$TMP/native.out" "$TMP/swap.out" | head -6
		echo "FAIL: vm_fuzz $*: calls gave other results than natively"
	elif [ "$(j "$TMP/stats.json" pages_out)" -lt 1000 ]; then
		echo "FAIL: vm_fuzz $*: vacuous: hardly anything was swapped"
	else
		echo "ok: vm_fuzz $* ($(j "$TMP/stats.json" pages_out) pages out, $(j "$TMP/stats.json" forks) forks)"
		PASSED=$((PASSED + 1))
		return
	fi
	FAILED=$((FAILED + 1))
}

for s in $(seq "${FIRST:-4}" $((${FIRST:-4} + ${SEEDS:-1} - 1))); do
	one "$s" 1200 1 28 libc
	one "$s" 800 1 28 syscall
	one "$s" 600 2 20
	[ -n "$SEEDS" ] && one "$s" 500 4 16
done
finish
