#!/bin/bash
# SPDX-License-Identifier: MIT
# Python's own tests (libpython3.*-testsuite): the same ones pass with a limit as without.
# MODULES: others.  LIMIT: another than 32M, or than 96M for those of many processes.  What depends on the load
# fails here and there natively too: a module with differences is run a second time both ways, and differing again
# is a failure.
# timeout: 14400
. "$(dirname "$0")/lib.sh"
. "$HERE/lib_progs.sh"
PY=/usr/bin/python3 # not a python of the user's: Debian's has the tests
"$PY" -c 'import test.support, test.test_mmap' 2>/dev/null || skip "no tests of python (libpython3-testsuite)"
MODULES=${MODULES:-test_mmap test_threading test_threading_local test_thread test_gc test_subprocess test_signal
	test_memoryview test_array test_bytes test_io test_posix test_os test_fork1 test_wait3 test_wait4 test_faulthandler
	test_resource test_ctypes test_dict test_list test_set test_unicode test_json test_pickle test_queue
	test_shelve test_sqlite3 test_zlib test_concurrent_futures test_multiprocessing_fork test_multiprocessing_spawn
	test_multiprocessing_forkserver test_asyncio}

# The lines "NAME ... ok" and so on, also when pswap or a test said something before the "ok".
results() {
	awk '/ \.\.\. / { sub(/ \.\.\. .*pswap: .*/, " ... "); if (/ \.\.\. $/) { held = $0; next } }
		held && /^(ok|FAIL|ERROR|skipped .*|expected failure)$/ { $0 = held $0; held = "" }
		{ print }' "$1" | grep -aE ' \.\.\. ' | sed -E "s/ in [0-9.]*s//; s/skipped .*/skipped/" |
		grep -aE '\.\.\. (ok|skipped|FAIL|ERROR|expected failure)$' | sort
}

# pass HOW LIMIT MODULE
pass() {
	mkdir -p "$TMP/cwd"
	(cd "$TMP/cwd" && TMPDIR=$TMP/cwd sampled "$1" "$2" timeout -k 5 "${TMO:-900}" "$PY" -m test -v "$3") >"$TMP/$1.out" 2>&1 </dev/null
	echo $? >"$TMP/$1.rc"
	rm -rf "$TMP/cwd"
	results "$TMP/$1.out" >"$TMP/$1.results"
}

one() {
	local try t0 t1 limit=32M
	case $1 in
	# a hundred processes at once, with an engine of 2.5 MiB each: no bound holds
	*multiprocessing*) limit=96M NOBOUND=1 ;;
	test_concurrent_futures) limit=96M ;;
	esac
	limit=${LIMIT:-$limit}
	for try in 1 2; do
		t0=$SECONDS
		pass native 0 "$1"
		t1=$SECONDS
		if [ -n "$NATIVE" ]; then
			echo "ok native: $1: status $(cat "$TMP/native.rc"), $(grep -c 'ok$' "$TMP/native.results") ok"
			exit 0
		fi
		pass swapped "$limit" "$1"
		cmp -s "$TMP/native.results" "$TMP/swapped.results" && cmp -s "$TMP/native.rc" "$TMP/swapped.rc" && break
		echo "$1: status $(cat "$TMP/native.rc") $(cat "$TMP/swapped.rc")"
		diff "$TMP/native.results" "$TMP/swapped.results" | head -20
		[ -n "${OUTDIR:-}" ] && cp "$TMP/swapped.out" "$OUTDIR/$1.$try.out"
		[ $try = 2 ] && fail "$1: other results than natively, twice"
	done
	WHAT=$1
	echo "$1: $(grep -c 'ok$' "$TMP/swapped.results") ok, status $(cat "$TMP/swapped.rc")," \
		"native $((t1 - t0)) s, $(mib "$(peak native)") MiB, with pswap $((SECONDS - t1)) s"
	in_bounds swapped "$limit" 0
}
for m in $MODULES; do
	each one "$m"
done
finish
