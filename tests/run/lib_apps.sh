# SPDX-License-Identifier: MIT
# lib_apps.sh - programs from Debian that nobody here wrote, for apps.sh (are their results right?)
# and bench/apps.sh (how long do they take?); sourced after lib.sh, not a test.
#
# Each is a script $TMP/NAME.app that writes $TMP/NAME.out; its last process is the program itself.

if [ -n "$FULL" ]; then
	DICT=2000000 LINES=100000000 XZ=-9 XZ_BYTES=100000000 ROWS=2000000 CLASSES=60
else
	DICT=300000 LINES=20000000 XZ=-6 XZ_BYTES=4000000 ROWS=250000 CLASSES=4
fi
APPS=${APPS:-python sort xz unxz sqlite gxx}
PYTHON=$([ -x /usr/bin/python3 ] && echo /usr/bin/python3 || command -v python3)

app_needs() {
	case $1 in
	python) [ -n "$PYTHON" ] ;;
	sort) command -v sort ;;
	xz | unxz) command -v xz ;;
	sqlite) command -v sqlite3 ;;
	gxx) command -v g++ ;;
	esac >/dev/null
}

app_input_lines() {
	[ -e "$TMP/lines" ] || "$(prog gen)" lines "$LINES" >"$TMP/lines"
}

# Input and script of one program.
app_make() {
	local gen
	gen=$(prog gen) || return 1
	case $1 in
	python)
		cat >"$TMP/dict.py" <<END
import hashlib
n = $DICT
d = {}
for i in range(n):
    d[i] = (i, str(i * i))
h = hashlib.sha256()
for i in range(0, n, 3):
    a, b = d[i]
    assert int(b) == a * a and a == i
    h.update(b.encode())
for i in range(0, n, 2):
    del d[i]
for i in range(0, n // 4):
    d["new%d" % i] = [i] * 3
assert sum(len(v) for v in d.values()) == (n - (n + 1) // 2) * 2 + n // 4 * 3
print(len(d), h.hexdigest())
END
		echo "exec $PYTHON $TMP/dict.py >$TMP/python.out"
		;;
	sort)
		app_input_lines
		echo "LC_ALL=C exec sort --parallel=2 -S 2G -T $TMP -o $TMP/sort.out $TMP/lines"
		;;
	xz)
		app_input_lines
		head -c "$XZ_BYTES" "$TMP/lines" >"$TMP/xz.in"
		echo "exec xz -T1 $XZ -c <$TMP/xz.in >$TMP/xz.out"
		;;
	unxz)
		app_input_lines
		[ -e "$TMP/unxz.in" ] || head -c "$XZ_BYTES" "$TMP/lines" | xz -T1 $XZ -c >"$TMP/unxz.in"
		echo "exec xz -T1 -d -c <$TMP/unxz.in >$TMP/unxz.out"
		;;
	sqlite)
		cat >"$TMP/rows.sql" <<END
PRAGMA temp_store=MEMORY;
CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b TEXT, c REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $ROWS)
INSERT INTO t SELECT i, (i * 2654435761) % 4294967296,
	printf('%x-%x-row', (i * 40503) % 65536, (i * 2654435761) % 4294967291), i / 7.0 FROM n;
CREATE INDEX ta ON t(a);
CREATE INDEX tb ON t(b);
SELECT count(*), sum(a), sum(length(b)), round(sum(c)) FROM t;
SELECT sum(a) FROM (SELECT a FROM t ORDER BY a LIMIT 10000);
SELECT b FROM t ORDER BY b LIMIT 5;
UPDATE t SET a = a + id WHERE id % 3 = 0;
DELETE FROM t WHERE id % 5 = 0;
SELECT count(*), sum(a), sum(length(b)) FROM t;
SELECT count(*) FROM t AS x JOIN t AS y ON x.a = y.a;
PRAGMA integrity_check;
END
		echo "exec sqlite3 -batch :memory: <$TMP/rows.sql >$TMP/sqlite.out"
		;;
	gxx)
		"$gen" cxx "$CLASSES" >"$TMP/big.cc"
		echo "exec g++ -O2 -w -c -o $TMP/gxx.out $TMP/big.cc"
		;;
	esac >"$TMP/$1.app"
}

app_hash() {
	[ -s "$TMP/$1.out" ] || { echo none; return; }
	sha256sum <"$TMP/$1.out" | cut -d' ' -f1
}

# timed COMMAND...: SECS (with milliseconds), RC, RSS (bytes) of it, under a limit of TMO seconds.
timed() {
	local t0=$EPOCHREALTIME t1
	"$RUNTO" -t "$TMO" -g 10 -a -r "$TMP/rss" "$@" >"$TMP/app.log" 2>&1 </dev/null
	RC=$?
	t1=$EPOCHREALTIME
	SECS=$(awk "BEGIN{printf \"%.2f\", ${t1/,/.} - ${t0/,/.}}")
	RSS=$(cat "$TMP/rss" 2>/dev/null || echo 0)
}

# app_native NAME: HASH, N (peak RSS in bytes), SECS
app_native() {
	rm -f "$TMP/$1.out"
	timed sh "$TMP/$1.app"
	[ $RC = 0 ] || { tail -5 "$TMP/app.log"; fail "$1: natively status $RC"; }
	HASH=$(app_hash "$1")
	N=$RSS
	[ "$HASH" != none ] || fail "$1: natively no output"
}

# app_ratio NAME: C, pool bytes in a thousand of swapped bytes, measured in a run with half of
# the memory resident and the pool not limited.  The gauges are read while it runs: the largest
# number of swapped pages counts.
app_ratio() {
	local limit=$((N / 2)) pid best=0 pool=0 s p line
	[ $limit -ge $((16 * MIB)) ] || limit=$((16 * MIB))
	rm -f "$TMP/$1.out"
	"$RUNTO" -t "$TMO" "$PSWAP" run -m $limit --count=resident -s ram -- sh "$TMP/$1.app" \
		>"$TMP/app.log" 2>&1 </dev/null &
	pid=$!
	while kill -0 $pid 2>/dev/null; do
		s=$(pgrep -P $pid | head -1)
		if [ -n "$s" ]; then
			line=$("$PSWAP" stat "$(pgrep -P "$s" | tail -1)" --json 2>/dev/null |
				jq -r '"\(.swapped_pages) \(.pool_bytes)"' 2>/dev/null)
			p=${line%% *}
			if [ -n "$p" ] && [ "$p" != null ] && [ "$p" -gt $best ] 2>/dev/null; then
				best=$p pool=${line#* }
			fi
		fi
		sleep 0.1
	done
	wait $pid
	RC=$?
	[ $RC = 0 ] || { tail -30 "$TMP/app.log"; fail "$1: --count=resident -m $limit: status $RC"; }
	[ "$(app_hash "$1")" = "$HASH" ] || fail "$1: --count=resident -m $limit: output differs"
	if [ $best -gt 0 ]; then
		C=$((pool * 1000 / (best * 4096)))
	else
		C=500
		echo "    $1: no pool ratio measured, 0.5 assumed"
	fi
}

thousandths() {
	printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
}

# app_limit: LIMIT, the larger of N / 4 and (c + 0.15) N, at least 16 MiB
app_limit() {
	LIMIT=$((N / 4))
	[ $LIMIT -ge $(((C + 150) * N / 1000)) ] || LIMIT=$(((C + 150) * N / 1000))
	[ $LIMIT -ge $((16 * MIB)) ] || LIMIT=$((16 * MIB))
}
