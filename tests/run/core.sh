#!/bin/bash
# SPDX-License-Identifier: MIT
# Who cannot wait for a page: core dumps are complete, and after `pswap swapoff` a debugger sees all.
. "$(dirname "$0")/lib.sh"
need_pswap
need python3 jq
[ -z "$NATIVE" ] || skip "nothing to see natively"
PROG=$(prog core) || exit 1
export PT_SWAP=1 PT_PRESS=24

# dump ARGS HOW STATUS: the core file in $TMP/d, its check in $out
dump() {
	rm -rf "$TMP/d" && mkdir "$TMP/d"
	(cd "$TMP/d" && ulimit -c unlimited && exec timeout -k 5 60 "$PSWAP" run -m 16M -o ../s.json $1 -- \
		"$PROG" "$2") >"$TMP/out" 2>"$TMP/err"
	st=$?
	[ "$st" = "$3" ] || fail "$2: status $st, not $3: $(cat "$TMP/err")"
	[ "$(j "$TMP/s.json" pages_out)" -gt 2000 ] || fail "$2: vacuous: pages_out"
	core=$(find "$TMP/d" -type f | head -1)
	[ -n "$core" ] || fail "$2: no core file, and no $1"
	# shellcheck disable=SC2046
	out=$(python3 "$HERE/core.py" dump "$core" $(sed -n 's/^memory //p' "$TMP/out"))
}

pattern=$(cat /proc/sys/kernel/core_pattern)
case $pattern in
core | core.* | core%*)
	all='abort:134 thread:139'
	[ -z "$FULL" ] || all='abort:134 segv:139 quit:131 thread:139'
	for how in $all; do
		dump "" "${how%:*}" "${how#*:}" || fail "${how%:*}: the dump is not complete: $out"
		echo "ok: $how: $out"
		mib=${out##*dump }
		# 24 MiB of memory, libraries, stacks; none of what pswap keeps
		[ "${mib% MiB}" -lt 40 ] || fail "${how%:*}: pswap's own memory is in the dump: $out"
	done
	# Not asked for: the kernel's zeros, and the test can fail.
	dump --core=no segv 139 && fail "--core=no: complete, so this test says nothing: $out"
	case $out in
	*" wrong 0 "*) ;;
	*) fail "--core=no: neither right nor zero: $out" ;;
	esac
	;;
*) echo "note: core files go to '$pattern': not looked at" ;;
esac

# A debugger's view.
mkfifo "$TMP/in"
"$PSWAP" run -m 16M -o "$TMP/s.json" -- "$PROG" wait <"$TMP/in" >"$TMP/out" 2>"$TMP/err" &
run=$!
exec 5>"$TMP/in"
for _ in $(seq 300); do
	grep -q '^memory ' "$TMP/out" && break
	sleep 0.1
done
pid=$("$PSWAP" stat $run --json | jq '.processes[] | select(.comm == "core") | .pid')
[ -n "$pid" ] || fail "no process core in pswap stat"
mem=$(sed -n 's/^memory //p' "$TMP/out")
# shellcheck disable=SC2086
out=$(python3 "$HERE/core.py" mem "$pid" $mem) && fail "nothing is out of memory, this test says nothing"
case $out in
*" wrong 0 "*) ;;
*) fail "/proc/PID/mem shows something wrong: $out" ;;
esac
kill -STOP "$pid" # as under a debugger; the engine goes on
timeout -k 5 60 "$PSWAP" swapoff "$pid" || fail "swapoff: status $?"
# shellcheck disable=SC2086
out=$(python3 "$HERE/core.py" mem "$pid" $mem) || fail "after swapoff: $out"
[ "$("$PSWAP" stat "$pid" --json | jq .swapped_pages)" = 0 ] || fail "swapped pages are left after swapoff"
timeout -k 5 60 "$PSWAP" swapoff "$pid" || fail "a second swapoff: status $?"
"$PSWAP" swapon "$pid" || fail "swapon: status $?"
for _ in $(seq 100); do
	[ "$("$PSWAP" stat "$pid" --json | jq '.swapped_pages')" -gt 0 ] && break
	sleep 0.1
done
[ "$("$PSWAP" stat "$pid" --json | jq .footprint_bytes)" -lt $((24 * MIB)) ] ||
	fail "after swapon the limit is not kept again"
kill -CONT "$pid"
echo >&5
exec 5>&-
wait $run || fail "status $? after swapoff and swapon: $(cat "$TMP/err")"

# bad input
for args in "swapoff" "swapoff x" "swapoff 1 2" "swapoff $$" "swapon 0" "swapon $$" "run --core=maybe true"; do
	# shellcheck disable=SC2086
	"$PSWAP" $args >"$TMP/o" 2>&1
	[ $? = 125 ] && [ "$(wc -l <"$TMP/o")" = 1 ] || fail "pswap $args: $(cat "$TMP/o")"
done
echo "ok: $out"
