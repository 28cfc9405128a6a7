#!/bin/bash
# SPDX-License-Identifier: MIT
# bench_restore.sh - the machine is as it was found after a benchmark with a zram peer, however it
# ends: by itself, by a signal, with any of its processes killed.
# timeout: 600
. "$(dirname "$0")/lib_bench.sh"
need_peer
state >"$TMP/before"

restored() {
	state >"$TMP/after"
	diff "$TMP/before" "$TMP/after" >"$TMP/diff" || fail "$1: not put back: $(cat "$TMP/diff")"
	echo "ok: $1"
}

# start NAME: a benchmark that would go on for long, in the background; returns while a sample of the
# kernel's side runs.  MAIN, GUARD (the session leader among its children) and WORKER are its pids.
start() {
	"$PSWAP" bench "$1" --size "$SIZE" --rounds "${2:-1000}" --json >"$TMP/out" 2>"$TMP/err" &
	MAIN=$!
	WORKER=
	for _ in $(seq 3000); do
		kill -0 $MAIN 2>/dev/null || fail "ended early: $(cat "$TMP/err")"
		for p in $(cat /proc/$MAIN/task/$MAIN/children 2>/dev/null); do
			[ "$(cut -d' ' -f6 /proc/$p/stat 2>/dev/null)" = "$p" ] || continue
			GUARD=$p
			WORKER=$(cat /proc/$p/task/$p/children 2>/dev/null)
		done
		if [ -n "$WORKER" ] && grep -q 'zram\|pswap-bench' /proc/swaps; then
			return
		fi
		sleep 0.01
	done
	kill -KILL $MAIN
	fail "no sample of the kernel's side within 30 s"
}

# ended STATUS WHAT: MAIN ends within a minute, with this status
ended() {
	local rc
	for _ in $(seq 600); do
		case $(cut -d' ' -f3 /proc/$MAIN/stat 2>/dev/null) in Z|'') break ;; esac
		sleep 0.1
	done
	kill -KILL $MAIN 2>/dev/null
	wait $MAIN 2>/dev/null
	rc=$?
	[ $rc = "$1" ] || fail "$2: status $rc, expected $1: $(cat "$TMP/err")"
}

timeout 100 "$PSWAP" bench munmap --size "$SIZE" --rounds 1 --json >"$TMP/out" || fail "munmap: $?"
restored "end of munmap"
timeout 100 "$PSWAP" bench scan --size "$SIZE" --rounds 1 --json >"$TMP/out" || fail "scan: $?"
restored "end of scan"

for sig in TERM:143 HUP:129; do
	for bench in munmap scan fork; do
		start $bench
		kill -"${sig%:*}" $MAIN
		ended "${sig#*:}" "$bench, SIG${sig%:*}"
		restored "$bench, SIG${sig%:*}"
		[ ! -s "$TMP/out" ] || fail "SIG${sig%:*}: printed a result"
	done
done

# A background process of a script has SIGINT ignored: env gives it back.
PSWAP_REAL=$PSWAP
cat >"$TMP/int" <<END
#!/bin/sh
exec env --default-signal=INT "$PSWAP_REAL" "\$@"
END
chmod +x "$TMP/int"
if env --default-signal=INT true 2>/dev/null; then
	PSWAP=$TMP/int
	start pageout
	kill -INT $MAIN
	ended 130 SIGINT
	restored SIGINT
	PSWAP=$PSWAP_REAL
fi

start scan
kill -KILL $MAIN
ended 137 "main killed"
restored "main killed"

start scan
kill -KILL $GUARD
for _ in 1 2 3; do kill -KILL $WORKER 2>/dev/null; done
kill -TERM $MAIN
ended 143 "guardian killed"
restored "guardian killed"

# The peer goes, the benchmark goes on and says so.
start munmap 4
kill -KILL $GUARD
ended 0 "guardian killed, benchmark goes on"
[ "$(jq -r '.zram_why | test("killed")' "$TMP/out")" = true ] || fail "why: $(cat "$TMP/out")"
jq -e '.sets | has("pswap") and (has("zram") | not)' "$TMP/out" >/dev/null || fail "sets"
restored "guardian killed, benchmark goes on"

# A sample that was killed is taken again.
start munmap 4
kill -KILL $WORKER 2>/dev/null
ended 0 "measured process killed"
jq -e '.zram_why == null and (.sets.zram.samples | length) == 4' "$TMP/out" >/dev/null ||
	fail "measured process killed: $(cat "$TMP/out")"
restored "measured process killed"
echo ok
