#!/bin/sh
# Installs what the pages, the metrics and the telemetry of a server are tested with: Chromium and promtool of
# the system's packages, and the definitions of OpenTelemetry and Prometheus, and Rotel, a collector, from
# PyPI into .harrier/pages.
#
# usage: scripts/pages.sh [--packages]
#
# Prints the folder, with python/ (an environment of Python). What is there already is kept. OpenTelemetry's
# collector is used where HARRIER_OTELCOL names one, and is not installed; Rotel is where it has a wheel for
# this Python. Exit status: 0 if all is there, 1 if not.
# --packages: prints the packages that it would install, and installs nothing.

set -eu

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/pages
wanted="opentelemetry-proto==1.39.1 prometheus-client==0.23.1"
modules="opentelemetry.proto.collector.metrics.v1.metrics_service_pb2
 opentelemetry.proto.collector.trace.v1.trace_service_pb2
 prometheus_client.openmetrics.parser prometheus_client.parser"
collector="rotel==0.0.1a15"
. "$checkout/scripts/packages.sh"
. "$checkout/scripts/kept.sh"
. "$checkout/scripts/python.sh"

main() {
    if [ "${1-}" = --packages ]; then
        missing_packages
        return
    fi
    if ! is_there; then
        # One at a time: the tests of several crates may ask for it at once.
        mkdir -p "$checkout/.harrier"
        (
            flock 9
            is_there || install_python
        ) 9>"$checkout/.harrier/pages.lock"
    fi
    # shellcheck disable=SC2046 # one word for each package
    set -- $(missing_packages)
    if [ $# -gt 0 ]; then
        install_packages "$@" >&2 || true
        set -- $(missing_packages)
    fi
    if [ $# -gt 0 ]; then
        echo "pages: not installed and could not be: $*" >&2
        exit 1
    fi
    echo "$folder"
}

is_there() {
    [ "$(cat "$folder/.version" 2>/dev/null)" = "$wanted $collector" ]
}

install_python() {
    # shellcheck disable=SC2086 # one word for each package
    if ! environment "$folder/python" "$modules" $wanted; then
        rm -rf "$folder"
        echo "pages: $wanted could not be installed" >&2
        exit 1
    fi
    add "$folder/python" "$collector" ||
        echo "pages: $collector could not be installed, so that no collector is tried" >&2
    echo "$wanted $collector" >"$folder/.version"
}

missing_packages() {
    find_browser || echo chromium
    command -v promtool >/dev/null 2>&1 || echo prometheus
}

find_browser() {
    [ -n "${HARRIER_CHROMIUM-}" ] && return 0
    for program in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$program" >/dev/null 2>&1 && return 0
    done
    return 1
}

main "$@"
