#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs with a userfaultfd of their own.
# timeout: 240
. "$(dirname "$0")/lib.sh"
need_pswap
both 40M ownuffd early
both 40M ownuffd late
finish
