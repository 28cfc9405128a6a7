#!/bin/bash
# SPDX-License-Identifier: MIT
# mincore, msync, names, maps, other memory beside, growing stacks.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=36
both 48M vm_misc
finish
