#!/bin/sh
# Installs a server that speaks S3 for the tests: what they need of versitygw, built by Go, into .harrier/s3.
#
# usage: scripts/s3.sh
#
# Prints the program. What is there already is kept. Building takes a minute; where there is a folder
# ~/.cache/harrier the program is kept there too, for other checkouts. Exit status: 0 if it is there, 1 if
# not.

set -eu

version=v1.8.0

# What versitygw has beside what scripts/s3/main.go uses of it; the files of that name in scripts/s3/left_out
# take the place of each package's.
left_out_auth="iam_vault iam_ldap iam_ipa iam_s3_object iam_standalone"
left_out_s3event="kafka nats rabbitmq"
left_out_metrics="statsd dogstats"

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/s3
program=$folder/versitygw-$version
. "$checkout/scripts/kept.sh"

main() {
    # Another word in these files is another server.
    sources=$checkout/scripts/s3
    wanted=$version-$(cat "$0" "$sources"/*.go "$sources"/left_out/*.go | cksum | tr ' ' -)
    if ! is_there; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$folder"
        (
            flock 9
            is_there || take "s3-$wanted" "$program" || build
            echo "$wanted" >"$folder/.version"
        ) 9>"$checkout/.harrier/s3.lock"
    fi
    echo "$program"
}

is_there() {
    [ "$(cat "$folder/.version" 2>/dev/null)" = "$wanted" ] && [ -x "$program" ]
}

build() {
    if ! command -v go >/dev/null 2>&1; then
        echo "s3: Go is not installed, which builds versitygw $version" >&2
        exit 1
    fi
    source=$folder/source
    rm -rf "$source"
    # Inlining and what debuggers read take half of the compiler's time. A larger heap takes another tenth
    # off.
    export GO111MODULE=on GOWORK=off GOFLAGS=-buildvcs=false CGO_ENABLED=0 GOGC=400
    if ! { get_source && cd "$source" &&
        go build -gcflags="all=-l -dwarf=false" -ldflags="-s -w" \
            -o "$program.new" ./tests-of-harrier; } >&2; then
        rm -rf "$source"
        echo "s3: Go could not build versitygw $version" >&2
        exit 1
    fi
    rm -rf "$source"
    mv "$program.new" "$program"
    keep "s3-$wanted" "$program"
}

# A copy of versitygw's module, with the versions of its own go.mod, in which our program takes the place of
# its commands.
get_source() {
    module=$(cd "$folder" && go mod download -json "github.com/versity/versitygw@$version" |
        sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p') && [ -n "$module" ] || return 1
    cp -R "$module" "$source" && chmod -R u+w "$source" && mkdir "$source/tests-of-harrier" || return 1
    cp "$sources/main.go" "$source/tests-of-harrier/"
    for package in auth s3event metrics; do
        eval "files=\$left_out_$package"
        for file in $files; do
            rm "$source/$package/$file.go" || return 1
        done
        cp "$sources/left_out/$package.go" "$source/$package/left_out.go"
    done
}

main "$@"
