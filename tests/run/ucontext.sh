#!/bin/bash
# SPDX-License-Identifier: MIT
# Coroutines with stacks on the heap.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
both 40M ucontext
finish
