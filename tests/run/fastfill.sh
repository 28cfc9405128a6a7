#!/bin/bash
# SPDX-License-Identifier: MIT
# Eight threads that dirty fresh memory as fast as they can (FACTS trap 12): the limit holds.
. "$(dirname "$0")/lib.sh"
need_pswap
if [ -n "$FULL" ]; then
	SIZE=1G LIMIT=128M
else
	SIZE=320M LIMIT=64M
fi
TMO=120
MINOUT=$((($(bytes "$SIZE") - 2 * $(bytes "$LIMIT")) / 4096))
for c in touch same mixed; do
	both "$LIMIT" fill -c $c -r 0 -t 8 "$SIZE"
	[ -n "$NATIVE" ] && continue
	rss=$(cat "$TMP/rss")
	[ "$rss" -le "$(bound "$LIMIT")" ] ||
		fail "ru_maxrss $(mib "$rss") MiB with -m $LIMIT (bound $(mib "$(bound "$LIMIT")") MiB)"
	echo "    ru_maxrss $(mib "$rss") MiB"
done
finish
