#!/bin/sh
# Installs what the tests need, as far as this machine allows: side by side, and the system's packages at
# once.
#
# usage: scripts/install.sh [--strict] [--times FILE] [NAME...]
#
# NAME          mpi, duckdb, postgres, ldap, s3, hdfs, clients, regress, pages, slurm or valgrind; without
#               any, all of them. Statements that run embedded, in a warehouse and on ranks need mpi alone.
# --times FILE  writes a line for each into FILE, seen from the root of the checkout: its name, its seconds,
#               and what came of it, with tabs between them
# --strict      exit status 1 if something is missing. Without it 0: the tests that need it leave themselves
#               out.
#
# What is there already is kept. Prints a line for each name when it has ended, and all that was said if it is
# missing. As the rest is done by scripts that may be called by themselves, two of this may run at once, too.

set -eu
cd "$(dirname -- "$0")/.."
. scripts/packages.sh

# What takes longest begins first.
all="s3 clients hdfs mpi pages duckdb regress slurm postgres ldap valgrind"

main() {
    names=
    table=
    strict=
    while [ $# -gt 0 ]; do
        case $1 in
            --strict) strict=1 ;;
            --times)
                [ $# -gt 1 ] || usage
                table=$2
                shift
                ;;
            *)
                case " $all " in
                    *" $1 "*) names="$names $1" ;;
                    *) usage ;;
                esac
                ;;
        esac
        shift
    done
    folder=$(mktemp -d)
    steps=
    trap 'rm -rf "$folder"' EXIT
    # apt-get goes on, because half of what it does would have to be repaired.
    trap 'kill $steps 2>/dev/null; exit 130' HUP INT TERM
    # shellcheck disable=SC2086 # one word for each name
    start_all ${names:-$all}
    for step in $steps; do
        wait "$step" || true
    done
    [ -z "$table" ] || cat "$folder"/*.row >"$table"
    [ -z "$strict" ] || [ -z "$(find "$folder" -name '*.missing')" ]
}

usage() {
    echo "usage: scripts/install.sh [--strict] [--times FILE] [NAME...], with the names $all" >&2
    exit 2
}

# start_all NAME...
start_all() {
    # shellcheck disable=SC2046 # one word for each package
    packages=$(echo $(for name in "$@"; do missing_packages "$name"; done))
    if [ -n "$packages" ] && [ -d "$packages_folder" ]; then
        # The lock is held before the scripts begin. Those that need packages wait for it, and find them
        # installed. If somebody else has it, they wait for that one.
        exec 8<"$packages_folder"
        flock -n 8 || true
        # shellcheck disable=SC2086 # one word for each package
        run_step packages install install_waiting $packages &
        waited=$!
        exec 8<&-
    fi
    for name in "$@"; do
        # What it runs has a session of its own, so that it can be ended with all that it has started.
        case $name in
            mpi) run_step mpi mpi-runtimes setsid scripts/mpi-runtimes.sh & ;;
            slurm) run_step slurm slurm.sh setsid scripts/slurm.sh install & ;;
            valgrind) run_step valgrind valgrind install_valgrind & ;;
            *) run_step "$name" "$name" setsid "scripts/$name.sh" & ;;
        esac
        steps="$steps $!"
    done
    steps="$steps ${waited-}"
}

# missing_packages NAME: prints the packages that this one would install.
missing_packages() {
    case $1 in
        mpi) scripts/mpi-runtimes.sh --packages ;;
        valgrind) command -v valgrind >/dev/null 2>&1 || echo valgrind ;;
        postgres | ldap | hdfs | clients | pages | slurm) "scripts/$1.sh" --packages ;;
    esac
}

install_waiting() {
    flock 8
    install_locked "$@"
}

install_valgrind() {
    command -v valgrind >/dev/null 2>&1 || install_packages valgrind || true
    if ! command -v valgrind >/dev/null 2>&1; then
        echo "valgrind: not installed and could not be" >&2
        return 1
    fi
}

# run_step NAME PREFIX COMMAND...: PREFIX is what the script's own messages begin with.
run_step() {
    name=$1
    prefix=$2
    shift 2
    begun=$(date +%s%N)
    "$@" >/dev/null 2>"$folder/$name.log" </dev/null &
    started=$!
    trap 'kill -- "-$started" 2>/dev/null; exit 1' TERM
    status=0
    wait "$started" || status=$?
    tenths=$((($(date +%s%N) - begun) / 100000000))
    said=$(sed -n "s/^$prefix: //p" "$folder/$name.log" | tr '\t' ' ' | paste -s -d ';' - | sed 's/;/; /g')
    result=ok
    if [ "$status" -ne 0 ]; then
        result="missing: ${said:-exit status $status}"
        : >"$folder/$name.missing"
    elif [ -n "$said" ]; then
        result="ok, but $said"
    fi
    seconds=$((tenths / 10)).$((tenths % 10))
    printf '%s\t%s\t%s\n' "$name" "$seconds" "$result" >"$folder/$name.row"
    printf '    %-8s %6s s  %s\n' "$name" "$seconds" "$result"
    [ "$status" -eq 0 ] || sed "s/^/        $name: /" "$folder/$name.log" >&2
}

main "$@"
