#!/bin/bash
# SPDX-License-Identifier: MIT
# bench_args.sh - bad input: one line that names what is wrong, exit 125, nothing printed.
. "$(dirname "$0")/lib_bench.sh"

# bad PATTERN ARG...
bad() {
	local want=$1 rc
	shift
	timeout 20 "$PSWAP" bench "$@" >"$TMP/out" 2>"$TMP/err"
	rc=$?
	[ $rc = 125 ] || fail "bench $*: status $rc, expected 125"
	[ ! -s "$TMP/out" ] || fail "bench $*: wrote to standard output"
	[ "$(wc -l <"$TMP/err")" = 1 ] || fail "bench $*: not one line: $(cat "$TMP/err")"
	grep -q -- "$want" "$TMP/err" || fail "bench $*: no '$want' in: $(cat "$TMP/err")"
}

bad 'munmap, pageout'
bad 'nonsense.*munmap, pageout' nonsense
bad 'only one' munmap pageout
for n in apps; do
	bad "$n: run bench/apps.sh" $n
done
for s in 0 -1 1X 12.5M '' M 1M 4095 100T 99999999999G 0x400000; do
	bad '--size.*takes' munmap --size "$s"
done
bad '--size' munmap --size
bad '--size.*32M' scan --size 16M
bad '--size.*32M' all --size 16M
for f in '' Same zero; do
	bad '--fill.*same, mixed or random' munmap --fill "$f"
done
for r in 0 -1 1.5 1001 many ''; do
	bad '--rounds.*1 to 1000' munmap --rounds "$r"
done
bad '--peer.*zram or none' munmap --peer kernel
bad '--json' munmap --json=yes
bad '--frobnicate' munmap --frobnicate
bad '--frobnicate' --frobnicate munmap

# The program that bench fork starts is nobody else's.
for fd in '' 0 3 99 x; do
	bad 'part of .pswap bench fork' fork-program $fd
done

timeout 20 "$PSWAP" bench --help >"$TMP/out" || fail "--help: status $?"
for o in --size --fill --rounds --peer --json munmap pageout scan random truncate exit fork compare; do
	grep -q -- "$o" "$TMP/out" || fail "--help does not mention $o"
done
echo ok
