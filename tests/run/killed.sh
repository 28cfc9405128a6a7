#!/bin/bash
# SPDX-License-Identifier: MIT
# kill -9 of members, of an engine and of pswap run: nothing is left behind.
# timeout: 200
. "$(dirname "$0")/lib.sh"
[ -n "$NATIVE" ] && skip "nothing to see natively"
need_pswap
PROG=$(prog killme) || exit 1
MARK=PT_MARK=$$.$RANDOM

# The processes of the run: all that have its mark in their environment.  An engine has its program's.
ours() {
	local d
	for d in /proc/[0-9]*; do
		grep -qsa "$MARK" "$d/environ" 2>/dev/null && echo "${d#/proc/}"
	done
}

start() {
	mkdir -p "$TMP/dir"
	rm -f "$TMP/out" "$TMP/stats.json"
	env "$MARK" TMPDIR="$TMP/dir" "$PSWAP" run -m 48M -o "$TMP/stats.json" -s ram,max=8M -s file:"$TMP/dir" -- \
		"$PROG" >"$TMP/out" 2>"$TMP/err" &
	RUN=$!
	for _ in $(seq 600); do
		grep -q ready "$TMP/out" 2>/dev/null && break
		kill -0 $RUN 2>/dev/null || { cat "$TMP/err"; fail "$1: the program ended early"; }
		sleep 0.1
	done
	read -r _ P C1 C2 <"$TMP/out" || fail "$1: not ready: $(cat "$TMP/err")"
}

# What a failure leaves must not run on.
cleanup_all() {
	local p
	for p in $(ours); do
		kill -9 "$p" 2>/dev/null
	done
	cleanup
}
trap cleanup_all EXIT

# All gone, within seconds, and nothing in the store's directory.
gone() {
	for _ in $(seq 50); do
		LEFT=$(ours)
		[ -z "$LEFT" ] && break
		sleep 0.1
	done
	[ -z "$LEFT" ] || fail "$1: left behind: $(for p in $LEFT; do echo "$p $(cat /proc/$p/comm)"; done)"
	[ -z "$(ls -A "$TMP/dir")" ] || fail "$1: files left: $(ls -A "$TMP/dir")"
	echo "ok: $1"
}

used() {
	"$PSWAP" stat "$P" --json >"$TMP/now.json" 2>"$TMP/err2" || fail "pswap stat: $(cat "$TMP/err2")"
	jq -r "$1" "$TMP/now.json"
}

# A member: its share of everything goes, the others go on.
start member
BEFORE=$(used .swapped_pages) FOOT=$(used .footprint_bytes) FILE=$(used '.stores[] | select(.name == "file") | .used_bytes')
[ "$FILE" -gt 0 ] || fail "vacuous: nothing is in the file"
kill -9 "$C1"
for _ in $(seq 50); do
	AFTER=$(used .swapped_pages)
	[ "$AFTER" -lt "$BEFORE" ] && break
	sleep 0.1
done
[ "$AFTER" -lt "$BEFORE" ] || fail "member: swapped pages $BEFORE, then $AFTER"
echo "ok: member ($BEFORE pages were out, then $AFTER; footprint $FOOT, then $(used .footprint_bytes))"
# The first process, with a child that is alive; the child is then an orphan.
kill -9 "$P"
wait $RUN
[ $? = 137 ] || fail "program killed: status $?"
kill -9 "$C2"
gone "program"

start engine
for p in $(ours); do
	[ "$(cat /proc/$p/comm)" = pswap-engine ] && kill -9 "$p"
done
wait $RUN
[ $? = 137 ] || fail "engines killed: status $?"
grep -q "engine was killed" "$TMP/err" || fail "engines killed, and nothing is said: $(cat "$TMP/err")"
gone "engines"

start run
kill -9 $RUN
wait $RUN 2>/dev/null
kill -9 "$C1" "$C2" 2>/dev/null
gone "pswap run"
finish
