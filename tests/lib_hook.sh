#!/bin/sh
# SPDX-License-Identifier: MIT
# lib_hook.sh OUT - compiles tests/hook_count.c with the patcher as a library for LD_PRELOAD.
set -eu
cd "$(dirname "$0")/.."
common='-std=gnu17 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -O2 -g -fPIC
	-fvisibility=hidden -fno-stack-protector -mgeneral-regs-only -Isrc -Ipreload -Itests'
# shellcheck disable=SC2086
exec ${CC:-cc} $common -shared -o "$1" tests/hook_count.c preload/patch.c preload/patch_scan.c \
	preload/stub.S -Wl,-z,initfirst -Wl,-z,now -Wl,-Bsymbolic
