#!/bin/bash
# SPDX-License-Identifier: MIT
# bench_json.sh - the JSON and the table of every benchmark, with and without a peer.  Small sizes:
# the figures mean nothing, their shape is tested.
# timeout: 600
. "$(dirname "$0")/lib_bench.sh"
need_pswap

# run NAME ROUNDS ARG...: leaves $TMP/NAME.json
run() {
	local name=$1 rounds=$2
	shift 2
	timeout 200 "$PSWAP" bench "$name" --size "$SIZE" --rounds "$rounds" --json "$@" \
		>"$TMP/$name.json" 2>"$TMP/err" || fail "bench $name $*: status $?: $(cat "$TMP/err")"
	WHAT="bench $name $*"
	is "$name" '.bench == $name and .rounds == $rounds and (.size_bytes > 0)' \
		--arg name "$name" --argjson rounds "$rounds"
	# Samples as many as rounds; the figures are those of the samples. A difference of memory may be
	# nothing.
	is "$name" '[.sets[] | (.samples | length) == $rounds
		and .min == (.samples | min) and .max == (.samples | max)
		and .median >= .min and .median <= .max and (.unit == "bytes" or .min > 0)
		and .spread >= 0 and (.unit | type == "string")] | all' --argjson rounds "$rounds"
	is "$name" '[.ratio[]] | all(. > 0)'
	is "$name" '.metadata_bytes >= 0 and .pool_bytes >= 0 and .swapped_pages > 0
		and .cpus > 0 and (.kernel | length > 0) and (.counted | length > 0)'
}

# is NAME FILTER ARG...: the filter must be true for the result of NAME
is() {
	local name=$1 filter=$2
	shift 2
	jq -e "$@" "$filter" "$TMP/$name.json" >/dev/null 2>&1 ||
		fail "$WHAT: not so: $filter in $(cat "$TMP/$name.json")"
}

# keys NAME PATH WORD...: exactly these keys, in any order
keys() {
	local name=$1 path=$2
	shift 2
	is "$name" "($path | keys) == (\$want | split(\" \") | sort)" --arg want "$*"
}

for fill in same mixed random; do
	run munmap 2 --peer none --fill $fill
	is munmap '.zram_why == "--peer none" and .fill == $f' --arg f $fill
	keys munmap .sets pswap pswap_returned pswap_entry
	keys munmap .ratio vs_entry
	is munmap '[.sets[] | .swapped_pages * 4096 >= 0.99 * $s] | all' \
		--argjson s "$(jq .size_bytes "$TMP/munmap.json")"
done
run pageout 2 --peer none
is pageout '.fill == "mixed"'
keys pageout .sets pswap pswap_4k
is pageout '.sets.pswap | .ns_per_page > 0 and .bytes_per_s > 0'
run scan 1 --peer none
keys scan .sets pswap pswap_resident
run random 1 --peer none
keys random .sets pswap pswap_resident
is random '.sets.pswap.unit == "ns/access"'

FORK="pswap pswap_exit pswap_returned pswap_read pswap_mem pswap_mem_read"
if "$PSWAP" run -m 64M -- true 2>"$TMP/err"; then
	run fork 2 --peer none
	keys fork .sets $FORK
	is fork '.fill == "mixed" and .sets.pswap.unit == "ns" and .sets.pswap_mem.unit == "bytes"'
	is fork '.sets | [.pswap.samples, .pswap_exit.samples, .pswap_returned.samples] | transpose
		| all(.[0] < .[1] and .[1] <= .[2])'
	# The child has read a sixteenth, into pages of its own.
	is fork '(.sets.pswap_mem_read.median - .sets.pswap_mem.median) * 32 > .size_bytes'
	is fork '.swapped_pages * 4096 >= 0.99 * .size_bytes'
	is fork '.notes | any(test("no cgroup"))'
	is fork '.sets.pswap.limit_bytes == 67108864'
else
	echo "fork was not tested: $(tail -1 "$TMP/err")"
fi

# truncate: a sample for each object, round and set; the drain rules are what they say.
WHAT="bench truncate"
timeout 200 "$PSWAP" bench truncate --size 64M --rounds 2 --json >"$TMP/truncate.json" 2>"$TMP/err" ||
	fail "bench truncate: status $?: $(cat "$TMP/err")"
keys truncate .sets pswap pswap_every pswap_huge pswap_huge_every memfd memfd_unmapped drain_0 \
	drain_1 drain_8
keys truncate .ratio vs_every vs_memfd vs_memfd_unmapped huge_vs_every huge_vs_memfd \
	huge_vs_memfd_unmapped
is truncate '[.sets[] | (.samples | length) == 32 and .min == (.samples | min) and .min > 0
	and .median >= .min and .median <= .max] | all'
is truncate '.bench == "truncate" and .size_bytes == 67108864 and .rounds == 2 and .fill == "same"'
is truncate '.sets.pswap.drains_per_object == 1 and .sets.pswap_huge.drains_per_object == 1'
is truncate '.sets.pswap_every.drains_per_object == 34' # 1024 folios, 31 a batch
is truncate '.sets.memfd.unit == "ns" and .sets.drain_0.unit == "ns/drain"'
timeout 200 "$PSWAP" bench truncate --size 4M --peer none >"$TMP/table" || fail "table: status $?"
grep -q '^truncate, 1 objects of 4 MiB, fill same, 1 round$' "$TMP/table" ||
	fail "truncate's head: $(cat "$TMP/table")"
grep -q '^  Amean ' "$TMP/table" || fail "no Amean: $(cat "$TMP/table")"
grep -q memfd_unmapped "$TMP/table" && fail "--peer none: memfd was measured"

timeout 200 "$PSWAP" bench munmap --size "$SIZE" --rounds 1 --peer none >"$TMP/table" ||
	fail "table: status $?"
grep -q 'munmap, 64 MiB, fill same, 1 round$' "$TMP/table" || fail "head: $(cat "$TMP/table")"
grep -q 'no peer: --peer none' "$TMP/table" || fail "no reason: $(cat "$TMP/table")"

# A result that cannot be written is not a success.
timeout 100 "$PSWAP" bench munmap --size 2M --rounds 1 --peer none --json >/dev/full 2>"$TMP/err"
[ $? = 125 ] || fail "--json >/dev/full: status $?"

# Without root: a reason, no peer sets, exit 0.
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
	if timeout 100 setpriv --reuid 65534 --regid 65534 --clear-groups "$PSWAP" bench munmap \
		--size 2M --rounds 1 --json >"$TMP/munmap.json" 2>"$TMP/err"; then
		WHAT="bench munmap, not root"
		is munmap '.zram_why | test("root")'
		is munmap '.sets | has("zram") | not'
	else
		# userfaultfd may be root's alone; then pswap's side says so.
		grep -q userfaultfd "$TMP/err" || fail "not root: $(cat "$TMP/err")"
	fi
fi

if [ "$(id -u)" = 0 ] && [ "$(jq -r .zram_why <(timeout 200 "$PSWAP" bench munmap --size 2M \
	--rounds 1 --json))" = null ]; then
	SIZE=32M
	run munmap 2
	is munmap '.zram_why == null and (.zram_algorithm | length > 0)'
	is munmap '.sets | has("zram") and has("zram_4k") and has("pswap") and has("pswap_entry")'
	is munmap '.sets.zram.median == ([.sets.zram_4k, .sets.zram_64k // empty | .median] | min)'
	is munmap '.ratio | has("vs_zram") and has("vs_entry") and has("returned_vs_zram")'
	is munmap '.ratio.vs_zram as $r | (.sets.zram.median / .sets.pswap.median / $r)
		| . > 0.999 and . < 1.001'
	run pageout 2
	is pageout '.sets | has("zram") and has("zram_4k") and has("pswap_4k")'
	is pageout '.ratio | has("vs_zram")'
	# Huge folios went out whole, else it was not them that were measured.
	is pageout '[.sets.zram_64k, .sets.zram_thp | values | .folios_out > 0] | all'
	run scan 1
	is scan '.sets | has("zram") and has("zram_resident")'
	is scan '.sets.zram | .peak_bytes <= .limit_bytes'
	is scan '.sets.zram.limit_bytes <= .sets.pswap.limit_bytes'
	run exit 2
	is exit '(.ratio | has("vs_zram")) and (.sets | has("pswap") and has("zram"))'
	run fork 2
	keys fork .sets $FORK zram zram_exit zram_read zram_mem zram_mem_read \
		$(jq -r '.sets | keys[] | select(test("zram_(4|64)k"))' "$TMP/fork.json")
	is fork '.sets | has("zram_4k") and has("zram_4k_exit") and has("zram_4k_mem_read")'
	is fork '.ratio | has("vs_zram") and has("exit_vs_zram") and has("returned_vs_zram")
		and has("read_vs_zram") and has("mem_read_vs_zram")'
	is fork '[.sets[] | .swapped_pages * 4096 >= 0.99 * $s] | all' \
		--argjson s "$(jq .size_bytes "$TMP/fork.json")"
	is fork '.size_bytes as $s | [.sets | .pswap_mem_read, .zram_mem_read | .median * 32 > $s] | all'
	is fork '(.notes // []) | any(test("no cgroup")) | not'
	run random 1
	is random '.ratio | has("vs_zram") and has("resident_vs_zram")'
	timeout 300 "$PSWAP" bench all --size "$SIZE" --rounds 1 --json >"$TMP/all.json" ||
		fail "bench all: status $?"
	WHAT="bench all"
	is all '[.results[].bench] == ["munmap", "pageout", "scan", "random", "truncate", "exit", "fork"]'
else
	echo "the peer was not tested: no root or no zram"
fi
echo ok
