#!/bin/sh
# Installs HDFS for the tests: the jars of a NameNode and a DataNode from Maven Central, into .harrier/hdfs.
#
# usage: scripts/hdfs.sh
#
# Prints the folder with lib/ (jars) and web/ (the NameNode's pages). What is there already is kept. Java and Maven are
# installed with apt-get where they are missing and it may. Starts nothing. Exit status: 0 if it is there, 1 if not.

set -eu

version=3.4.2

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/hdfs

main() {
    need_program java openjdk-17-jre-headless
    if [ "$(cat "$folder/.version" 2>/dev/null)" != "$version" ]; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$checkout/.harrier"
        (
            flock 9
            [ "$(cat "$folder/.version" 2>/dev/null)" = "$version" ] || install_jars
        ) 9>"$checkout/.harrier/hdfs.lock"
    fi
    echo "$folder"
}

install_jars() {
    need_program mvn maven
    rm -rf "$folder"
    mkdir -p "$folder"
    if ! mvn -q -B -ntp -f "$checkout/scripts/hdfs/pom.xml" -Dhadoop.version="$version" -Dharrier.folder="$folder" \
        process-resources >&2; then
        rm -rf "$folder"
        echo "hdfs: Maven could not get Hadoop $version" >&2
        exit 1
    fi
    rm -rf "$checkout/scripts/hdfs/target"
    echo "$version" >"$folder/.version"
}

# need_program NAME PACKAGE
need_program() {
    command -v "$1" >/dev/null 2>&1 && return 0
    if command -v apt-get >/dev/null 2>&1; then
        if [ "$(id -u)" -eq 0 ]; then
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null 2>&1 || true
        elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
            sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null 2>&1 || true
        fi
    fi
    command -v "$1" >/dev/null 2>&1 && return 0
    echo "hdfs: $1 is not installed and could not be (package $2)" >&2
    exit 1
}

main "$@"
