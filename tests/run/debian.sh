#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs from Debian, small: perl, stress-ng with --verify, a module of Python's own tests. The long
# runs are in docs/programs.md.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
TMO=${TMO:-60}

# one NAME LIMIT MIN_PAGES_OUT COMMAND...: the same status and, for perl, the same output
one() {
	local name=$1 limit=$2 min=$3 a b
	shift 3
	WHAT=$name
	trap - EXIT
	command -v "$1" >/dev/null || { echo "skip $name: no $1"; exit 77; }
	timeout -k 5 "$TMO" "$@" >"$TMP/native" 2>"$TMP/native.err" </dev/null
	a=$?
	[ $a = 0 ] || { echo "skip $name: natively status $a"; exit 77; }
	[ -n "$NATIVE" ] && { echo "ok native: $name"; exit 0; }
	timeout -k 5 $((2 * TMO)) "$PSWAP" run -m "$limit" -o "$TMP/stats.json" -- "$@" \
		>"$TMP/pswap" 2>"$TMP/pswap.err" </dev/null
	b=$?
	[ $b = $a ] || { tail -20 "$TMP/pswap.err"; fail "$name: status $b, natively $a"; }
	if [ "$name" = perl ]; then
		cmp -s "$TMP/native" "$TMP/pswap" || fail "$name: another output than natively"
	fi
	check_stats "$TMP/stats.json" "$limit" "$min"
	echo "ok: $name (-m $limit, pages_out $(j "$TMP/stats.json" pages_out)," \
		"peak $(mib "$(j "$TMP/stats.json" peak_footprint_bytes)") MiB)"
}

run() {
	(one "$@")
	case $? in
	0) PASSED=$((PASSED + 1)) ;;
	77) SKIPPED=1 ;;
	*) FAILED=$((FAILED + 1)) ;;
	esac
}

cat >"$TMP/hash.pl" <<'END'
my ($n, $s, $c, %h) = (120000, 1, 0);
for my $i (1 .. $n) {
	$s = ($s * 1103515245 + 12345) & 0x7fffffff;
	$h{"k$i"} = [$s, "v" x ($s % 40), $i];
}
for my $i (1 .. $n) {
	my $e = $h{"k$i"};
	die "bad $i" unless $e->[2] == $i && length($e->[1]) == $e->[0] % 40;
	$c = ($c * 31 + $e->[0]) % 1000000007;
}
print "$c ", scalar(keys %h), "\n";
END
run perl 44M 1000 perl "$TMP/hash.pl"
for s in "vm 1 --vm-bytes 64M" "malloc 1 --malloc-bytes 64M --malloc-touch" "brk 1" "mremap 1 --mremap-bytes 64M" "bigheap 1"; do
	# shellcheck disable=SC2086
	run "stress-ng ${s%% *}" 40M 500 stress-ng --verify --timeout 2s --temp-path "$TMP" --$s
done
# not a python of the user's: Debian's has the tests
cd "$TMP" && run "python3 test_resource" 32M 500 /usr/bin/python3 -m test test_resource
finish "none of them is installed"
