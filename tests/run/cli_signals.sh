#!/bin/sh
# SPDX-License-Identifier: MIT
# timeout: 60
# Signals and job control through `pswap run`: every signal reaches CMD once, whoever it was sent to.
exec python3 "$(dirname "$0")/cli_signals.py"
