#!/bin/bash
# SPDX-License-Identifier: MIT
# make -j4 of a C++ project whose compilers together need four times the limit: it builds, what it built is
# right, and the footprint of the tree, looked at every 20 ms from outside, stays in bounds.
# It takes minutes, so only with FULL=1 (compilers of 200 MiB each) or SMALL=1 (of 40).
# timeout: 400
. "$(dirname "$0")/lib.sh"
[ -n "$FULL${SMALL:-}${NATIVE:-}" ] || skip "it takes minutes: SMALL=1 or FULL=1 runs it"
need_pswap
need g++ make
SAMPLE=$(prog treesample) || exit 1
cd "$TMP" || exit 1

unit() {
	echo "#include <algorithm>
#include <map>
#include <string>
#include <vector>
${FULL:+#include <regex>}
namespace n$1 {
template <int N> struct tree {
	std::map<int, std::vector<std::string>> m;
	tree<N - 1> t;
	int sum() const { int s = t.sum(); for (auto &p : m) s += p.first * N; return s; }
};
template <> struct tree<0> { int sum() const { return $1; } };
int run(const std::string &s) {
	tree<${FULL:+4}9> t;
	return t.sum() + (int)s.size()${FULL:+ + std::regex_match(s, std::regex(\"a(b|c)*d$1\"))};
}
}"
}

for i in 1 2 3 4; do
	unit $i >f$i.cc
done
{
	echo '#include <cstdio>'
	echo '#include <string>'
	for i in 1 2 3 4; do
		echo "namespace n$i { int run(const std::string &); }"
	done
	echo 'int main() { printf("%d\n", n1::run("abcd1") + n2::run("ad2") + n3::run("x") + n4::run("")); }'
} >main.cc
printf 'prog: main.o f1.o f2.o f3.o f4.o\n\tg++ -o $@ $^\n%%.o: %%.cc\n\tg++ -O1 -c $< -o $@\n' >Makefile

"$SAMPLE" -i 10 native make -sj4 || { [ $? = 77 ] && skip "no memory cgroup"; fail "natively it does not build"; }
WANT=$(./prog)
PEAK=$(awk '/^peak/ { print $2 }' native)
[ -n "$NATIVE" ] && { echo "ok native: $(mib "$PEAK") MiB"; exit 0; }
LIMIT=$(mib $((PEAK / 4)))
[ "$LIMIT" -ge 16 ] || skip "the compilers need only $(mib "$PEAK") MiB"
rm -f ./*.o prog
"$SAMPLE" -i 20 -b "$(bound "${LIMIT}M")" swapped timeout 350 "$PSWAP" run -m "${LIMIT}M" -o stats.json -- \
	make -sj4 2>err || { tail -20 err; fail "under pswap run -m ${LIMIT}M it does not build"; }
[ "$(./prog)" = "$WANT" ] || fail "another result: $(./prog), natively $WANT"
grep -q '^over 0$' swapped || fail "-m ${LIMIT}M: $(tr '\n' ' ' <swapped)bound $(bound "${LIMIT}M")"
WHAT=make check_stats stats.json "${LIMIT}M" 1000
echo "ok: make -j4 with -m ${LIMIT}M, natively $(mib "$PEAK") MiB: $(tr '\n' ' ' <swapped)"
finish
