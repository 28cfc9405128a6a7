#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs that cannot be swapped run all the same, and one line says so and what to do; a machine
# without userfaultfd is refused with the cure.
. "$(dirname "$0")/lib.sh"
need_pswap
need gcc

one_line() {
	[ "$(wc -l <"$TMP/err")" = 1 ] && grep -qE -- "$2" "$TMP/err" ||
		fail "$1: expected one line with '$2': $(cat "$TMP/err")"
}
hello() {
	printf '#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\nint main(int c, char **v)
{ if (c > 2 && !strcmp(v[1], "-x")) execvp(v[2], v + 2); printf("hello %%d\\n", (int)sizeof(void *)); return 5; }\n'
}
hello >"$TMP/hello.c"
gcc -O1 -o "$TMP/dynamic" "$TMP/hello.c" || fail "gcc"

"$PSWAP" run -m 64M "$TMP/dynamic" >"$TMP/out" 2>"$TMP/err"
[ $? = 5 ] && [ ! -s "$TMP/err" ] || fail "dynamic: $(cat "$TMP/err")"

for kind in static static-pie; do
	gcc -O1 -$kind -o "$TMP/$kind" "$TMP/hello.c" 2>/dev/null || continue
	"$PSWAP" run -m 64M "$TMP/$kind" >"$TMP/out" 2>"$TMP/err"
	[ $? = 5 ] && grep -q 'hello 8' "$TMP/out" || fail "$kind did not run"
	one_line $kind 'static.* runs unswapped .*; link it dynamically'
	# What it starts is swapped.
	"$PSWAP" run -m 64M "$TMP/$kind" -x env 2>/dev/null | grep -q '^LD_PRELOAD=.*libpswap-preload' ||
		fail "$kind: the library is not preloaded into what it starts"
done
# One that a child is, once it is large.
printf '#include <string.h>\n#include <unistd.h>\nstatic char m[40 << 20];\nint main(void) { memset(m, 1, sizeof(m)); sleep(1); return m[77] != 1; }\n' >"$TMP/large.c"
if gcc -O1 -static -o "$TMP/large" "$TMP/large.c" 2>/dev/null; then
	"$PSWAP" run -m 64M sh -c "$TMP/large; true" 2>"$TMP/err" || fail "a static child: status $?"
	one_line "a static child" 'large .process [0-9]+. .*runs unswapped'
	"$PSWAP" run -m 64M "$TMP/large" 2>"$TMP/err"
	one_line "a static command" 'static.* runs unswapped'
fi
# the interpreter counts
printf '#!%s\n' "$TMP/static" >"$TMP/script"
chmod +x "$TMP/script"
"$PSWAP" run -m 64M "$TMP/script" </dev/null >/dev/null 2>"$TMP/err"
grep -q 'static' "$TMP/err" || fail "a script with a static interpreter: $(cat "$TMP/err")"

if gcc -m32 -o "$TMP/small" "$TMP/hello.c" 2>/dev/null; then
	"$PSWAP" run -m 64M "$TMP/small" >"$TMP/out" 2>"$TMP/err"
	[ $? = 5 ] && grep -q 'hello 4' "$TMP/out" || fail "32 bits did not run"
	one_line "32 bits" '64-bit.* runs unswapped; use a build'
fi

[ "$(id -u)" = 0 ] || { echo "the rest needs root"; exit 0; }
need setpriv
chmod 755 "$TMP"
user() {
	setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
}
user test -x "$PSWAP" || skip "user nobody cannot get at $PSWAP"

# set-user-id for somebody else than its owner
cp "$TMP/dynamic" "$TMP/suid"
chown 1:1 "$TMP/suid"
chmod 4755 "$TMP/suid"
"$PSWAP" run -m 64M "$TMP/suid" >"$TMP/out" 2>"$TMP/err"
[ $? = 5 ] && grep -q 'hello 8' "$TMP/out" || fail "set-user-id did not run"
one_line suid 'runs unswapped; use a copy without'
# root's own: nothing changes
chown 0:0 "$TMP/suid"
chmod 4755 "$TMP/suid"
"$PSWAP" run -m 64M "$TMP/suid" >"$TMP/out" 2>"$TMP/err"
[ $? = 5 ] && [ ! -s "$TMP/err" ] || fail "root's set-user-id: $(cat "$TMP/err")"

# no userfaultfd for nobody
if ! user test -r /dev/userfaultfd && [ "$(cat /proc/sys/vm/unprivileged_userfaultfd)" = 0 ]; then
	user "$PSWAP" run -m 64M touch "$TMP/started" >"$TMP/out" 2>"$TMP/err"
	[ $? = 125 ] || fail "no userfaultfd: status"
	one_line "no userfaultfd" '--device /dev/userfaultfd.*sysctl vm.unprivileged_userfaultfd=1'
	[ ! -e "$TMP/started" ] || fail "no userfaultfd: started"
	user "$PSWAP" doctor >"$TMP/out" 2>&1 && fail "doctor says it works"
	grep -q 'does not work.*sysctl' "$TMP/out" || fail "doctor: $(cat "$TMP/out")"
	# What would not be swapped anyway is run.
	user "$PSWAP" run -m 64M "$TMP/static" >"$TMP/out" 2>"$TMP/err"
	[ $? = 5 ] || fail "static without userfaultfd"
fi
exit 0
