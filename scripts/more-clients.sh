#!/bin/sh
# Installs the clients that are too heavy for make test: of Debian, PyPI, npm, Maven Central and the Go module
# proxy, into .harrier/more-clients; and builds what has to be compiled of tests/clients.
#
# usage: scripts/more-clients.sh [--run]
#
# Prints the folder, with python/, node/, java/ (jars, and classes/) and go/ (the program). Ruby, PHP, Java,
# Node.js and PostgreSQL are packages of the system, installed with apt-get where they are missing and it may;
# Go has to be there. Exit status: 0 if all clients are there, 1 if not.
# --run: then starts the Harrier that was built, with one more role than the one who starts it, and runs all of
# these clients against it.
. "$(dirname -- "$0")/common.sh"

checkout=$PWD
folder=$checkout/.harrier/more-clients
sources=$checkout/scripts/more-clients
. scripts/packages.sh
. scripts/kept.sh
. scripts/python.sh
. scripts/jars.sh

# How long the server may take until it listens.
listen_seconds_max=60

main() {
    mkdir -p "$folder"
    need_packages
    command -v go >/dev/null 2>&1 || fail "go was not found: install Go 1.25 or later"
    part python install_python
    part node install_node
    part java install_java
    step "compiling the clients in Go and Java"
    (cd tests/clients/go && steadily "go build" go build -o "$folder/go/clients" .)
    rm -rf "$folder/java/classes"
    javac -nowarn -proc:none -cp "$folder/java/*" -d "$folder/java/classes" tests/clients/CheckTools.java
    if [ "${1-}" = --run ]; then
        run_all
    else
        echo "$folder"
    fi
}

need_packages() {
    set --
    command -v javac >/dev/null 2>&1 || set -- "$@" openjdk-17-jdk-headless
    command -v mvn >/dev/null 2>&1 || set -- "$@" maven
    command -v npm >/dev/null 2>&1 || set -- "$@" nodejs npm
    command -v psql >/dev/null 2>&1 || set -- "$@" postgresql-client
    scripts/postgres.sh >/dev/null 2>&1 || set -- "$@" postgresql
    ruby -e 'require "active_record"; require "pg"' >/dev/null 2>&1 || set -- "$@" ruby ruby-activerecord ruby-pg
    php -r 'exit(extension_loaded("pdo_pgsql") ? 0 : 1);' >/dev/null 2>&1 || set -- "$@" php-cli php-pgsql
    [ $# -eq 0 ] || install_packages "$@" >&2 || fail "not installed and could not be: $*"
}

# part NAME COMMAND: has the command fill a folder, unless it was filled with what is listed now.
part() {
    version=$(cat "$sources"/* | cksum)
    [ "$(cat "$folder/$1/.version" 2>/dev/null)" != "$version" ] || return 0
    step "installing the clients in $1"
    rm -rf "${folder:?}/$1"
    mkdir -p "$folder/$1"
    "$2" || fail "the clients in $1 could not be installed"
    echo "$version" >"$folder/$1/.version"
}

install_python() {
    environment "$folder/python" "adbc_driver_postgresql.dbapi connectorx polars psycopg pyarrow" \
        --requirement "$sources/python.txt"
}

install_node() {
    cp "$sources/package.json" "$sources/package-lock.json" "$folder/node"
    (cd "$folder/node" && npm ci --ignore-scripts --no-audit --no-fund --loglevel error) >&2
}

install_java() {
    jars more-clients -Dharrier.folder="$folder"
}

# Who connects from another account of this machine has to have a password, as postgres_fdw of a server that
# root may not run.
run_all() {
    work=$(mktemp -d)
    server=
    trap 'trap - EXIT; [ -z "$server" ] || kill "$server"; wait; rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
    "$harrier" serve --listen 127.0.0.1:0 --http off --launcher none --warehouse "$work/warehouse" \
        >"$work/log" 2>&1 &
    server=$!
    waited=0
    until port=$(sed -n 's/^ready: psql .*-p \([0-9]*\) .*/\1/p' "$work/log") && [ -n "$port" ]; do
        kill -0 "$server" 2>/dev/null && [ "$waited" -lt "$listen_seconds_max" ] || {
            cat "$work/log" >&2
            fail "the server does not listen"
        }
        sleep 1
        waited=$((waited + 1))
    done
    PGPASSWORD=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    export PGPASSWORD
    psql -X -q -h 127.0.0.1 -p "$port" -d warehouse -c "CREATE ROLE clients LOGIN SUPERUSER PASSWORD '$PGPASSWORD'"
    python3 tests/clients/run.py 127.0.0.1 "$port" clients --database warehouse --more --keep-going \
        --known tests/clients/differences.tsv
}

main "$@"
