#!/bin/sh
# Installs DuckDB with its extensions for DuckLake, SQLite and PostgreSQL, from PyPI, into .harrier/duckdb.
#
# usage: scripts/duckdb.sh
#
# Prints the Python that has them. What is there already is kept. Exit status: 0 if it is there, 1 if not.

set -eu

duckdb_version=1.5.5

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/duckdb
. "$checkout/scripts/kept.sh"
. "$checkout/scripts/python.sh"

main() {
    if ! is_there; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$checkout/.harrier"
        (
            flock 9
            is_there || install_duckdb
        ) 9>"$checkout/.harrier/duckdb.lock"
    fi
    echo "$folder/bin/python3"
}

# That it works was seen when it was installed.
is_there() {
    [ "$(cat "$folder/.version" 2>/dev/null)" = "$duckdb_version" ] && [ -x "$folder/bin/python3" ]
}

install_duckdb() {
    modules="duckdb duckdb_extension_ducklake
 duckdb_extension_sqlite_scanner duckdb_extension_postgres_scanner"
    if environment "$folder" "$modules" \
        "duckdb==$duckdb_version" "duckdb-extension-ducklake==$duckdb_version" \
        "duckdb-extension-sqlite-scanner==$duckdb_version" \
        "duckdb-extension-postgres-scanner==$duckdb_version"; then
        echo "$duckdb_version" >"$folder/.version"
    else
        rm -rf "$folder"
        echo "duckdb: duckdb $duckdb_version and its extensions could not be installed" >&2
        exit 1
    fi
}

main "$@"
