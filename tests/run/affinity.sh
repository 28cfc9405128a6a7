#!/bin/bash
# SPDX-License-Identifier: MIT
# A thread that shares its CPU with a handler never shows it, and never hands it on.
. "$(dirname "$0")/lib.sh"
need_pswap
[ -n "$NATIVE" ] && { both 48M affinity 96; finish; }
[ "$(nproc)" -ge 2 ] || skip "one CPU"
both 64M affinity 96
[ $FAILED = 0 ] && [ "$(j "$TMP/stats.json" handoffs)" -lt 4 ] &&
	fail "vacuous: $(j "$TMP/stats.json" handoffs) bindings"
finish
