#!/bin/bash
# SPDX-License-Identifier: MIT
# What a fork left shared is copied at full speed: the limit of the tree holds (src/cow.h).
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
for who in parent child both; do
	both 64M forkcopy $who seq 56 2
	both 64M forkcopy $who random 56 2
done
both 64M forkcopy parent seq 200 4
both 256M forkcopy parent seq 240 2
both 256M forkcopy both random 240 4
finish
