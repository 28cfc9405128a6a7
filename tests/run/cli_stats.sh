#!/bin/bash
# SPDX-License-Identifier: MIT
# -o, -v, stat, top and doctor: every key is there, and the figures are possible.
. "$(dirname "$0")/lib.sh"
need_pswap
need jq python3

integers="limit_bytes footprint_bytes peak_footprint_bytes resident_bytes pool_bytes peak_pool_bytes
metadata_bytes swapped_pages pages_out pages_in pages_same_filled pages_clean_dropped faults faults_zero
fault_ns_p50 fault_ns_p99 batch_frees entry_frees cluster_frees lru_drains"
keys() {
	local k
	for k in $integers; do
		jq -e ".$k | type == \"number\" and . >= 0 and floor == ." "$1" >/dev/null ||
			fail "$2: $k is missing or no integer: $(head -c 400 "$1")"
	done
	jq -e '.stores | type == "array" and all(.[]; (.name | type == "string") and
		([.used_bytes, .capacity_bytes, .io_errors] | all(type == "number")))' "$1" >/dev/null ||
		fail "$2: stores: $(jq -c .stores "$1")"
	jq -e '.processes | type == "array" and length > 0 and all(.[]; (.comm | type == "string") and
		([.pid, .footprint_bytes, .pages_out, .pages_in] | all(type == "number")))' "$1" >/dev/null ||
		fail "$2: processes: $(jq -c .processes "$1")"
}

# A program far under its limit: 40 MiB of 256.
"$PSWAP" run -m 256M -o "$TMP/s.json" -v -- python3 -c 'b = bytearray(40 << 20)
for i in range(0, len(b), 4096): b[i] = 1
import time; time.sleep(0.3)' 2>"$TMP/err" || fail "python3: $(cat "$TMP/err")"
keys "$TMP/s.json" "-o FILE"
[ "$(j "$TMP/s.json" limit_bytes)" = $((256 * MIB)) ] || fail "limit_bytes"
peak=$(j "$TMP/s.json" peak_footprint_bytes)
[ "$peak" -ge $((40 * MIB)) ] && [ "$peak" -le $((80 * MIB)) ] || fail "peak_footprint_bytes $peak"
grep -q '^pswap: .*peak' "$TMP/err" || fail "-v: no summary: $(cat "$TMP/err")"
jq -e '.processes[] | select(.comm == "python3")' "$TMP/s.json" >/dev/null || fail "no python3 in processes"

# to standard error, a short program, a status that is not 0
"$PSWAP" run -m 64M -o - -- sh -c 'exit 3' 2>"$TMP/e.json"
[ $? = 3 ] || fail "-o -: status"
keys "$TMP/e.json" "-o -"
[ "$(j "$TMP/e.json" peak_footprint_bytes)" -gt 0 ] || fail "a short program has no peak"

# a tree of processes, one of them statically linked if there is one
"$PSWAP" run -m 256M -o "$TMP/t.json" -- sh -c 'sleep 0.4 & python3 -c "import time; time.sleep(0.3)" & wait' ||
	fail "tree"
keys "$TMP/t.json" tree
[ "$(jq '.processes | length' "$TMP/t.json")" -ge 3 ] || fail "tree: processes $(jq -c .processes "$TMP/t.json")"

# live: through CMD, through pswap itself
"$PSWAP" run -m 64M -- sleep 30 &
run=$!
sleep 0.5
cmd=$(pgrep -P $run -x sleep)
[ -n "$cmd" ] || fail "no child of pswap run"
for pid in $cmd $run; do
	"$PSWAP" stat $pid --json >"$TMP/live.json" || fail "stat $pid --json"
	[ "$(j "$TMP/live.json" limit_bytes)" = $((64 * MIB)) ] || fail "stat $pid: limit"
done
keys "$TMP/live.json" "stat --json"
"$PSWAP" stat $cmd | grep -q '^footprint' || fail "stat: no footprint"
"$PSWAP" stat --prometheus $cmd >"$TMP/prom" || fail "stat --prometheus"
grep -q "^pswap_limit_bytes $((64 * MIB))$" "$TMP/prom" || fail "prometheus: $(head -3 "$TMP/prom")"
bad=$(grep -vE '^(# TYPE pswap_[a-z0-9_]+ (gauge|counter|summary)|pswap_[a-z0-9_]+(\{[a-z]+="[^"]*"\})? [0-9]+)$' "$TMP/prom")
[ -z "$bad" ] || fail "prometheus: $bad"
"$PSWAP" top $cmd | grep -q sleep || fail "top PID: $("$PSWAP" top $cmd)"
"$PSWAP" top | grep -q sleep || fail "top: $("$PSWAP" top)"
kill $cmd
wait $run
[ $? = 143 ] || fail "status of a killed sleep"

"$PSWAP" doctor --json >"$TMP/d.json" || fail "doctor --json"
jq -e '.can_run and (.userfaultfd.access | type == "string") and .memory_bytes > 0' "$TMP/d.json" >/dev/null ||
	fail "doctor: $(cat "$TMP/d.json")"
"$PSWAP" doctor | grep -q '^pswap run     works' || fail "doctor"
exit 0
