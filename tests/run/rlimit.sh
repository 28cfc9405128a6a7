#!/bin/bash
# SPDX-License-Identifier: MIT
# Small resource limits, set by the program or before it.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for how in as data nofile fsize memlock; do
	both 40M rlimit $how
done
BEFORE="ulimit -v 4000000" both 40M rlimit none
BEFORE="ulimit -n 12" both 40M rlimit none
BEFORE="ulimit -l 0" both 40M rlimit none
BEFORE="ulimit -s 256" both 40M rlimit none
finish
