#!/bin/sh
# Installs what C programs in keys and values are compiled with: lib/libmpid.so, include/mpid.h and lib/pkgconfig/mpid.pc under PREFIX.
#
# usage: scripts/install-mpid.sh PREFIX [LIBRARY]
#
# LIBRARY: the libmpid.so that is installed [default: the one that `cargo build --release -p harrier-mpid-c` has made].
# With PKG_CONFIG_PATH=PREFIX/lib/pkgconfig, `cc program.c $(pkg-config --cflags --libs mpid)` compiles a program,
# which finds the library where it was installed.

set -eu

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    fail "usage: ${0##*/} PREFIX [LIBRARY]"
fi
target=${CARGO_TARGET_DIR:-$checkout/target}
library=${2:-$target/release/libmpid.so}
[ -f "$library" ] || fail "$library is not there: cargo build --release -p harrier-mpid-c makes it"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$checkout/Cargo.toml" | head -n 1)
[ -n "$version" ] || fail "Cargo.toml has no version"

mkdir -p "$1/lib/pkgconfig" "$1/include"
prefix=$(CDPATH='' cd -- "$1" && pwd)
install -m 755 "$library" "$prefix/lib/libmpid.so"
install -m 644 "$checkout/crates/mpid-c/include/mpid.h" "$prefix/include/mpid.h"
# Whatever the prefix is called, sed must not read anything into it.
quoted=$(printf '%s\n' "$prefix" | sed 's/[&|\\]/\\&/g')
sed -e "s|@prefix@|$quoted|" -e "s|@version@|$version|" "$checkout/crates/mpid-c/mpid.pc.in" >"$prefix/lib/pkgconfig/mpid.pc"
