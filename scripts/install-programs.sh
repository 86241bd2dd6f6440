#!/bin/sh
# Installs what `make build` has built, without what debuggers need: bin/harrier, bin/mpidrun, bin/mpid-programs, manual pages, completions for
# bash, zsh and fish, and, for C programs in keys and values, libmpid.so with its header and pkg-config file, under PREFIX.
#
# usage: scripts/install-programs.sh [PREFIX]     [default: /usr/local]
#
# DESTDIR, which makers of packages set, stands before PREFIX where files are written, and in none of them.
. "$(dirname -- "$0")/common.sh"

[ $# -le 1 ] || fail "usage: ${0##*/} [PREFIX]"
prefix=${1:-/usr/local}
case $prefix in
    /*) ;;
    *) fail "PREFIX is a path from the root on, not \"$prefix\"" ;;
esac
built=${CARGO_TARGET_DIR:-target}/release
programs="harrier mpidrun mpid-programs"
for file in $programs libmpid.so; do
    [ -f "$built/$file" ] || fail "$built/$file is not there: make build makes it"
done

root=${DESTDIR-}$prefix
mkdir -p "$root/bin"
for program in $programs; do
    install -m 755 "$built/$program" "$root/bin/$program"
    ! command -v strip >/dev/null 2>&1 || strip "$root/bin/$program"
done
"$built/harrier" man --folder "$root/share/man/man1"
completions() {
    mkdir -p "$root/share/${2%/*}"
    "$built/harrier" completions "$1" >"$root/share/$2"
}
completions bash bash-completion/completions/harrier
completions zsh zsh/site-functions/_harrier
completions fish fish/vendor_completions.d/harrier.fish
library=$(mktemp)
trap 'rm -f "$library"' EXIT
cp "$built/libmpid.so" "$library"
# What programs are linked with stays.
! command -v strip >/dev/null 2>&1 || strip --strip-unneeded "$library"
scripts/install-mpid.sh "$prefix" "$library"
echo "installed in $root" >&2
