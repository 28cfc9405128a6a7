#!/bin/sh
# SPDX-License-Identifier: MIT
# sources.sh WHAT - the source files of one part of the tree, one a line, sorted.
set -eu
cd "$(dirname "$0")/.."
case $1 in
src | cli) find "$1" -maxdepth 1 -name '*.c' ;;
preload) find preload -maxdepth 1 -name '*.c' -o -maxdepth 1 -name '*.S' ;;
test) find tests -maxdepth 1 -name 'test_*.c' -printf '%f\n' ;;
fuzz) find tests -maxdepth 1 -name 'fuzz_*.c' -printf '%f\n' ;;
progs) find tests/progs -maxdepth 1 -name "*.c" -printf "%f\n" ;;
man) find docs/man -name '*.[1-8]' ;;
all) for part in src cli preload test fuzz progs man; do "$0" "$part" | sed "s|^|$part |"; done; ls demo ;;
*) echo "sources.sh: no part '$1'" >&2; exit 2 ;;
esac | LC_ALL=C sort
