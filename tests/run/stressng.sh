#!/bin/bash
# SPDX-License-Identifier: MIT
# stress-ng --verify with stressors of memory, its calls, processes and threads: as it ends natively, it ends with
# a limit, and says "fail" no more often; nothing of it is left running.
# mmap picks its flags at random, MAP_LOCKED among them: such a run cannot swap, so it must fit.
# ONLY="vm brk": not all.  LIMIT: another limit than 64M.  SECS: of each (5).
# timeout: 7200
. "$(dirname "$0")/lib.sh"
. "$HERE/lib_progs.sh"
need stress-ng
LIMIT=${LIMIT:-64M} SECS=${SECS:-5}
cd "$TMP" || exit 1

# ng NAME LIMIT ARG...
ng() {
	local name=$1 limit=$2
	shift 2
	mkdir -p "$TMP/files"
	(sampled "$name" "$limit" timeout -k 5 "${TMO:-120}" stress-ng --verify --timeout "${SECS}s" \
		--temp-path "$TMP/files" "$@") >"$TMP/$name.out" 2>&1 </dev/null
	RC=$?
	rm -rf "$TMP/files"
	FAILS=$(grep -ciE 'fail:|fail ' "$TMP/$name.out")
}

# one MIN_PAGES_OUT ARG...
one() {
	local min=$1 rc fails
	shift
	WHAT="$*"
	ng native 0 "$@"
	rc=$RC fails=$FAILS
	[ $rc = 0 ] || { echo "skip $*: natively status $rc"; exit 77; }
	[ -n "$NATIVE" ] && { echo "ok native: $*: $(mib "$(peak native)") MiB"; exit 0; }
	ng swapped "$LIMIT" "$@"
	[ "$RC" = $rc ] && [ "$FAILS" -le "$fails" ] || { tail -20 "$TMP/swapped.out"; fail "$*: status $RC, natively $rc"; }
	grep -a '^pswap:' "$TMP/swapped.out" | head -3
	in_bounds swapped "$LIMIT" "$min" || exit 1
	echo "ok: $*: natively $(mib "$(peak native)") MiB"
}

while read -r min args; do
	[ -n "$min" ] || continue
	name=${args#--} # without --mmap-bytes and so on
	case " ${ONLY:-${name%% *}} " in
	*" ${name%% *} "*) ;;
	*) continue ;;
	esac
	# shellcheck disable=SC2086
	each one "$min" $args
done <<'END'
1000 --vm 2 --vm-bytes 128M --vm-method all
1000 --vm 1 --vm-bytes 96M --vm-populate
1000 --vm 1 --vm-bytes 128M --vm-madvise hugepage
0 --mmap 2 --mmap-bytes 64M
0 --mmap 1 --mmap-bytes 72M --mmap-async --mmap-mprotect
500 --mmapmany 1
1000 --mmaphuge 1
0 --mmapfork 1
0 --mmapaddr 1
0 --mmapfixed 1
1000 --mremap 2 --mremap-bytes 64M
500 --mremap 1 --mremap-bytes 64M --mremap-mlock
1000 --brk 1
1000 --malloc 2 --malloc-bytes 96M --malloc-touch
1000 --malloc 1 --malloc-bytes 96M --malloc-touch --malloc-pthreads 4
1000 --bigheap 1 --bigheap-growth 1M
1000 --vm-rw 1 --vm-rw-bytes 64M
1000 --hsearch 1 --hsearch-size 1000000
1000 --pagemove 1 --pagemove-bytes 64M
1000 --memrate 1 --memrate-bytes 128M
1000 --memthrash 2
1000 --stream 1 --stream-l3-size 16M
0 --qsort 4 --qsort-size 4000000
1000 --matrix 2 --matrix-size 2048
0 --madvise 2
0 --stack 1 --stack-fill
0 --stackmmap 1
0 --fork 2
0 --vfork 2
0 --vforkmany 1
0 --pthread 2
0 --vm-splice 1
0 --vm-addr 1
0 --vm-segv 1
0 --mincore 1
0 --msync 1
0 --remap 2
0 --shm 1
0 --shm-sysv 1
0 --memfd 1
0 --sigsegv 2
0 --fault 1
0 --mprotect 1
0 --munmap 1
0 --rmap 1
0 --exit-group 1
0 --daemon 1
0 --zombie 1
0 --mutex 2
0 --futex 2
0 --context 1
0 --switch 1
END
finish "no stress-ng"
