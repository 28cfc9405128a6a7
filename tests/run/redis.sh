#!/bin/bash
# SPDX-License-Identifier: MIT
# redis-server with a quarter of the memory that it needs natively: redis_keys.py says what is done and checked.
# KEYS: how many (600000).  LIMIT: another limit.  A server's socket and files are in $TMPDIR.
# timeout: 7200
. "$(dirname "$0")/lib.sh"
. "$HERE/lib_progs.sh"
need redis-server python3
KEYS=${KEYS:-600000}
WHAT=redis-server

# drive NAME LIMIT
drive() {
	export -f sampled bound bytes
	export SAMPLE PSWAP TMP MIB OPTS
	mkdir "$TMP/$1"
	echo "$1, $KEYS keys of 300 bytes:"
	python3 "$HERE/redis_keys.py" "$TMP/$1" "$KEYS" bash -c 'sampled "$@"' sampled "$1%N" "$2" || {
		tail -20 "$TMP/$1/log"
		fail "$1"
	}
	rm -rf "${TMP:?}/$1"
}

OPTS=${OPTS:-}
drive native 0
echo "    peak $(mib "$(peak native1)") MiB"
[ -n "$NATIVE" ] && exit 0
LIMIT=${LIMIT:-$(mib $(($(peak native1) / 4)))M}
drive swapped "$LIMIT"
in_bounds swapped1 "$LIMIT" 10000
in_bounds swapped2 "$LIMIT" 0 # what was written in order may fit
echo "ok: redis-server"
