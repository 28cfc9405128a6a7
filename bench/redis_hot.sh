#!/bin/bash
# SPDX-License-Identifier: MIT
# bench/redis_hot.sh [SECONDS] - do hot sets stay?  redis-server with a million keys of 300 bytes, its memory
# limited to 45 %, GETs of random keys out of the first HOT of them (a quarter: under the limit).  Prints, for
# each ten seconds, requests and page-ins, under `pswap run --count=resident`, and under the kernel's swap
# on zram in a cgroup of the same size (so that both have as much resident; needs root).  Page-ins are
# pages_in of pswap stat, and pgmajfault of the cgroup.  What was set up is taken away, also on a signal.
set -u
HERE=$(cd "$(dirname "$0")" && pwd)
PSWAP=${PSWAP:-$HERE/../build/pswap}
SECS=${1:-60}
KEYS=${KEYS:-1000000}
HOT=${HOT:-250000}
PORT=${PORT:-7463}
SIDES=${SIDES:-pswap zram}
for c in redis-server redis-cli redis-benchmark jq; do
	command -v $c >/dev/null || { echo "no $c" >&2; exit 1; }
done
TMP=$(mktemp -d /tmp/pswap-redis-hot.XXXXXX)
SERVER='' ZRAM='' GROUP=''

cleanup() {
	cli shutdown nosave >/dev/null 2>&1
	[ -n "$SERVER" ] && { sleep 0.5; kill -9 "$SERVER" 2>/dev/null; wait "$SERVER" 2>/dev/null; }
	SERVER=''
	[ -n "$GROUP" ] && { for _ in $(seq 50); do rmdir "$GROUP" 2>/dev/null && break; sleep 0.1; done; }
	GROUP=''
	if [ -n "$ZRAM" ]; then
		swapoff "/dev/zram$ZRAM" 2>/dev/null
		echo 1 >"/sys/block/zram$ZRAM/reset"
		echo "$ZRAM" >/sys/class/zram-control/hot_remove
	fi
	ZRAM=''
}
trap 'cleanup; rm -rf "$TMP"' EXIT
trap 'exit 130' INT TERM HUP

cli() {
	redis-cli -p "$PORT" "$@"
}

# start COMMAND...: a redis-server behind it, loaded
start() {
	"$@" redis-server --port "$PORT" --save '' --appendonly no --dir "$TMP" --daemonize no --enable-debug-command yes \
		>"$TMP/log" 2>&1 &
	SERVER=$!
	for _ in $(seq 100); do
		cli ping 2>/dev/null | grep -q PONG && break
		sleep 0.1
	done
	redis-benchmark -p "$PORT" -q -t set -n 10 >/dev/null || { cat "$TMP/log"; exit 1; }
	cli flushall >/dev/null
	cli debug populate "$KEYS" key 300 >/dev/null 2>&1
	[ "$(cli dbsize)" = "$KEYS" ] || { echo "not loaded: $(cli dbsize)" >&2; exit 1; }
}

# The keys of `debug populate` are key:0 and so on; redis-benchmark makes numbers of twelve digits, so a
# small client of our own asks.
cat >"$TMP/get.py" <<'P'
import random, socket, sys, time
port, hot, secs = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
s = socket.create_connection(("127.0.0.1", port))
f = s.makefile("rb")
end, n, rnd = time.time() + secs, 0, random.Random(n if (n := int(sys.argv[4])) else 1)
n = 0
while time.time() < end:
    keys = [b"key:%d" % rnd.randrange(hot) for _ in range(64)]
    s.sendall(b"".join(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(k), k) for k in keys))
    for k in keys:
        size = int(f.readline()[1:])
        if size != 300 or len(f.read(302)) != 302:
            sys.exit("wrong answer for %r" % k)
    n += len(keys)
print(n)
P

# measure NAME COUNTER: a line for each ten seconds
measure() {
	local before after n i
	for i in $(seq $((SECS / 10))); do
		before=$($2)
		n=$(python3 "$TMP/get.py" "$PORT" "$HOT" 10 "$i") || exit 1
		after=$($2)
		awk -v name="$1" -v t=$((i * 10)) -v n="$n" -v p=$((after - before)) \
			'BEGIN { printf "%-6s %3d s: %6.0f requests/s, %6.0f page-ins/s, %.2f %% of the requests\n", name, t, n / 10, p / 10, 100 * p / n }'
	done
}

pswap_ins() {
	"$PSWAP" stat "$SERVER" --json | jq .pages_in
}

zram_ins() {
	awk '$1 == "pgmajfault" { print $2 }' "$GROUP/memory.stat"
}

start env
N=$(cli info memory | tr -d '\r' | sed -n 's/^used_memory_rss://p')
cleanup
LIMIT=$((N * 45 / 100))
echo "redis-server, $KEYS keys of 300 bytes: $((N >> 20)) MiB; limit $((LIMIT >> 20)) MiB; hot keys: $HOT"
for side in $SIDES; do
	case $side in
	pswap)
		start "$PSWAP" run -m $LIMIT --count=resident -s ram --
		measure pswap pswap_ins
		;;
	zram)
		[ "$(id -u)" = 0 ] && [ -e /sys/class/zram-control/hot_add ] || { echo "no zram, or not root"; continue; }
		CG=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' /proc/mounts)
		[ -n "$CG" ] || { echo "no cgroup v1 memory controller"; continue; }
		OWN=$(sed -n 's/^[0-9]*:\([^:]*,\)\{0,1\}memory\(,[^:]*\)\{0,1\}:\(.*\)$/\3/p' /proc/self/cgroup)
		[ -d "$CG$OWN" ] && CG=$CG$OWN
		ZRAM=$(cat /sys/class/zram-control/hot_add)
		echo lz4 >"/sys/block/zram$ZRAM/comp_algorithm"
		echo 8G >"/sys/block/zram$ZRAM/disksize"
		mkswap "/dev/zram$ZRAM" >/dev/null && swapon -p 32000 "/dev/zram$ZRAM" || exit 1
		GROUP=$CG/pswap-redis-hot-$$
		mkdir "$GROUP" && echo $LIMIT >"$GROUP/memory.limit_in_bytes" || exit 1
		# shellcheck disable=SC2016
		start sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$GROUP"
		measure zram zram_ins
		;;
	esac
	cleanup
done
