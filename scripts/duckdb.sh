#!/bin/sh
# Installs DuckDB with its extensions for DuckLake, SQLite and PostgreSQL, from PyPI, into .harrier/duckdb.
#
# usage: scripts/duckdb.sh
#
# Prints the Python that has them. What is there already is kept. Exit status: 0 if it works, 1 if not.

set -eu

duckdb_version=1.5.5

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/duckdb

main() {
    if [ "$(cat "$folder/.version" 2>/dev/null)" != "$duckdb_version" ]; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$checkout/.harrier"
        (
            flock 9
            [ "$(cat "$folder/.version" 2>/dev/null)" = "$duckdb_version" ] || install_duckdb
        ) 9>"$checkout/.harrier/duckdb.lock"
    fi
    if ! "$folder/bin/python3" -c 'import duckdb, duckdb_extension_ducklake' 2>/dev/null; then
        echo "duckdb: $folder does not work; remove it and try again" >&2
        exit 1
    fi
    echo "$folder/bin/python3"
}

install_duckdb() {
    rm -rf "$folder"
    if python3 -m venv "$folder" >&2 && "$folder/bin/python3" -m pip install --quiet --disable-pip-version-check \
        "duckdb==$duckdb_version" "duckdb-extension-ducklake==$duckdb_version" \
        "duckdb-extension-sqlite-scanner==$duckdb_version" "duckdb-extension-postgres-scanner==$duckdb_version" >&2; then
        echo "$duckdb_version" >"$folder/.version"
    else
        rm -rf "$folder"
        echo "duckdb: pip could not install duckdb $duckdb_version and its extensions" >&2
        exit 1
    fi
}

main "$@"
