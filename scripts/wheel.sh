#!/bin/sh
# Builds the wheel of harrier-mpid with maturin from PyPI, and installs it with NumPy into an environment of
# Python, .harrier/mpid/python, in which the tests run it.
#
# usage: scripts/wheel.sh
#
# The library in it is the one that the tests are built with: after them nothing is compiled. Prints the
# folder with python/ and wheel/. Exit status: 0 if all is there, 1 if not.

set -eu

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/mpid
tools="maturin==1.16.0 cffi==2.1.1"
wanted="numpy==2.3.5"
. "$checkout/scripts/kept.sh"
. "$checkout/scripts/python.sh"

# environment_of NAME PACKAGES: made when it is missing or was made with others.
environment_of() {
    if [ "$(cat "$folder/$1/.version" 2>/dev/null)" != "$2" ]; then
        # shellcheck disable=SC2086 # one word for each package
        environment "$folder/$1" "" $2
        echo "$2" >"$folder/$1/.version"
    fi
}

main() {
    # The tests leave the wheel out where this is not there.
    rm -f "$folder/done"
    environment_of build "$tools"
    environment_of python "$wanted"
    rm -rf "$folder/wheel"
    # Within the environment, whose Python has cffi.
    (
        cd "$checkout/python"
        export PATH="$folder/build/bin:$PATH" CARGO="$checkout/scripts/wheel-cargo.sh"
        maturin build --release --quiet --out "$folder/wheel" >&2
    )
    add "$folder/python" --no-deps --no-index --force-reinstall "$folder"/wheel/harrier_mpid-*.whl
    touch "$folder/done"
    echo "$folder"
}

# One at a time.
mkdir -p "$folder"
exec 9>"$checkout/.harrier/mpid.lock"
flock 9
main
