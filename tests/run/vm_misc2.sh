#!/bin/bash
# SPDX-License-Identifier: MIT
# mseal, pkeys, several mappings at once, policies, shared memory and others.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=36
for how in ${HOW:-seal pkey multi oldzero across numa shm remapfile barrier perf refs merge locked other}; do
	both 48M vm_misc2 $how
done
finish
