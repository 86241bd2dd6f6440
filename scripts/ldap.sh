#!/bin/sh
# Finds an LDAP server for the tests, OpenLDAP's slapd, and installs it where it may.
#
# usage: scripts/ldap.sh [--packages]
#
# Prints the program. What is there already is taken; otherwise apt-get installs the distribution's, as root
# or with sudo without a password. Starts nothing: the tests start a server of their own. Exit status: 0 if
# there is one, 1 if not.
# --packages: prints the packages that it would install, and installs nothing.

set -eu
. "$(dirname -- "$0")/packages.sh"

main() {
    if [ "${1-}" = --packages ]; then
        find_server >/dev/null || echo slapd
        return
    fi
    find_server && return 0
    install_packages slapd >&2 || true
    find_server && return 0
    echo "ldap: no LDAP server: slapd is neither on the PATH nor in /usr/sbin, and could not be installed" >&2
    exit 1
}

find_server() {
    for program in "$(command -v slapd || true)" /usr/sbin/slapd /usr/libexec/slapd /usr/local/libexec/slapd; do
        if [ -n "$program" ] && [ -x "$program" ]; then
            echo "$program"
            return 0
        fi
    done
    return 1
}

main "$@"
