#!/bin/sh
# Finds the programs of a PostgreSQL server for the tests, and installs them where it may.
#
# usage: scripts/postgres.sh
#
# Prints the folder with initdb and postgres. What is there already is taken, the newest version first; otherwise apt-get
# installs the distribution's, as root or with sudo without a password. Starts nothing: the tests start a server of their own.
# Exit status: 0 if there is one, 1 if not.

set -eu

main() {
    find_server && return 0
    install_server >&2 || true
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

install_server() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" -eq 0 ]; then
        as_root="env DEBIAN_FRONTEND=noninteractive"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        as_root="sudo -n env DEBIAN_FRONTEND=noninteractive"
    else
        echo "postgres: may not install it (neither root nor sudo without a password)"
        return 1
    fi
    # The package would start a server of its own; the policy below forbids it to.
    $as_root sh -c '
        set -e
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            printf "#!/bin/sh\nexit 101\n" >"$policy"
            chmod +x "$policy"
            trap "rm -f $policy" EXIT
        fi
        apt-get install -y -qq --no-install-recommends postgresql >/dev/null 2>&1 ||
            { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq --no-install-recommends postgresql >/dev/null; }'
}

main "$@"
