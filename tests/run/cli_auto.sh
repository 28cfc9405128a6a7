#!/bin/bash
# SPDX-License-Identifier: MIT
# Without -m the limit comes from the smallest cgroup limit up the tree; the default file store is never
# in memory.
. "$(dirname "$0")/lib.sh"
need_pswap

limit() {
	"$PSWAP" run -o - "$@" -- true 2>&1 >/dev/null | jq .limit_bytes
}

total=$(awk '/^MemTotal/ { print $2 * 1024 }' /proc/meminfo)
l=$(limit)
[ "$l" -gt 0 ] && [ "$l" -le $((total - total / 10)) ] || fail "auto: $l of $total"
[ "$(limit -m auto)" = "$l" ] || fail "-m auto differs from none"
[ "$(limit -m 64M)" = $((64 * MIB)) ] || fail "-m 64M"
[ "$(limit -m 65536K)" = $((64 * MIB)) ] || fail "-m 65536K"
[ "$(limit -m 16777216)" = $((16 * MIB)) ] || fail "-m 16777216"

# where the file goes
stores() {
	"$PSWAP" run -m 64M "$@" -- env 2>"$TMP/err" | sed -n 's/^PSWAP=.*stores=//p' | sed 's/%3A/:/g'
}
disk=$(mktemp -d /var/tmp/pswap-test.XXXXXX)
trap 'rm -rf "$disk"; cleanup' EXIT
if [ "$(stat -f -c %T /var/tmp)" != tmpfs ]; then
	[ "$(TMPDIR=$disk stores)" = "ram;file:$disk,size=$((8 * 64 * MIB)),encrypt=on" ] ||
		fail "default stores: $(TMPDIR=$disk stores)"
	[ "$(stores -s ram)" = ram ] || fail "-s ram: $(stores -s ram)"
	[ "$(TMPDIR=$disk stores -s file,encrypt=off)" = "file:$disk,size=$((8 * 64 * MIB)),encrypt=off" ] ||
		fail "-s file: $(TMPDIR=$disk stores -s file,encrypt=off)"
	[ "$(TMPDIR=/nonexistent stores)" = "ram;file:/var/tmp,size=$((8 * 64 * MIB)),encrypt=on" ] ||
		fail "TMPDIR that is not there: $(TMPDIR=/nonexistent stores)"
	if [ "$(stat -f -c %T /dev/shm)" = tmpfs ]; then
		[ "$(TMPDIR=/dev/shm stores)" = "ram;file:/var/tmp,size=$((8 * 64 * MIB)),encrypt=on" ] ||
			fail "TMPDIR in memory: $(TMPDIR=/dev/shm stores)"
		stores -s file:/dev/shm >/dev/null
		grep -q 'in memory' "$TMP/err" || fail "file:/dev/shm: no warning"
	fi
fi

# cgroups
[ "$(id -u)" = 0 ] || { echo "cgroups need root"; exit 0; }
v1=/sys/fs/cgroup/memory v2=/sys/fs/cgroup
if [ -w $v1/cgroup.procs ]; then
	top=$v1/pswap-test-$$ file=memory.limit_in_bytes
elif grep -qw memory $v2/cgroup.subtree_control 2>/dev/null && [ -w $v2/cgroup.procs ]; then
	top=$v2/pswap-test-$$ file=memory.max
else
	echo "no memory cgroup to make a group in"
	exit 0
fi
undo() {
	rmdir "$top/sub" "$top" 2>/dev/null
	rm -rf "$disk"
	cleanup
}
trap undo EXIT
mkdir "$top" || { echo "cannot make a cgroup"; exit 0; }
[ -e "$top/$file" ] && echo $((400 * MIB)) >"$top/$file" || { echo "cannot set a cgroup's limit"; exit 0; }
mkdir "$top/sub" || fail "mkdir $top/sub"
in_group() {
	(echo $BASHPID >"$1/cgroup.procs" && limit)
}
l=$(in_group "$top/sub")
[ "$l" = $(((400 * MIB - 40 * MIB) / 4096 * 4096)) ] || fail "limit of the parent group: $l"
if [ -e "$top/sub/$file" ]; then
	echo $((200 * MIB)) >"$top/sub/$file"
	l=$(in_group "$top/sub")
	[ "$l" = $(((200 * MIB - 20 * MIB) / 4096 * 4096)) ] || fail "limit of the group: $l"
	echo $((10 * MIB)) >"$top/sub/$file"
	(echo $BASHPID >"$top/sub/cgroup.procs" && "$PSWAP" run true) 2>"$TMP/err"
	[ $? = 125 ] && grep -q 'under the least, 16M' "$TMP/err" || fail "a group of 10 MiB: $(cat "$TMP/err")"
fi
exit 0
