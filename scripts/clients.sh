#!/bin/sh
# Installs the clients that the tests connect with: of Debian, PyPI and Maven Central, the latter two into .harrier/clients.
#
# usage: scripts/clients.sh
#
# Prints the folder, with python/ and dbt/ (environments of Python) and java/ (jars). psql, pgbench, isql, psqlODBC and Java are
# packages of the system, installed with apt-get where they are missing and it may. What is there already is kept.
# Exit status: 0 if all clients are there, 1 if not.

set -eu
. "$(dirname -- "$0")/packages.sh"

pgjdbc_version=42.7.7
sqlline_version=1.12.0

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/clients
missing=

main() {
    # What was installed has been asked for by these lines; another word in them is another set of clients.
    wanted=$(cat "$checkout/scripts/clients/python.txt" "$checkout/scripts/clients/dbt.txt" "$checkout/scripts/clients/pom.xml" |
        cat - "$0" | cksum)
    need_packages
    if [ "$(cat "$folder/.version" 2>/dev/null)" != "$wanted" ]; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$checkout/.harrier"
        (
            flock 9
            [ "$(cat "$folder/.version" 2>/dev/null)" = "$wanted" ] || install_clients
        ) 9>"$checkout/.harrier/clients.lock"
    fi
    if [ -n "$missing" ]; then
        echo "clients: not installed and could not be:$missing" >&2
        exit 1
    fi
    echo "$folder"
}

install_clients() {
    rm -rf "$folder"
    mkdir -p "$folder"
    environment python
    environment dbt
    if ! mvn -q -B -ntp -f "$checkout/scripts/clients/pom.xml" -Dpgjdbc.version="$pgjdbc_version" \
        -Dsqlline.version="$sqlline_version" -Dharrier.folder="$folder" process-resources >&2; then
        rm -rf "$folder"
        echo "clients: Maven could not get pgjdbc $pgjdbc_version and sqlline $sqlline_version" >&2
        exit 1
    fi
    rm -rf "$checkout/scripts/clients/target"
    echo "$wanted" >"$folder/.version"
}

# environment NAME: wheels alone, because to build one takes longer than all the tests.
environment() {
    if ! { python3 -m venv "$folder/$1" >&2 && "$folder/$1/bin/python3" -m pip install --quiet --disable-pip-version-check \
        --only-binary :all: --requirement "$checkout/scripts/clients/$1.txt" >&2; }; then
        rm -rf "$folder"
        echo "clients: pip could not install what scripts/clients/$1.txt lists" >&2
        exit 1
    fi
}

need_packages() {
    packages=
    command -v javac >/dev/null 2>&1 || packages="$packages openjdk-17-jdk-headless"
    command -v mvn >/dev/null 2>&1 || packages="$packages maven"
    command -v isql >/dev/null 2>&1 || packages="$packages unixodbc"
    find_driver || packages="$packages odbc-postgresql"
    command -v psql >/dev/null 2>&1 || packages="$packages postgresql-client"
    find_pgbench || packages="$packages postgresql-contrib"
    if [ -n "$packages" ]; then
        # shellcheck disable=SC2086 # one word for each package
        install_packages $packages >&2 || true
    fi
    for program in javac mvn isql psql; do
        command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
    done
    find_driver || missing="$missing psqlODBC"
    find_pgbench || missing="$missing pgbench"
}

find_driver() {
    ls /usr/lib/*/odbc/psqlodbcw.so /usr/lib64/psqlodbcw.so /usr/lib/odbc/psqlodbcw.so 2>/dev/null | grep -q .
}

find_pgbench() {
    command -v pgbench >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/pgbench /usr/pgsql-*/bin/pgbench 2>/dev/null | grep -q .
}

main "$@"
