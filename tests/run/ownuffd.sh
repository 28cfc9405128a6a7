#!/bin/bash
# SPDX-License-Identifier: MIT
# A program with a userfaultfd of its own, made before anything was taken over: it runs unswapped, with
# one line that says so.  (Later is too late for what is already taken over: docs/design.md.)
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
exe=$(prog ownuffd) || fail "cannot build ownuffd"
"$exe" early >"$TMP/native" 2>&1 || skip "no userfaultfd for programs here: $(tail -1 "$TMP/native")"
[ -n "$NATIVE" ] && exit 0
timeout -k 5 60 "$PSWAP" run -m 40M -- "$exe" early >"$TMP/out" 2>"$TMP/err" ||
	fail "status $?: $(tail -3 "$TMP/err")"
cmp -s "$TMP/native" "$TMP/out" || fail "output differs from the native run's"
grep -q "uses userfaultfd itself: it runs unswapped" "$TMP/err" || fail "no line that says so"
echo "ok: ownuffd early runs unswapped, and says so"
