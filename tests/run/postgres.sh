#!/bin/bash
# SPDX-License-Identifier: MIT
# PostgreSQL, a backend of which sorts, hashes and joins in memory of its own (work_mem 300 MB, no parallel
# queries): all results must be those of a native run, and after pgbench the balances must agree.
# As root it runs as the user postgres, with CAP_SYS_PTRACE.  LIMITS: others than 160M and 128M.
# timeout: 7200
. "$(dirname "$0")/lib.sh"
. "$HERE/lib_progs.sh"
BIN=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
[ -n "$BIN" ] && [ -x "$BIN/postgres" ] && [ -x "$BIN/pgbench" ] || skip "no PostgreSQL"
need psql
ROWS=${ROWS:-700000}
AS=
if [ "$(id -u)" = 0 ]; then
	id postgres >/dev/null 2>&1 || skip "no user postgres"
	AS="setpriv --reuid=postgres --regid=postgres --clear-groups --inh-caps=+sys_ptrace --ambient-caps=+sys_ptrace"
fi
chmod 755 "$TMP"
cd "$TMP" || exit 1

sql() {
	psql -h "$DIR" -U postgres -At "$@" 2>&1
}

queries() {
	local q
	for q in \
		"create table t as select i, (i*2654435761::bigint)%1000003 as k, md5(i::text) as m, md5((i*7)::text) as n
			from generate_series(1,$ROWS) i" \
		"select count(*), sum(k), md5(string_agg(m, '' order by k, i)) from (select * from t where i<=$ROWS/2) x" \
		"select count(*), sum(c), max(mm) from (select k%50021 kk, count(*) c, max(m) mm from t group by 1) y" \
		"select count(*), sum(a.k), min(a.m), max(b.n) from t a join t b on a.m=b.m" \
		"create index ti on t(m); create index tk on t(k,n)" \
		"select md5(string_agg(m||n, '')) from (select m,n from t order by n desc limit $ROWS/3) z" \
		"select count(*), sum(length(x)) from (select array_to_string(array_agg(m order by n),',') x from t group by k%5) w"; do
		timeout 600 psql -h "$DIR" -U postgres -At -c "$q" 2>&1 || echo "status $?"
	done
}

# serve NAME LIMIT: a server from its creation to its end, in a subshell
serve() {
	local name=$1 limit=$2 pid t0=$SECONDS t1
	DIR=$TMP/$name
	WHAT="$name"
	mkdir "$DIR" && { [ -z "$AS" ] || chown postgres "$DIR"; }
	$AS "$BIN/initdb" -D "$DIR/data" -A trust -U postgres >"$DIR/log" 2>&1 || { tail -5 "$DIR/log"; fail initdb; }
	cat >>"$DIR/data/postgresql.conf" <<-END
		unix_socket_directories='$DIR'
		listen_addresses=''
		work_mem='300MB'
		hash_mem_multiplier=1
		maintenance_work_mem='200MB'
		shared_buffers='16MB'
		max_parallel_workers_per_gather=0
		max_wal_size='1GB'
		jit=off
	END
	if [ "$limit" = 0 ]; then
		"$SAMPLE" -i 20 "$TMP/$name.peak" $AS "$BIN/postgres" -D "$DIR/data" >>"$DIR/log" 2>&1 &
	else
		"$SAMPLE" -i 20 -b "$(bound "$limit")" "$TMP/$name.peak" $AS "$PSWAP" run -m "$limit" \
			-o "$DIR/stats.json" -- "$BIN/postgres" -D "$DIR/data" >>"$DIR/log" 2>&1 &
	fi
	pid=$!
	trap 'kill $pid; wait $pid' EXIT
	for _ in $(seq 300); do
		sql -c 'select 1' >/dev/null && break
		sleep 0.2
	done
	t0=$SECONDS
	queries >"$TMP/$name.queries"
	t1=$SECONDS
	timeout 600 "$BIN/pgbench" -h "$DIR" -U postgres -q -i -s 5 postgres >"$DIR/bench" 2>&1 &&
		timeout 600 "$BIN/pgbench" -h "$DIR" -U postgres -c 8 -j 2 -t 500 postgres >>"$DIR/bench" 2>&1 ||
		{ tail "$DIR/bench"; fail "$name: pgbench"; }
	sql -c "select sum(abalance) = (select sum(bbalance) from pgbench_branches) and
		sum(abalance) = (select sum(tbalance) from pgbench_tellers) and
		sum(abalance) = (select sum(delta) from pgbench_history) from pgbench_accounts;
		select count(*) from pgbench_history" >>"$TMP/$name.queries"
	kill -0 $pid || fail "$name: the server has ended"
	echo "    $name: queries $((t1 - t0)) s, pgbench $((SECONDS - t1)) s"
	$AS "$BIN/pg_ctl" -D "$DIR/data" -m fast -w stop >/dev/null || fail "$name: it does not stop"
	wait $pid || fail "$name: status $?"
	trap - EXIT
	grep -aE 'ERROR|FATAL|PANIC|signal' "$DIR/log" | grep -v 'administrator command'
	[ "$limit" = 0 ] || mv "$DIR/stats.json" "$TMP/$name.json"
	rm -rf "${DIR:?}"
}

(serve native 0) || exit 1
[ "$(tail -2 "$TMP/native.queries" | tr '\n' ' ')" = "t 4000 " ] || { cat "$TMP/native.queries"; fail natively; }
echo "    peak $(mib "$(peak native)") MiB"
[ -n "$NATIVE" ] && exit 0
one() {
	serve "with$1" "$1"
	cmp "$TMP/native.queries" "$TMP/with$1.queries" || {
		diff "$TMP/native.queries" "$TMP/with$1.queries" | cut -c1-300
		fail "-m $1: other results than natively"
	}
	in_bounds "with$1" "$1" 1000
	echo "ok: PostgreSQL, -m $1"
}
for l in ${LIMITS:-160M 128M}; do
	each one "$l"
done
finish
