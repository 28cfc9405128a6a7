#!/bin/bash
# SPDX-License-Identifier: MIT
# fork in a threaded process: 8 arenas and 40 open files swapped.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
PRESS=72
mkdir "$TMP/files"
both 64M forkmt arenas "$TMP/files"
# Eight busy threads and three that fork.
both 64M forkmt busy
both 32M forkmt churn
finish
