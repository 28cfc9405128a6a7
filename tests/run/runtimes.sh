#!/bin/bash
# SPDX-License-Identifier: MIT
# Runtimes that collect garbage, with heaps larger than the limit: node.js, ruby, perl.  Each builds its
# heap, walks it, changes a part, checks every element and prints a checksum, which must be the native run's.
# ONLY="node ruby": not all.  LIMIT: another limit than those below.
# timeout: 7200
. "$(dirname "$0")/lib.sh"
. "$HERE/lib_progs.sh"
cd "$TMP" || exit 1

cat >heap.js <<'END'
'use strict';
const n = +process.argv[2], a = new Array(n);
let s = 12345, h = 0;
const r = () => s = (Math.imul(s, 1103515245) + 12345) & 0x7fffffff;
const make = (i, from) => ({ id: i, from, name: 'n' + (r() % 1000003), v: [r(), from, i], w: i * 1.5 });
const check = (o, i) => {
	if (o.id !== i || o.v[2] !== i || o.v[1] !== o.from || o.w !== i * 1.5 || o.name[0] !== 'n')
		throw new Error('bad ' + i);
	h = (Math.imul(h, 31) + o.v[0] + o.v[1] + +o.name.slice(1)) | 0;
};
for (let i = 0; i < n; i++)
	a[i] = make(i, 0);
for (let round = 1; round <= 2; round++) {
	for (let i = 0; i < n; i++)
		check(a[i], i);
	// a twentieth anew, in runs that lie anywhere
	for (let k = 0; k < n / 20; k += 1000) {
		const at = r() % (n - 1000);
		for (let i = at; i < at + 1000; i++)
			a[i] = make(i, round);
	}
}
for (let i = 0; i < n; i++)
	check(a[i], i);
console.log('checksum', h);
END
cat >hash.rb <<'END'
n = ARGV[0].to_i
h = {}
s = 1
1.upto(n) { |i| s = (s * 1103515245 + 12345) & 0x7fffffff; h["k#{i}"] = [s, "v" * (s % 60 + 40), i] }
c = 0
check = lambda do
  1.upto(n) do |i|
    e = h["k#{i}"]
    raise "bad #{i}" unless e[2] == i && e[1].size == e[0] % 60 + 40 && e[1].count("v") == e[1].size
    c = (c * 31 + e[0]) % 1000000007
  end
end
check.call
1.step(n, 10) { |i| h["k#{i}"] = [i, "v" * (i % 60 + 40), i] }
check.call
1.step(n, 2) { |i| h.delete("k#{i}") }
raise "size" unless h.size == n / 2
2.step(n, 2) { |i| c = (c * 31 + h["k#{i}"][0]) % 1000000007 }
puts "checksum #{c} #{h.size}"
END
cat >hash.pl <<'END'
use strict;
my ($n, $s, $c, %h) = ($ARGV[0], 1, 0);
sub check {
	for my $i (1 .. $n) {
		my $e = $h{"k$i"};
		die "bad $i" unless $e->[2] == $i && $e->[1] eq "v" x ($e->[0] % 60 + 40);
		$c = ($c * 31 + $e->[0]) % 1000000007;
	}
}
for my $i (1 .. $n) {
	$s = ($s * 1103515245 + 12345) & 0x7fffffff;
	$h{"k$i"} = [$s, "v" x ($s % 60 + 40), $i];
}
check();
for (my $i = 1; $i <= $n; $i += 10) {
	$h{"k$i"} = [$i, "v" x ($i % 60 + 40), $i];
}
check();
print "checksum $c ", scalar(keys %h), "\n";
END

# one NAME LIMIT... -- COMMAND...: "quarter": of the native peak, and as much for the pool
one() {
	local name=$1 limits=() limit t0
	shift
	while [ "$1" != -- ]; do
		limits+=("$1")
		shift
	done
	shift
	command -v "$1" >/dev/null || { echo "skip $name: no $1"; exit 77; }
	t0=$SECONDS
	(sampled "$name" 0 "$@" >"$name.native" 2>"$name.err") </dev/null || { tail -5 "$name.err"; fail "$name: natively"; }
	echo "$name: native $((SECONDS - t0)) s, peak $(mib "$(peak "$name")") MiB"
	[ -n "$NATIVE" ] && exit 0
	[ "${limits[0]}" = quarter ] && limits=("$(mib $(($(peak "$name") / 2)))M")
	for limit in ${LIMIT:-"${limits[@]}"}; do
		WHAT=$name
		t0=$SECONDS
		(sampled "$name" "$limit" timeout -k 5 "${TMO:-1500}" "$@" >"$name.out" 2>"$name.err") </dev/null ||
			{ tail -20 "$name.err"; fail "$name: -m $limit, after $((SECONDS - t0)) s"; }
		cmp "$name.native" "$name.out" || fail "$name: -m $limit: another output than natively"
		in_bounds "$name" "$limit" 1000
		echo "ok: $name: -m $limit: $((SECONDS - t0)) s"
	done
}

for r in ${ONLY:-node ruby perl}; do
	case $r in
	node) each one node 512M 384M -- node --max-old-space-size=1500 heap.js "${NODE_N:-5000000}" ;;
	ruby) each one ruby quarter -- ruby hash.rb "${RUBY_N:-1200000}" ;;
	perl) each one perl quarter -- perl hash.pl "${PERL_N:-1000000}" ;;
	esac
done
finish "neither node nor ruby nor perl"
