#!/bin/sh
# Installs what C programs in keys and values are compiled with: lib/libmpid.so, include/mpid.h and lib/pkgconfig/mpid.pc under PREFIX.
#
# usage: scripts/install-mpid.sh PREFIX [LIBRARY]
#
# LIBRARY: the libmpid.so that is installed [default: the one that `make build` has made].
# With PKG_CONFIG_PATH=PREFIX/lib/pkgconfig, `cc program.c $(pkg-config --cflags --libs mpid)` compiles a program,
# which finds the library where it was installed. PREFIX is refused if it has what the shell takes apart in that line, such as a blank, or what
# ends a folder in a list that the linker is given. DESTDIR stands before it where files are written, and in none of them.

set -eu

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)

fail() {
    printf '%s\n' "${0##*/}: $*" >&2
    exit 1
}

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    fail "usage: ${0##*/} PREFIX [LIBRARY]"
fi
target=${CARGO_TARGET_DIR:-$checkout/target}
library=${2:-$target/release/libmpid.so}
[ -f "$library" ] || fail "$library is not there: make build makes it"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$checkout/Cargo.toml" | head -n 1)
[ -n "$version" ] || fail "Cargo.toml has no version"

# What $(pkg-config …) yields is taken apart at blanks, whatever is quoted in it; -Wl at commas, folders to find libraries in at colons. In the .pc
# file itself a # begins a comment, and $ a variable.
case $1 in
    /*) prefix=$1 ;;
    *) prefix=$(pwd)/$1 ;;
esac
# The | at the end, as $(…) leaves out the end of a line there.
odd=$(printf '%s|' "$prefix" | LC_ALL=C tr -d 'A-Za-z0-9/._+@%=~\200-\377-')
[ "$odd" = "|" ] || fail "\"$prefix\" has other characters than letters, digits and /._+@%=~-, such as a blank, which pkg-config cannot hand to every compiler"
root=${DESTDIR-}$prefix
mkdir -p "$root/lib/pkgconfig" "$root/include"
[ -n "${DESTDIR-}" ] || prefix=$(CDPATH='' cd -- "$root" && pwd)
install -m 755 "$library" "$root/lib/libmpid.so"
install -m 644 "$checkout/crates/mpid-c/include/mpid.h" "$root/include/mpid.h"
# Whatever the prefix is called, sed must not read anything into it.
quoted=$(printf '%s\n' "$prefix" | sed 's/[&|\\]/\\&/g')
sed -e "s|@prefix@|$quoted|" -e "s|@version@|$version|" "$checkout/crates/mpid-c/mpid.pc.in" >"$root/lib/pkgconfig/mpid.pc"
