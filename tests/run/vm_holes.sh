#!/bin/bash
# SPDX-License-Identifier: MIT
# Memory that comes and goes unseen while the engine takes it over: nothing turns to zeros.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for _ in 1 2 3; do
	both 40M vm_holes ${FULL:+400}
done
# a hundred mappings, or guards, to 2 MiB
for how in none guard readonly; do
	both 64M patchwork $how 100 8
done
both 64M patchwork none 100 3
finish
