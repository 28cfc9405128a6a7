#!/bin/bash
# SPDX-License-Identifier: MIT
# bench_compare.sh - tables of saved results, and what is not one.  Needs no userfaultfd.
. "$(dirname "$0")/lib_bench.sh"

# bad PATTERN ARG...: one line, exit 125, nothing printed
bad() {
	local want=$1 rc
	shift
	timeout 20 "$PSWAP" bench compare "$@" >"$TMP/out" 2>"$TMP/err"
	rc=$?
	[ $rc = 125 ] || fail "compare $*: status $rc, expected 125"
	[ ! -s "$TMP/out" ] || fail "compare $*: wrote to standard output"
	[ "$(wc -l <"$TMP/err")" = 1 ] || fail "compare $*: not one line: $(cat "$TMP/err")"
	grep -q -- "$want" "$TMP/err" || fail "compare $*: no '$want' in: $(cat "$TMP/err")"
}

row() {
	grep -m1 -- "^  $1 " "$TMP/out" || fail "no row $1 in: $(cat "$TMP/out")"
}

result() { # NAME BENCH SAMPLES
	echo "{\"bench\":\"$2\",\"size_bytes\":1,\"fill\":\"same\",\"sets\":{
		\"pswap\":{\"unit\":\"ns\",\"samples\":[$3]},
		\"$1\":{\"unit\":\"ns\",\"samples\":[7,8]}}}" >"$TMP/$1.json"
}
result a truncate 100,110,120,130
result b truncate 90,80,100,90
result c truncate 100,110,120,140
result other munmap 1,2
A=$TMP/a.json B=$TMP/b.json

timeout 20 "$PSWAP" bench compare "$A" "$B" "$TMP/c.json" >"$TMP/out" || fail "compare: status $?"
for r in Min 1st-qrtle 2nd-qrtle 3rd-qrtle Max-1 Max-5 Max-10 Max-90 Max-95 Max-99 Max Amean Stddev \
	CoeffVar BAmean-99 BAmean-95 BAmean-90 BAmean-75 BAmean-50 BAmean-25; do
	row $r >/dev/null
done
row Min | grep -q '100.00 .* 80.00 ( *20.00%) .* 100.00 ( *0.00%)' || fail "Min: $(row Min)"
row Amean | grep -q '115.00 .* 90.00 \* *21.74%\* .* 117.50 ( *-2.17%)' || fail "Amean: $(row Amean)"
row Stddev | grep -q '12.91 .* 8.16 ( *36.75%)' || fail "Stddev: $(row Stddev)"
[ "$(grep -c '^truncate: ' "$TMP/out")" = 1 ] || fail "sets: $(cat "$TMP/out")"

timeout 20 "$PSWAP" bench compare "$A" --sets pswap,a >"$TMP/out" || fail "--sets: status $?"
row Amean | grep -q '115.00 .* 7.50 \* *93.48%\*' || fail "--sets: $(row Amean)"

bad 'other.json of munmap' "$A" "$TMP/other.json"
bad 'takes two or three files' "$A"
bad 'takes two or three files'
bad 'at most three' "$A" "$A" "$A" "$A"
bad 'at most three' "$A" --sets a,b,c,d
bad 'no result has all' "$A" --sets pswap,nothing
bad 'no set in common\|no result has' "$A" "$B" --sets nothing
bad 'missing.json' "$A" "$TMP/missing.json"
bad "$TMP" "$A" "$TMP"
for text in '' '{' '{"bench": "truncate"' 'nonsense' '[1]' '{}' '{"bench": 5}'; do
	printf '%s' "$text" >"$TMP/broken.json"
	bad 'broken.json' "$A" "$TMP/broken.json"
	bad 'broken.json' "$TMP/broken.json" "$A"
done
bad 'no set in common' "$A" <(echo '{"bench":"truncate","sets":{}}')
bad 'no samples' "$A" <(echo '{"bench":"truncate","sets":{"pswap":{"unit":"ns","samples":[]}}}')
bad 'not a number' "$A" <(echo '{"bench":"truncate","sets":{"pswap":{"unit":"ns","samples":["x"]}}}')
bad 'unit ns .* us' "$A" <(echo '{"bench":"truncate","sets":{"pswap":{"unit":"us","samples":[1]}}}')
bad 'needs a value' "$A" --sets
bad '--frobnicate' --frobnicate "$A" "$B"

# Results of `bench all`.
for f in a b; do
	jq -n --slurpfile r "$TMP/$f.json" '{bench: "all", results: $r}' >"$TMP/all_$f.json"
done
timeout 20 "$PSWAP" bench compare "$TMP/all_a.json" "$TMP/all_b.json" >"$TMP/out" ||
	fail "all: status $?"
row Amean | grep -q '115.00 .* 90.00 \*' || fail "all: $(cat "$TMP/out")"
bad 'is of all' "$TMP/all_a.json" "$A"
timeout 20 "$PSWAP" bench compare "$A" "$B" >/dev/full 2>"$TMP/err"
[ $? = 125 ] || fail ">/dev/full: status $?"
timeout 20 "$PSWAP" bench compare --help >"$TMP/out" || fail "--help: status $?"
grep -q -- '--sets' "$TMP/out" || fail "--help: no --sets"
echo ok
