#!/bin/sh
# Writes system.tsv, what a new database of PostgreSQL 15 has in its system catalogs, from the server that the usual variables
# (PGHOST, PGPORT, PGUSER) name: ./export.sh > system.tsv
#
# A line "@name<TAB>oid<TAB>kind<TAB>namespace<TAB>description" begins a relation. Lines that begin with "#" give its columns as
# name, type and whether it is not null; the other lines are rows as COPY writes them. Functions are written as oids.
set -e
query() { psql -X -q -A -t -d template1 -c "$1"; }
relations=$(query "SELECT relname FROM pg_class WHERE relkind IN ('r', 'v') AND oid < 16384 ORDER BY relnamespace, relname")
for relation in $relations; do
  key="(SELECT oid FROM pg_class WHERE relname = '$relation' AND oid < 16384)"
  query "COPY (SELECT '@' || c.relname, c.oid, c.relkind, c.relnamespace, d.description FROM pg_class c LEFT JOIN pg_description d
    ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 1259 WHERE c.oid = $key) TO STDOUT"
  query "COPY (SELECT '#' || a.attname, t.typname, a.attnotnull, d.description FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_description d ON d.objoid = a.attrelid AND d.objsubid = a.attnum AND d.classoid = 1259
    WHERE a.attrelid = $key AND a.attnum > 0 ORDER BY a.attnum) TO STDOUT"
  case $relation in
    pg_aggregate | pg_am | pg_amop | pg_amproc | pg_cast | pg_collation | pg_conversion | pg_language | pg_namespace | pg_opclass \
      | pg_operator | pg_opfamily | pg_proc | pg_range | pg_tablespace | pg_ts_config | pg_ts_config_map | pg_ts_dict \
      | pg_ts_parser | pg_ts_template | pg_type | pg_description) ;;
    *) continue ;;
  esac
  columns=$(query "SELECT string_agg(CASE WHEN atttypid = 24 THEN attname || '::oid' WHEN atttypid = 194 THEN 'NULL'
    WHEN attname = 'collversion' THEN 'NULL' ELSE attname::text END, ', ' ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = $key AND attnum > 0")
  case $relation in
    # Those of relations stand with the relations; locales are the machine's.
    pg_description) where="WHERE classoid <> 1259 AND (classoid <> 3456 OR objoid < 12000)" ;;
    pg_collation) where="WHERE collprovider IN ('d', 'c') AND oid < 12000" ;;
    pg_namespace) where="WHERE nspname <> 'public'" ;;
    *) where="" ;;
  esac
  query "COPY (SELECT $columns FROM pg_catalog.$relation $where ORDER BY 1, 2, 3) TO STDOUT"
done
echo "@pg_get_keywords	0	f	11	\\N"
query "COPY (SELECT '#' || unnest(ARRAY['word', 'catcode', 'barelabel', 'catdesc', 'baredesc']),
  unnest(ARRAY['text', 'char', 'bool', 'text', 'text']), false, NULL) TO STDOUT"
query "COPY (SELECT * FROM pg_get_keywords()) TO STDOUT"
