#!/bin/sh
# SPDX-License-Identifier: MIT
# patch_vs_strace.sh - the calls that the hooks see in trees of processes are those that strace sees.
#
# tests/hook_count.c, preloaded, counts into a shared file and makes one odd call (getpriority of
# HOOK_MARK_WHICH) when it has patched a process. strace's log is counted from that mark on: what
# ld.so did before is not seen, which is known. Calls made by `syscall` instructions in other code
# than libc and ld.so would show as a difference; these programs have none.
#
# timeout: 300
set -u
cd "$(dirname "$0")/.."
TMP=$(mktemp -d "${TMPDIR:-/tmp}/patch_vs_strace.XXXXXX")
trap 'rm -rf "$TMP"' EXIT
skip() { echo "$*"; exit 77; }

[ "$(uname -m)" = x86_64 ] || skip "not x86-64"
for c in strace python3 cc; do
	command -v $c > /dev/null || skip "no $c"
done
tests/lib_hook.sh "$TMP/hook.so" || skip "tests/hook_count.c cannot be compiled"
cc -O1 -o "$TMP/stress" tests/progs/mallocstress.c -pthread || skip "no compiler for programs"
strace -o /dev/null true 2> /dev/null || skip "strace may not trace here"
PSWAP_COUNT_FILE=$TMP/probe
head -c 8192 /dev/zero > "$TMP/probe"
PSWAP_COUNT_FILE=$TMP/probe LD_PRELOAD=$TMP/hook.so true || exit 1
cat > "$TMP/main.c" << 'EOF'
#include <stdio.h>
#include <stdlib.h>
int main(void) { return printf("%d\n", abs(-3)) < 0; }
EOF

cat > "$TMP/compare.py" << 'EOF'
import re, struct, sys
names = {9: "mmap", 10: "mprotect", 11: "munmap", 12: "brk", 25: "mremap", 28: "madvise",
         149: "mlock", 150: "munlock", 151: "mlockall", 152: "munlockall", 325: "mlock2",
         329: "pkey_mprotect", 440: "process_madvise", 56: "clone", 57: "fork", 58: "vfork",
         435: "clone3", 59: "execve", 322: "execveat", 60: "exit"}
wanted = {v: k for k, v in names.items()}
want = dict.fromkeys(names, 0)
marked = {}   # pid -> patched?  A process made by fork or clone is; one that execs is not yet.
before = 0
first = True
for line in open(sys.argv[1], errors="replace"):
    m = re.match(r"(\d+)\s+(.*)", line)
    if not m:
        continue
    pid, text = int(m.group(1)), m.group(2)
    if pid not in marked:
        marked[pid] = not first
        first = False
    m = re.match(r"<\.\.\. (\w+) resumed>", text)
    if m:
        if m.group(1) in ("execve", "execveat") and re.search(r"\) += 0$", text):
            marked[pid] = False
        continue
    m = re.match(r"(\w+)\(", text)
    if not m:
        continue
    call = m.group(1)
    if call == "getpriority" and "0x7077" in text:
        marked[pid] = True
    elif call in wanted:
        if marked[pid]:
            want[wanted[call]] += 1
        else:
            before += 1
    if call in ("execve", "execveat") and re.search(r"\) += 0$", text):
        marked[pid] = False
data = open(sys.argv[2], "rb").read()
seen = struct.unpack_from("<512Q", data)
# struct hook_count: after nr[512] come by_site[2], fork_parent, fork_failed, fork_child, child_late,
# installs, refusals
_, _, _, _, _, late, _, refusals = struct.unpack_from("<8Q", data, 8 * 512)
bad = [f"{names[n]}: strace {want[n]}, hooks {seen[n]}" for n in names if want[n] != seen[n]]
print(f"{sys.argv[3]}: {sum(want.values())} calls by strace, {sum(seen[n] for n in names)} by the "
      f"hooks ({before} before patching); {len(marked)} threads; " +
      " ".join(f"{names[n]} {seen[n]}" for n in names if seen[n]))
if late or refusals:
    bad.append(f"{late} late children, {refusals} processes not patched")
if sum(seen) == 0:
    bad.append("nothing counted")
print("\n".join(bad), end="\n" if bad else "")
sys.exit(bool(bad))
EOF

status=0
compare() {
	name=$1
	shift
	head -c 8192 /dev/zero > "$TMP/count"
	PSWAP_COUNT_FILE=$TMP/count strace -f -qq -s 16 -o "$TMP/log" -E "LD_PRELOAD=$TMP/hook.so" \
		-e signal=none "$@" > "$TMP/out" 2>&1 || { echo "$name failed:"; cat "$TMP/out"; status=1; }
	python3 "$TMP/compare.py" "$TMP/log" "$TMP/count" "$name" || status=1
}

compare mallocstress "$TMP/stress" 16 4000
compare python python3 -c '
import os, subprocess, threading, mmap
t = [threading.Thread(target=lambda: [bytearray(1 << 18) for _ in range(40)]) for _ in range(8)]
[x.start() for x in t]; [x.join() for x in t]
d = {i: str(i) for i in range(100000)}
m = mmap.mmap(-1, 1 << 20); m.resize(1 << 21); m.close()
subprocess.check_output(["sh", "-c", "ls / | wc -l"])
os.system("true")
for i in range(5):
    if os.fork() == 0: os._exit(0)
    os.wait()
print(len(d))'
compare gcc cc -O1 -o "$TMP/a.out" "$TMP/main.c"
exit $status
