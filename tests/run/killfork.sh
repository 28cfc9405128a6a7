#!/bin/bash
# SPDX-License-Identifier: MIT
# A fork that never returns, because its thread is killed in it: the engine must not wait for it.
# timeout: 120
. "$(dirname "$0")/lib.sh"
[ -n "$NATIVE" ] && skip "nothing to see natively"
need_pswap
PROG=$(prog killfork) || exit 1
MARK=PT_MARK=$$.$RANDOM
N=${FULL:+40}
N=${N:-3}

# Engines of the run, but for those whose program still runs.
left() {
	local d n=0
	for d in /proc/[0-9]*; do
		[ "$(cat "$d/comm" 2>/dev/null)" = pswap-engine ] &&
			grep -qsa "$MARK" "$d/environ" 2>/dev/null && n=$((n + 1))
	done
	echo $n
}

# An engine waits up to 5 s for a child that may have been made.
none_left() {
	for _ in $(seq 100); do
		[ "$(left)" = 0 ] && return
		sleep 0.1
	done
	fail "$1: $(left) engines left of $N"
}

for how in exec first exit; do
	for i in $(seq "$N"); do
		env "$MARK" timeout -k 5 30 "$PSWAP" run -m 32M -- "$PROG" $how $((50000 + i * 1317)) \
			>/dev/null 2>"$TMP/err" || fail "$how $i: status $?: $(cat "$TMP/err")"
	done
	none_left "$how"
	echo "ok: $how, $N times"
done
for i in $(seq "$N"); do
	rm -f "$TMP/out"
	env "$MARK" "$PSWAP" run -m 32M -- "$PROG" wait >"$TMP/out" 2>"$TMP/err" &
	run=$!
	for _ in $(seq 100); do
		grep -qs ready "$TMP/out" && break
		sleep 0.1
	done
	sleep 0.0$i
	pid=$("$PSWAP" stat $run --json | jq '.processes[0].pid')
	kill -9 "$pid" || fail "wait: no process $pid"
	wait $run
	[ $? = 137 ] || fail "wait: status is not that of SIGKILL"
done
none_left "killed"
echo "ok: killed, $N times"
