#!/bin/sh
# SPDX-License-Identifier: MIT
# timeout: 60
# A shell with job control and `pswap run` on a terminal: ^Z, fg, ^C, ^\, window size.
exec python3 "$(dirname "$0")/cli_terminal.py"
