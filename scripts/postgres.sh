#!/bin/sh
# Finds the programs of a PostgreSQL server for the tests, and installs them where it may.
#
# usage: scripts/postgres.sh [--packages]
#
# Prints the folder with initdb and postgres. What is there already is taken, the newest version first;
# otherwise apt-get installs the distribution's, as root or with sudo without a password. Starts nothing: the
# tests start a server of their own. Exit status: 0 if there is one, 1 if not.
# --packages: prints the packages that it would install, and installs nothing.

set -eu
. "$(dirname -- "$0")/packages.sh"

main() {
    if [ "${1-}" = --packages ]; then
        find_server >/dev/null || echo postgresql
        return
    fi
    find_server && return 0
    install_packages postgresql >&2 || true
    find_server && return 0
    echo "postgres: no PostgreSQL server: initdb is neither on the PATH nor in /usr/lib/postgresql, and could not be installed" >&2
    exit 1
}

find_server() {
    for folder in $(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin 2>/dev/null | sort -rV); do
        if [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ]; then
            echo "$folder"
            return 0
        fi
    done
    if initdb=$(command -v initdb) && [ -x "$(dirname "$initdb")/postgres" ]; then
        dirname "$initdb"
        return 0
    fi
    return 1
}

main "$@"
