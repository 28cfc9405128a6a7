#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh BUILD - what `make run` shows: a program that needs four times its limit, what was swapped, and
# the time of munmap beside the kernel's.
set -eu
cd "$(dirname "$0")/.."
build=$1
stats=$(mktemp)
trap 'rm -f "$stats"' EXIT

echo "\$ pswap run -m 256M -- demo 1024"
echo
"$build/pswap" run -m 256M -o "$stats" -- "$build/demo" 1024
echo
echo "What was swapped:"
jq -r '
	def mib: (. / 1048576 * 10 | round) / 10 | tostring + " MiB";
	def pages: . * 4096 | mib;
	def us: (. / 100 | round) / 10 | tostring + " us";
	"  limit                \(.limit_bytes | mib)",
	"  peak footprint       \(.peak_footprint_bytes | mib)   (memory of the program, pool and tables together)",
	"  most in the pool     \(.peak_pool_bytes | mib)   (compressed, in memory)",
	"  written out          \(.pages_out | pages)   (in all; \(.pages_clean_dropped | pages) more were dropped unwritten)",
	"  read back            \(.pages_in | pages)",
	"  faults               \(.faults), half within \(.fault_ns_p50 | us), 99 % within \(.fault_ns_p99 | us)",
	(.stores[] | "  store \(.name + " " * (14 - (.name | length))) \(.used_bytes | mib) used at the end")
' "$stats"
echo
echo "\$ pswap bench munmap"
"$build/pswap" bench munmap --size 1G --rounds 3
