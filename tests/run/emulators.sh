#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs whose instructions another program runs: valgrind cannot have an engine inside and says so; qemu's user mode
# emulator is swapped itself, and its program's copy of the library keeps out of the way.
# timeout: 200
. "$(dirname "$0")/lib.sh"
need_pswap
need gcc
cat >"$TMP/maps.c" <<'EOF'
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
	static unsigned *p[30];
	unsigned s = 0;
	for (int k = 0; k < 30; k++) {
		p[k] = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int i = 0; i < 1 << 20; i++)
			p[k][i] = i * 2654435761u * (k + 1);
		usleep(2000);
	}
	for (int k = 0; k < 30; k++)
		for (int i = 0; i < 1 << 20; i++)
			s = s * 31 + p[k][i];
	printf("%u\n", s);
	return s == 0;
}
EOF
gcc -O1 -o "$TMP/maps" "$TMP/maps.c" || fail "gcc"
right=$("$TMP/maps")
tried=

if command -v valgrind >/dev/null; then
	got=$(timeout 100 "$PSWAP" run -m 40M -- valgrind -q --tool=none "$TMP/maps" 2>"$TMP/err") ||
		fail "valgrind: status $?: $(cat "$TMP/err")"
	[ "$got" = "$right" ] || fail "valgrind: $got instead of $right"
	grep -q 'valgrind runs it' "$TMP/err" || fail "valgrind: nothing said: $(cat "$TMP/err")"
	echo "ok: valgrind"
	tried=1
fi
for qemu in qemu-x86_64 qemu-x86_64-static; do
	command -v $qemu >/dev/null || continue
	got=$(timeout 100 "$PSWAP" run -m 40M -o "$TMP/json" -- $qemu "$TMP/maps" 2>"$TMP/err") ||
		fail "$qemu: status $?: $(cat "$TMP/err")"
	[ "$got" = "$right" ] || fail "$qemu: $got instead of $right"
	if [ $qemu = qemu-x86_64 ]; then
		! grep -q 'runs unswapped' "$TMP/err" || fail "$qemu: $(cat "$TMP/err")"
		WHAT=$qemu
		check_stats "$TMP/json" 40M 10000
	fi
	echo "ok: $qemu"
	tried=1
done
[ -n "$tried" ] || skip "neither valgrind nor qemu-x86_64"
