#!/bin/sh
# Gets the files of PostgreSQL's own regression suite, out of the distribution's source package, into
# .harrier/regress.
#
# usage: scripts/regress.sh
#
# Prints the folder with sql/ and data/. What is there already is kept; where there is a folder
# ~/.cache/harrier the files are kept there too, for other checkouts. The lists of packages, the archive and
# the folder are this script's own: apt's configuration stays as it is, and it need not be root. The files are
# PostgreSQL's and under its licence; they are not part of this repository. Exit status: 0 if the files are
# there, 1 if not.

set -eu

# The suite changes with each minor version in a few lines; the list of differences was made with this one.
version=15.18

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/regress
. "$checkout/scripts/kept.sh"

main() {
    if [ "$(cat "$folder/.version" 2>/dev/null)" != "$version" ]; then
        # One at a time: tests may ask for it at once.
        mkdir -p "$checkout/.harrier"
        (
            flock 9
            [ "$(cat "$folder/.version" 2>/dev/null)" = "$version" ] || take "regress-$version" "$folder" ||
                get_files >&2
        ) 9>"$checkout/.harrier/regress.lock"
    fi
    echo "$folder"
}

get_files() {
    command -v apt-get >/dev/null 2>&1 || give_up "there is no apt-get to get the source package of PostgreSQL $version with"
    rm -rf "$folder"
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial"
    list_sources >"$folder/apt/sources.list"
    [ -s "$folder/apt/sources.list" ] || give_up "apt knows no distribution of Debian"
    apt apt-get -qq update || give_up "the lists of source packages cannot be had"
    package=$(apt apt-cache showsrc --only-source postgresql-15 2>/dev/null |
        sed -n "s/^Version: \($version-.*\)/\1/p" | head -n 1)
    [ -n "$package" ] || give_up "there is no source package of PostgreSQL $version"
    (cd "$folder" && apt apt-get -qq --download-only source "postgresql-15=$package") ||
        give_up "the source package of PostgreSQL $version cannot be had"
    # The one folder that is needed, without the two that name it.
    tar -xf "$folder/postgresql-15_$version.orig.tar.bz2" -C "$folder" --strip-components=4 \
        --wildcards 'postgresql-*/src/test/regress/sql/*' 'postgresql-*/src/test/regress/data/*' ||
        give_up "the source package of PostgreSQL $version has not the expected files"
    rm -rf "$folder/apt" "$folder"/postgresql-15_*
    # The server that COPYs from data/ may be another user.
    chmod -R a+rX "$folder"
    echo "$version" >"$folder/.version"
    keep "regress-$version" "$folder"
}

# The distributions that apt installs from, as sources of source packages.
list_sources() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
        sort -u | sed -n 's/^\(.*\) Debian$/deb-src \1/p'
}

# apt PROGRAM ARGUMENTS...: with lists and archives in the folder.
apt() {
    program=$1
    shift
    "$program" -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$folder/apt/lists" -o Dir::Cache="$folder/apt" -o Dir::Cache::Archives="$folder/apt/archives" \
        -o APT::Sandbox::User= "$@"
}

give_up() {
    rm -rf "$folder"
    echo "regress: $1" >&2
    exit 1
}

main "$@"
