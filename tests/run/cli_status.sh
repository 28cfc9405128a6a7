#!/bin/bash
# SPDX-License-Identifier: MIT
# `pswap run` ends as CMD ends; what cannot be run; CMD's arguments, environment and descriptors.
. "$(dirname "$0")/lib.sh"
need_pswap

bad=0
check() {
	if [ "$2" != "$3" ]; then
		echo "$1: '$2', expected '$3'"
		bad=1
	fi
}
run() {
	"$PSWAP" run -m 64M "$@" 2>"$TMP/err" </dev/null
}

for status in 0 1 7 124 125 126 127 255; do
	run sh -c "exit $status"
	check "exit $status" $? $status
done
for sig in 1 2 3 6 9 10 11 13 14 15; do
	bash -c "\"$PSWAP\" run -m 64M -- sh -c 'kill -$sig \$\$'; exit \$?" 2>/dev/null
	check "killed by $sig" $? $((128 + sig))
done
# no core of pswap's own
(cd "$TMP" && ulimit -c unlimited 2>/dev/null; run sh -c 'ulimit -c 0; kill -ABRT $$') 2>/dev/null
[ -z "$(find "$TMP" -name 'core*')" ] || { echo "a core was left"; bad=1; }

run no-such-program-here
check "not found" $? 127
grep -q "'no-such-program-here'" "$TMP/err" || { echo "not named: $(cat "$TMP/err")"; bad=1; }
run ./no/such/file
check "path not found" $? 127
run ''
check "empty name" $? 127
run /
check "a directory" $? 126
echo data >"$TMP/data"
run "$TMP/data"
check "not executable" $? 126
mkdir -p "$TMP/bin1" "$TMP/bin2"
echo x >"$TMP/bin1/tool"
printf '#!/bin/sh\necho second\n' >"$TMP/bin2/tool"
chmod +x "$TMP/bin2/tool"
out=$(PATH="$TMP/bin1:$TMP/bin2:$PATH" run tool)
check "PATH goes on past what cannot be executed" "$out" second
PATH="$TMP/bin1:$PATH" run tool
check "only a file that cannot be executed in PATH" $? 126
printf '#!/no/such/interpreter\n' >"$TMP/script"
chmod +x "$TMP/script"
run "$TMP/script"
check "no interpreter" $? 127
printf 'echo "no shebang: $1"\n' >"$TMP/plain"
chmod +x "$TMP/plain"
check "a script without #!" "$(run "$TMP/plain" arg)" "no shebang: arg"
printf '\177ELFbroken' >"$TMP/broken"
chmod +x "$TMP/broken"
run "$TMP/broken"
[ $? != 0 ] || { echo "a broken ELF file: status 0"; bad=1; }

check "options end at CMD" "$(run echo -m 1 --help -- x)" "-m 1 --help -- x"
check "options end at --" "$(run -- echo -v)" "-v"
check "empty arguments" "$(run printf '<%s>' a '' 'b c' $'d\ne')" "$(printf '<%s>' a '' 'b c' $'d\ne')"
check "--help" "$("$PSWAP" run --help | head -1)" "Usage: pswap run [OPTION...] [--] CMD [ARG...]"
check "--help with a limit" "$("$PSWAP" run -m 64M --help | head -1)" \
	"Usage: pswap run [OPTION...] [--] CMD [ARG...]"
check "--version" "$("$PSWAP" --version | cut -d' ' -f1)" pswap
check "standard input" "$(echo hello | "$PSWAP" run -m 64M cat)" hello
check "environment" "$(FOO='a b' run sh -c 'echo $FOO')" "a b"
# The shared area is not CMD's business, nor is a signal mask.
check "descriptors" "$(run sh -c 'echo /proc/self/fd/*' | wc -w)" "$(sh -c 'echo /proc/self/fd/*' </dev/null | wc -w)"
check "signal mask" "$(run grep -E 'Sig(Blk|Ign)' /proc/self/status)" "$(grep -E 'Sig(Blk|Ign)' /proc/self/status)"
check "process group" "$(run sh -c 'ps -o pgid= -p $$' | tr -d ' ')" "$(ps -o pgid= -p $$ | tr -d ' ')"
# CMD's daemon outlives pswap run.
run sh -c "(sleep 0.3; echo alive >$TMP/daemon) >/dev/null 2>&1 &"
check "status with a daemon" $? 0
sleep 1
check "daemon goes on" "$(cat "$TMP/daemon" 2>/dev/null)" alive
exit $bad
