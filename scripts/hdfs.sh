#!/bin/sh
# Installs HDFS for the tests: the jars of a NameNode and a DataNode from Maven Central, into .harrier/hdfs.
#
# usage: scripts/hdfs.sh [--packages]
#
# Prints the folder with lib/ (jars) and web/ (the NameNode's pages). What is there already is kept; where
# there is a folder ~/.cache/harrier the jars are kept there too, for other checkouts. Java and Maven are
# installed with apt-get where they are missing and it may. Starts nothing. Exit status: 0 if it is there, 1
# if not.
# --packages: prints the packages that it would install, and installs nothing.

set -eu

version=3.4.2

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/hdfs
. "$checkout/scripts/packages.sh"
. "$checkout/scripts/kept.sh"
. "$checkout/scripts/jars.sh"

main() {
    if [ "${1-}" = --packages ]; then
        missing_packages
        return
    fi
    need_program java openjdk-17-jre-headless
    if ! is_there; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$checkout/.harrier"
        (
            flock 9
            is_there || take "hdfs-$version" "$folder" || install_jars
        ) 9>"$checkout/.harrier/hdfs.lock"
    fi
    echo "$folder"
}

is_there() {
    [ "$(cat "$folder/.version" 2>/dev/null)" = "$version" ]
}

missing_packages() {
    command -v java >/dev/null 2>&1 || echo openjdk-17-jre-headless
    is_there || [ -e "$kept/hdfs-$version" ] || command -v mvn >/dev/null 2>&1 || echo maven
}

install_jars() {
    need_program mvn maven
    rm -rf "$folder"
    mkdir -p "$folder"
    if ! jars hdfs -Dhadoop.version="$version" -Dharrier.folder="$folder"; then
        rm -rf "$folder"
        echo "hdfs: Maven could not get Hadoop $version" >&2
        exit 1
    fi
    echo "$version" >"$folder/.version"
    keep "hdfs-$version" "$folder"
}

# need_program NAME PACKAGE
need_program() {
    command -v "$1" >/dev/null 2>&1 && return 0
    install_packages "$2" >&2 || true
    command -v "$1" >/dev/null 2>&1 && return 0
    echo "hdfs: $1 is not installed and could not be (package $2)" >&2
    exit 1
}

main "$@"
