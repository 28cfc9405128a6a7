#!/bin/bash
# SPDX-License-Identifier: MIT
# bench/apps.sh - wall times of programs from Debian: native, under pswap, and under the kernel's swap
# on zram at equal memory.  A benchmark; whether the results are right is tests/run/apps.sh's.
#
#     bench/apps.sh [--rounds N] [--json FILE] [--4k] [APP...]
#
# FULL=1 takes the sizes of the acceptance run (2M-entry dict, 100 MB, xz -9, 2M rows, large C++).
# For each program: N, its native peak; c, its pool/memory ratio; limit L, the larger of N/4 and
# (c + 0.15) N; then
#     pswap -m L                           against a cgroup of L less our peak pool  (equal in total:
#                                          zram's own pool is not charged to a cgroup)
#     pswap -m L --count=resident -s ram   against a cgroup of L                     (equal resident)
# zram is tried with 4 KiB pages and with 64 KiB mTHP folios and the better time counts; --4k tries
# only the first.  Medians of N rounds (default 1).  oom: the kernel killed the program for lack of memory
# in its group, swap or not.
#
# Needs root, zram and a memory cgroup (version 1), else only the native and pswap columns.  What is set
# (device, swap, folio size, group) is set back at the end, on a failure, and on a signal; only
# kill -9 leaves it (then: swapoff the zram device, write its number to hot_remove).
ROUNDS=1 JSON= ONLY4K=
while [ $# -gt 0 ]; do
	case $1 in
	--rounds) ROUNDS=$2; shift 2 ;;
	--json) JSON=$2; shift 2 ;;
	--4k) ONLY4K=1; shift ;;
	-*) sed -n '3,6p' "$0"; exit 2 ;;
	*) APPS="${APPS:-} $1"; shift ;;
	esac
done
export APPS
. "$(dirname "$0")/../tests/run/lib.sh"
need_pswap
. "$HERE/lib_apps.sh"
TMO=${TMO:-3600}

# ---- the peer ----
ZRAM= DEV= GROUP= FOLIO= FOLIO_WAS= ZRAM_WHY=
THP64=/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled

swap_off() {
	[ -n "$DEV" ] && grep -q "^$DEV " /proc/swaps && swapoff "$DEV"
	return 0
}

restore() {
	trap '' INT TERM HUP
	if [ -n "$GROUP" ] && [ -d "$GROUP" ]; then
		for _ in $(seq 100); do
			# only processes that were put there by this script
			while read -r p; do kill -KILL "$p" 2>/dev/null; done <"$GROUP/cgroup.procs"
			rmdir "$GROUP" 2>/dev/null && break
			sleep 0.1
		done
	fi
	swap_off
	[ -n "$FOLIO" ] && echo "$FOLIO_WAS" >"$THP64"
	if [ -n "$ZRAM" ]; then
		echo 1 >"/sys/block/zram$ZRAM/reset" 2>/dev/null
		echo "$ZRAM" >/sys/class/zram-control/hot_remove 2>/dev/null
	fi
	GROUP= FOLIO= ZRAM= DEV=
}
trap 'restore; cleanup' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

peer_up() {
	local own
	[ "$(id -u)" = 0 ] || { ZRAM_WHY="not root"; return 1; }
	[ -w /sys/class/zram-control/hot_remove ] || { ZRAM_WHY="no zram device can be added"; return 1; }
	command -v mkswap >/dev/null && command -v swapon >/dev/null || { ZRAM_WHY="no mkswap"; return 1; }
	CG=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/mounts)
	[ -n "$CG" ] || { ZRAM_WHY="no memory cgroup (version 1)"; return 1; }
	own=$(sed -n 's/^[0-9]*:\([^:]*,\)\{0,1\}memory\(,[^:]*\)\{0,1\}:\(.*\)$/\3/p' /proc/self/cgroup)
	[ -d "$CG$own" ] && CG=$CG$own
	exec 9</sys/class/zram-control
	flock -w 600 9 || { ZRAM_WHY="another benchmark runs"; return 1; }
	ZRAM=$(cat /sys/class/zram-control/hot_add) || { ZRAM_WHY="hot_add failed"; return 1; }
	[ -n "${ZRAM_ALGORITHM:-}" ] && echo "$ZRAM_ALGORITHM" >"/sys/block/zram$ZRAM/comp_algorithm"
	ALGORITHM=$(sed 's/.*\[\(.*\)\].*/\1/' "/sys/block/zram$ZRAM/comp_algorithm")
	echo 8G >"/sys/block/zram$ZRAM/disksize"
	DEV=/dev/zram$ZRAM
	for _ in $(seq 50); do [ -b "$DEV" ] && break; sleep 0.1; done
	mkswap "$DEV" >/dev/null || { ZRAM_WHY="mkswap failed"; return 1; }
	[ -r "$THP64" ] && FOLIO_WAS=$(sed 's/.*\[\(.*\)\].*/\1/' "$THP64")
	return 0
}

# in_group BYTES always|never COMMAND...: SECS and RC, with zram as swap and this much memory
in_group() {
	local bytes=$1 folio=$2
	shift 2
	[ -n "$FOLIO_WAS" ] && { FOLIO=1; echo "$folio" >"$THP64"; }
	swapon -p 32767 "$DEV" || fail "swapon"
	GROUP=$CG/pswap-bench-apps-$$
	mkdir "$GROUP" && echo "$bytes" >"$GROUP/memory.limit_in_bytes" || fail "cgroup"
	timed sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$GROUP" "$@"
	OOM=$(awk '$1 == "oom_kill" { print $2 }' "$GROUP/memory.oom_control" 2>/dev/null)
	for _ in $(seq 100); do rmdir "$GROUP" 2>/dev/null && break; sleep 0.1; done
	GROUP=
	swapoff "$DEV" || fail "swapoff"
	[ -n "$FOLIO" ] && { echo "$FOLIO_WAS" >"$THP64"; FOLIO=; }
	return 0
}

median() {
	tr ' ' '\n' | grep . | sort -n | awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)]}'
}

# rounds COMMAND...: MED, the median of SECS, "-" when a run failed
rounds() {
	local list= i
	for i in $(seq "$ROUNDS"); do
		rm -f "$TMP/$app.out"
		"$@"
		if [ "$RC" != 0 ] || [ "$(app_hash "$app")" != "$HASH" ]; then
			MED=-
			if [ "$1" = in_group ] && [ "${OOM:-0}" -gt 0 ]; then
				MED=oom # killed by the kernel although there is swap
			else
				echo "    $app: $1: status $RC, output $([ "$(app_hash "$app")" = "$HASH" ] && echo right || echo wrong)" >&2
			fi
			return 0
		fi
		list="$list $SECS"
	done
	MED=$(echo "$list" | median)
}

zram_best() {
	local bytes=$1 a b
	rounds in_group "$bytes" never sh "$TMP/$app.app"
	a=$MED
	if [ -z "$ONLY4K" ] && [ -n "$FOLIO_WAS" ]; then
		rounds in_group "$bytes" always sh "$TMP/$app.app"
		b=$MED
		case $a in
		- | oom) a=$b ;;
		*) case $b in - | oom) ;; *) a=$(printf '%s\n%s\n' "$a" "$b" | sort -n | head -1) ;; esac ;;
		esac
	fi
	MED=$a
}

ratio() {
	case "$1$2" in *[a-z-]*) echo -; return ;; esac
	awk "BEGIN{printf \"%.2f\", $1 / $2}"
}

peer_up || { echo "no zram peer: $ZRAM_WHY"; restore; }
[ -n "$ZRAM" ] && echo "zram: $DEV, $ALGORITHM, $([ -z "$ONLY4K" ] && [ -n "$FOLIO_WAS" ] && echo "the better of 4 KiB and 64 KiB folios" || echo "4 KiB pages")"
printf '%-8s %7s %5s %7s | %7s | %7s %7s %6s | %7s %7s %6s\n' program "N MiB" c "L MiB" native \
	"pswap" "zram" ratio "p.resid" "zram" ratio
rows=
for app in $APPS; do
	app_needs "$app" || { echo "$app: not installed"; continue; }
	app_make "$app" || fail "$app: no input"
	app_native "$app"
	rounds timed sh "$TMP/$app.app"
	native=$MED
	app_ratio "$app"
	app_limit
	rounds timed "$PSWAP" run -m $LIMIT -o "$TMP/stats.json" -- sh "$TMP/$app.app"
	total=$MED
	pool=$(jq -r '.peak_pool_bytes // 0' "$TMP/stats.json" 2>/dev/null || echo 0)
	rounds timed "$PSWAP" run -m $LIMIT --count=resident -s ram -- sh "$TMP/$app.app"
	resid=$MED
	ztotal=- zresid=-
	if [ -n "$ZRAM" ]; then
		left=$((LIMIT - pool))
		# less than this and nothing can start
		[ $left -ge $((6 * MIB)) ] || left=$((6 * MIB))
		zram_best $left
		ztotal=$MED
		zram_best $LIMIT
		zresid=$MED
	fi
	printf '%-8s %7d %5s %7d | %7s | %7s %7s %6s | %7s %7s %6s\n' "$app" "$(mib "$N")" \
		"$(thousandths $C)" "$(mib $LIMIT)" "$native" "$total" "$ztotal" \
		"$(ratio "$ztotal" "$total")" "$resid" "$zresid" "$(ratio "$zresid" "$resid")"
	rows="$rows$app $N $C $LIMIT ${pool:-0} $native $total $ztotal $resid $zresid
"
done
echo "seconds; ratio: zram's time divided by ours, over 1: pswap is faster"
if [ -n "$JSON" ]; then
	printf '%s' "$rows" | jq -Rn --arg why "$ZRAM_WHY" --argjson rounds "$ROUNDS" '
		def num: if . == "-" or . == "oom" then null else tonumber end;
		{ bench: "apps", unit: "seconds", rounds: $rounds,
		  zram_why: (if $why == "" then null else $why end),
		  rows: [ inputs | select(length > 0) | split(" ") |
			{ app: .[0], native_peak_bytes: (.[1] | num), pool_ratio: ((.[2] | num) / 1000),
			  limit_bytes: (.[3] | num), peak_pool_bytes: (.[4] | num), native: (.[5] | num),
			  pswap: (.[6] | num), zram_equal_total: (.[7] | num),
			  pswap_resident: (.[8] | num), zram_equal_resident: (.[9] | num) } ] }' >"$JSON"
fi
exit 0
