#!/bin/sh
# SPDX-License-Identifier: MIT
# deps.sh [build|test|bench] - installs the Debian packages that are missing for the purpose
# (default: test), when root; else says which. Quick when nothing is missing.
set -eu

build="meson ninja-build pkg-config gcc libc6-dev liburing-dev liblz4-dev libzstd-dev libxxhash-dev
libsodium-dev libjansson-dev libncurses-dev jq"
test="$build libcmocka-dev libzydis-dev clang libclang-rt-14-dev python3 sqlite3 xz-utils g++ strace
gdb procps psmisc util-linux libcap2-bin"
case ${1:-test} in
build) want=$build ;;
test | bench) want=$test ;;
*) echo "deps.sh: no purpose '$1' (build, test, bench)" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
	echo "deps.sh: not a Debian system, going on with what is here. Needed: $(echo $want)" >&2
	exit 0
fi

have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $want 2>/dev/null |
	sed -n 's/^installed //p') || true
missing=
for p in $want; do
	case "
$have
" in
	*"
$p
"*) ;;
	*) missing="$missing $p" ;;
	esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "deps.sh: missing packages. Run as root: apt-get install$missing" >&2
	exit 1
fi
echo "deps.sh: installing$missing"
export DEBIAN_FRONTEND=noninteractive
install() {
	apt-get install -y -q --no-install-recommends $missing >/tmp/pswap-deps.$$ 2>&1
}
if ! install; then
	apt-get update -q >/dev/null
	if ! install; then
		cat /tmp/pswap-deps.$$ >&2
		rm -f /tmp/pswap-deps.$$
		echo "deps.sh: apt-get could not install$missing" >&2
		exit 1
	fi
fi
rm -f /tmp/pswap-deps.$$
