#!/bin/sh
# Installs moto's server, another one that speaks S3, from PyPI, into .harrier/moto.
#
# usage: scripts/moto.sh
#
# Prints the program. What is there already is kept. Exit status: 0 if it is there, 1 if not.

set -eu

moto_version=5.2.5

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/moto
. "$checkout/scripts/kept.sh"
. "$checkout/scripts/python.sh"

main() {
    if ! is_there; then
        mkdir -p "$checkout/.harrier"
        (
            flock 9
            is_there || install_moto
        ) 9>"$checkout/.harrier/moto.lock"
    fi
    echo "$folder/bin/moto_server"
}

# That it works was seen when it was installed.
is_there() {
    [ "$(cat "$folder/.version" 2>/dev/null)" = "$moto_version" ] && [ -x "$folder/bin/moto_server" ]
}

install_moto() {
    if environment "$folder" "moto.server moto.s3.models" "moto[server,s3]==$moto_version"; then
        echo "$moto_version" >"$folder/.version"
    else
        rm -rf "$folder"
        echo "moto: moto $moto_version could not be installed" >&2
        exit 1
    fi
}

main "$@"
