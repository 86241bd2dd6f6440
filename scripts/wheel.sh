#!/bin/sh
# Builds the wheel of harrier-mpid with maturin from PyPI, and installs it with NumPy into an environment of Python, .harrier/mpid/python,
# in which the tests run it.
#
# usage: scripts/wheel.sh
#
# Prints the folder with python/ and wheel/. Exit status: 0 if all is there, 1 if not.

set -eu

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/mpid
tools="maturin==1.16.0 cffi==2.1.1"
wanted="numpy==2.3.5"

# environment NAME PACKAGES: made when it is missing or was made with others.
environment() {
    if [ "$(cat "$folder/$1/.version" 2>/dev/null)" != "$2" ]; then
        rm -rf "${folder:?}/$1"
        mkdir -p "$folder"
        python3 -m venv "$folder/$1" >&2
        # shellcheck disable=SC2086 # one word for each package
        "$folder/$1/bin/python3" -m pip install --quiet --disable-pip-version-check --only-binary :all: $2 >&2
        echo "$2" >"$folder/$1/.version"
    fi
}

# The tests leave the wheel out where this is not there.
rm -f "$folder/done"
environment build "$tools"
environment python "$wanted"
rm -rf "$folder/wheel"
# Within the environment, whose Python has cffi.
(
    cd "$checkout/python"
    PATH=$folder/build/bin:$PATH maturin build --release --quiet --out "$folder/wheel" >&2
)
"$folder/python/bin/python3" -m pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall \
    "$folder"/wheel/harrier_mpid-*.whl >&2
touch "$folder/done"
echo "$folder"
