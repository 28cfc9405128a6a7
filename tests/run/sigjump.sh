#!/bin/bash
# SPDX-License-Identifier: MIT
# Handlers of signals that jump out of memory calls.
# timeout: 150
. "$(dirname "$0")/lib.sh"
need_pswap
both 32M sigjump 96 300
finish
