#!/bin/sh
# A PostgreSQL server of its own as a peer of `harrier bench serve`; bench/peers/server.py tells what is expected of it.
#
# The tables have their primary keys, and indexes on the columns they are joined by. Commits are on the disk when they are acknowledged.

set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
bin=$("$here/../../scripts/postgres.sh")
folder=$HARRIER_BENCH_FOLDER/postgres
data=$HARRIER_BENCH_DATA
harrier=${HARRIER_BENCH_BINARY:-harrier}

# A server does not run as root; who it runs as must reach its folder, which is therefore not below this user's.
as() { if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
if [ "$(id -u)" -eq 0 ]; then
    folder=$(as mktemp -d "${TMPDIR:-/tmp}/harrier-bench-postgres-XXXXXX")
else
    mkdir -p "$folder"
fi
cd "$folder"

stop() {
    as "$bin/pg_ctl" -D "$folder/data" -w -s -m immediate stop >/dev/null 2>&1 || true
    cd / && rm -rf "${folder:?}"
}
trap stop EXIT
trap 'exit 1' INT TERM

as "$bin/initdb" -D "$folder/data" -A trust -U bench --encoding=UTF8 --locale=C >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
# While the tables are loaded only.
echo 'fsync = off' | as tee -a "$folder/data/postgresql.conf" >/dev/null
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
as "$bin/pg_ctl" -D "$folder/data" -w -s -l "$folder/server.log" -o "-p $port -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories= -c max_connections=300 -c shared_buffers=1GB -c work_mem=64MB -c maintenance_work_mem=256MB \
    -c effective_cache_size=4GB -c random_page_cost=1.1 -c max_wal_size=4GB" start >&2 || { cat "$folder/server.log" >&2; exit 1; }

sql() { "$bin/psql" -h 127.0.0.1 -p "$port" -U bench -d postgres -v ON_ERROR_STOP=1 -X -q "$@"; }

sql >&2 <<'END'
CREATE TABLE region (r_regionkey bigint, r_name text, r_comment text);
CREATE TABLE nation (n_nationkey bigint, n_name text, n_regionkey bigint, n_comment text);
CREATE TABLE supplier (s_suppkey bigint, s_name text, s_address text, s_nationkey bigint, s_phone text, s_acctbal decimal(15,2),
    s_comment text);
CREATE TABLE customer (c_custkey bigint, c_name text, c_address text, c_nationkey bigint, c_phone text, c_acctbal decimal(15,2),
    c_mktsegment text, c_comment text);
CREATE TABLE part (p_partkey bigint, p_name text, p_mfgr text, p_brand text, p_type text, p_size int, p_container text,
    p_retailprice decimal(15,2), p_comment text);
CREATE TABLE partsupp (ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(15,2), ps_comment text);
CREATE TABLE orders (o_orderkey bigint, o_custkey bigint, o_orderstatus text, o_totalprice decimal(15,2), o_orderdate date,
    o_orderpriority text, o_clerk text, o_shippriority int, o_comment text);
CREATE TABLE lineitem (l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15,2),
    l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag text, l_linestatus text,
    l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text, l_comment text);
END
for table in region nation supplier customer part partsupp orders lineitem; do
    files=$data/$table.parquet
    if [ -d "$data/$table" ]; then files=$data/$table/; fi
    "$harrier" sql --warehouse :memory: -c "COPY (SELECT * FROM '$files') TO STDOUT WITH (FORMAT csv)" </dev/null |
        sql -c "COPY $table FROM STDIN WITH (FORMAT csv)" >&2
done
sql >&2 <<'END'
ALTER TABLE region ADD PRIMARY KEY (r_regionkey);
ALTER TABLE nation ADD PRIMARY KEY (n_nationkey);
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey);
ALTER TABLE customer ADD PRIMARY KEY (c_custkey);
ALTER TABLE part ADD PRIMARY KEY (p_partkey);
ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey);
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey);
ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber);
CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON orders (o_orderdate);
CREATE INDEX ON lineitem (l_partkey, l_suppkey);
CREATE INDEX ON partsupp (ps_suppkey);
CREATE INDEX ON customer (c_nationkey);
VACUUM ANALYZE;
ALTER SYSTEM SET fsync = on;
SELECT pg_reload_conf();
CHECKPOINT;
END

version=$("$bin/postgres" --version | sed 's/.* \([0-9][0-9.]*\).*/\1/')
echo "{\"engine\": \"postgresql $version\", \"protocol\": \"postgresql\", \"port\": $port, \"user\": \"bench\", \"database\": \"postgres\"}"
# Its clients can cancel what they run.
while read -r _; do :; done
