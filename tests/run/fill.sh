#!/bin/bash
# SPDX-License-Identifier: MIT
# Fill with data that depends on the address, rewrite twice; right data, and the limit holds for our own
# account and for the kernel's maximum RSS.  FILL_SIZE, FILL_LIMIT: default 256M in 128M, with
# FULL=1 1G in 512M.
. "$(dirname "$0")/lib.sh"
need_pswap
if [ -n "$FULL" ]; then
	SIZE=${FILL_SIZE:-1G} LIMIT=${FILL_LIMIT:-512M}
else
	SIZE=${FILL_SIZE:-256M} LIMIT=${FILL_LIMIT:-128M}
fi
rss_bound() {
	local rss
	[ -n "$NATIVE" ] && return
	rss=$(cat "$TMP/rss")
	[ "$rss" -le "$(bound "$LIMIT")" ] ||
		fail "ru_maxrss $(mib "$rss") MiB with -m $LIMIT (bound $(mib "$(bound "$LIMIT")") MiB)"
	echo "    ru_maxrss $(mib "$rss") MiB"
}
TMO=${FULL:+600}
TMO=${TMO:-120}
MINOUT=$((($(bytes "$SIZE") - $(bytes "$LIMIT")) / 4096))
both "$LIMIT" fill -c mixed "$SIZE"
rss_bound
both "$LIMIT" fill -c random "$SIZE"
rss_bound
both "$LIMIT" fill -c mixed -t 4 "$SIZE"
rss_bound
finish
