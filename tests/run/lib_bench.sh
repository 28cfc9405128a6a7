# SPDX-License-Identifier: MIT
# lib_bench.sh - sourced by the bench_*.sh tests; not a test.
# PSWAP_BIN or PSWAP: the command (default: build/pswap of this tree).

set -u
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PSWAP=${PSWAP_BIN:-${PSWAP:-$TOP/build/pswap}}
SIZE=${SIZE:-64M}
TMP=$(mktemp -d "${TMPDIR:-/tmp}/pswap-bench.XXXXXX")
trap 'rm -rf "$TMP"' EXIT

skip() {
	echo "skip: $*"
	exit 77
}

fail() {
	echo "FAIL: $*"
	exit 1
}

[ -x "$PSWAP" ] || skip "no $PSWAP (make build)"
for c in jq flock timeout; do
	command -v $c >/dev/null || skip "no $c"
done
case $("$PSWAP" bench munmap --size 0 2>&1) in
*"not in this build"*) skip "no bench in this build" ;;
esac

# The library must work here: else every benchmark says why and ends with 125.
need_pswap() {
	timeout 60 "$PSWAP" bench munmap --size 2M --rounds 1 --peer none --json >"$TMP/probe" 2>&1 ||
		skip "pswap does not work here: $(tail -1 "$TMP/probe")"
}

need_peer() {
	[ "$(id -u)" = 0 ] || skip "the zram peer needs root"
	[ -d /sys/class/zram-control ] || skip "no zram"
	timeout 100 "$PSWAP" bench munmap --size 2M --rounds 1 --json >"$TMP/probe" ||
		fail "a 2M benchmark: status $?"
	why=$(jq -r .zram_why "$TMP/probe")
	[ "$why" = null ] || skip "no zram peer here: $why"
}

# What a peer may change, as it is now.  Under the lock that a running `pswap bench` holds until it
# has put everything back, so that another one (or the rest of a killed one) is not seen.
state() {
	flock -w 300 /sys/class/zram-control sh -c '
		cat /proc/swaps
		for d in /sys/block/zram*; do
			echo "$d $(cat "$d/disksize" "$d/initstate" "$d/comp_algorithm" | tr "\n" " ")"
		done
		for f in /sys/kernel/mm/transparent_hugepage/enabled \
			/sys/kernel/mm/transparent_hugepage/hugepages-*/enabled; do
			echo "$f $(cat "$f")"
		done
		ls -d /dev/zram* /dev/pswap-bench-* 2>/dev/null
		find /sys/fs/cgroup -maxdepth 6 -name "pswap-bench-*"' || fail "no lock after 300 s"
}
