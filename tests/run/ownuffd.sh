#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs with a userfaultfd of their own.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
both 32M ownuffd early
both 32M ownuffd late
finish
