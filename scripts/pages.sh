#!/bin/sh
# Installs what the pages, the metrics and the telemetry of a server are tested with: Chromium and promtool of the system's packages,
# and the definitions of OpenTelemetry and Prometheus, and Rotel, a collector, from PyPI into .harrier/pages.
#
# usage: scripts/pages.sh
#
# Prints the folder, with python/ (an environment of Python). What is there already is kept. OpenTelemetry's collector is used where
# HARRIER_OTELCOL names one, and is not installed; Rotel is where it has a wheel for this Python. Exit status: 0 if all is there, 1 if not.

set -eu
. "$(dirname -- "$0")/packages.sh"

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/pages
wanted="opentelemetry-proto==1.39.1 prometheus-client==0.23.1"
collector="rotel==0.0.1a15"
missing=

main() {
    need_packages
    if [ "$(cat "$folder/.version" 2>/dev/null)" != "$wanted $collector" ]; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$checkout/.harrier"
        (
            flock 9
            [ "$(cat "$folder/.version" 2>/dev/null)" = "$wanted $collector" ] || install_python
        ) 9>"$checkout/.harrier/pages.lock"
    fi
    if [ -n "$missing" ]; then
        echo "pages: not installed and could not be:$missing" >&2
        exit 1
    fi
    echo "$folder"
}

install_python() {
    rm -rf "$folder"
    mkdir -p "$folder"
    # shellcheck disable=SC2086 # one word for each package
    if ! { python3 -m venv "$folder/python" >&2 && "$folder/python/bin/python3" -m pip install --quiet \
        --disable-pip-version-check --only-binary :all: $wanted >&2; }; then
        rm -rf "$folder"
        echo "pages: pip could not install $wanted" >&2
        exit 1
    fi
    "$folder/python/bin/python3" -m pip install --quiet --disable-pip-version-check --only-binary :all: "$collector" >&2 ||
        echo "pages: pip could not install $collector, so that no collector is tried" >&2
    echo "$wanted $collector" >"$folder/.version"
}

need_packages() {
    packages=
    find_browser || packages="$packages chromium"
    command -v promtool >/dev/null 2>&1 || packages="$packages prometheus"
    if [ -n "$packages" ]; then
        # shellcheck disable=SC2086 # one word for each package
        install_packages $packages >&2 || true
    fi
    find_browser || missing="$missing chromium"
    command -v promtool >/dev/null 2>&1 || missing="$missing promtool"
}

find_browser() {
    [ -n "${HARRIER_CHROMIUM-}" ] && return 0
    for program in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$program" >/dev/null 2>&1 && return 0
    done
    return 1
}

main "$@"
