#!/bin/sh
# Installs a server that speaks S3 for the tests: versitygw, built by Go, into .harrier/s3.
#
# usage: scripts/s3.sh
#
# Prints the program. What is there already is kept. Building takes some minutes; where there is a folder ~/.cache/harrier
# the program is kept there too, for other checkouts. Exit status: 0 if it works, 1 if not.

set -eu

version=v1.8.0

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/s3
program=$folder/versitygw-$version
cache=${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/harrier

main() {
    if [ ! -x "$program" ]; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$folder"
        (
            flock 9
            [ -x "$program" ] || install_program
        ) 9>"$checkout/.harrier/s3.lock"
    fi
    if ! "$program" --version >/dev/null 2>&1; then
        echo "s3: $program does not work; remove it and try again" >&2
        exit 1
    fi
    echo "$program"
}

install_program() {
    kept=$cache/s3/versitygw-$version
    if [ -x "$kept" ] && "$kept" --version >/dev/null 2>&1; then
        cp "$kept" "$program.new"
    else
        if ! command -v go >/dev/null 2>&1; then
            echo "s3: Go is not installed, which builds versitygw $version" >&2
            exit 1
        fi
        rm -rf "$folder/build"
        if ! GOBIN=$folder/build GOFLAGS=-buildvcs=false go install "github.com/versity/versitygw/cmd/versitygw@$version" >&2; then
            echo "s3: Go could not build versitygw $version" >&2
            exit 1
        fi
        mv "$folder/build/versitygw" "$program.new"
        rmdir "$folder/build"
        if [ -d "$cache" ]; then
            mkdir -p "$cache/s3" && cp "$program.new" "$kept.$$" && mv "$kept.$$" "$kept" || true
        fi
    fi
    mv "$program.new" "$program"
}

main "$@"
