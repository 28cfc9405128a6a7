#!/bin/bash
# SPDX-License-Identifier: MIT
# Bad input of every command: one line on standard error that names what is wrong, exit status 125,
# and nothing is started.
. "$(dirname "$0")/lib.sh"

bad=0
# refused PATTERN ARG...: runs pswap ARG...
refused() {
	local pattern=$1 rc lines
	shift
	rm -f "$TMP/started"
	"$PSWAP" "$@" >"$TMP/out" 2>"$TMP/err" </dev/null
	rc=$?
	lines=$(wc -l <"$TMP/err")
	if [ $rc != 125 ] || [ "$lines" != 1 ] || ! grep -qE -- "$pattern" "$TMP/err" ||
		! grep -q '^pswap: ' "$TMP/err" || [ -s "$TMP/out" ] || [ -e "$TMP/started" ]; then
		echo "pswap $*: status $rc, expected 125 and one line with '$pattern', nothing started:"
		cat "$TMP/err" "$TMP/out"
		bad=1
	fi
}
cmd="touch $TMP/started"

refused 'no command'
refused "'frobnicate'" frobnicate
refused 'CMD' run
refused 'CMD' run -m 64M
refused 'CMD' run -m 64M --
for size in '' 0 -5M 12x 1.5G M 64MB '64 M' 0x100 99999999999999999999 ' 64M' auto1; do
	refused '-m.*(SIZE|size|at least|address)' run -m "$size" -- $cmd
	refused '-m.*(SIZE|size|at least|address)' run "--memory=$size" $cmd
done
refused 'at least 16M' run -m 16777215 $cmd
refused 'at least 16M' run -m 15M $cmd
refused 'address space' run -m 128T $cmd
refused 'address space' run -m 8388608T $cmd
refused 'address space' run -m 9999999T $cmd
refused "'-m' needs a value: -m SIZE" run -m
refused "memory.*needs a value: --memory=SIZE" run --memory
refused 'count.*all or resident.*most' run --count=most $cmd
refused 'count.*needs a value.*all.resident' run --count
refused 'takes no value.*per-process' run --per-process=yes $cmd
refused 'takes no value.*verbose' run --verbose=2 $cmd
refused "unknown option '-x'.*-m SIZE" run -x $cmd
refused "unknown option '--limit=4G'.*-m SIZE" run --limit=4G $cmd
refused "unknown option '-vx'" run -vx $cmd
for store in '' tape ramfile ram: ram:codec=gzip ram:codec= ram:codec=zstd:99 ram:codec=zstd:x \
	ram:max=0 ram:max=lots ram:size=1G ram,frob=1 file:/var/tmp,size=0 file:/var/tmp,size=x \
	file:/var/tmp,encrypt=maybe file:/var/tmp,codec=lz4 nbds; do
	refused "store.*'$store'" run -m 64M -s "$store" $cmd
done
refused "'-s' needs a value: -s STORE" run -s
# shellcheck disable=SC2046
refused 'store.*at most 8' run $(printf -- '-s ram %.0s' 1 2 3 4 5 6 7 8 9) $cmd
refused "stats.*'/nonexistent/x'.*No such" run -o /nonexistent/x $cmd
refused "stats.*'$TMP'.*directory" run -o "$TMP" $cmd
refused "'-o' needs a value: -o FILE" run -o
refused 'process id' stat
refused "'abc'" stat abc
refused "'12x'" stat 12x
refused "'0'" stat 0
refused "'-1'" stat -1
refused 'at most 1' stat 1 2
refused 'no process 4194304' stat 4194304
refused "process $$ does not run under pswap" stat $$
refused "unknown option '--xml'.*--json" stat --xml 1
refused "'abc'" top abc
refused "process $$ does not run under pswap" top $$
refused "unknown option '-x'" top -x
refused "'x'" doctor x
refused "unknown option '--xml'.*--json" doctor --xml
exit $bad
