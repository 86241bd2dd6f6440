#!/bin/sh
# Runs statements under every launcher of MPI that can be had here, and counts their answers: a statement of three
# ranks is done once, tasks that differ are refused, tasks that are to work by themselves do, and a rank that does
# not come is told.
#
# usage: scripts/launchers.sh [NAME…]     (nothing named: all; names are those that it prints)
#
# Last comes a table: of each launcher how many answers are right, and how many wrong.
#
# The binary is target/release/harrier, or HARRIER. The launchers are those of the system, of the wheels that
# scripts/mpi-runtimes.sh installs, of Intel's from PyPI (installed here), and of a throw-away Slurm. One that cannot be
# had is skipped with a word. Exit status: 0 if every answer is right, 1 if not, 77 if there is no launcher.
. "$(dirname -- "$0")/common.sh"
checkout=$PWD
. scripts/kept.sh
. scripts/python.sh

harrier=${HARRIER:-$PWD/$harrier}
wheels=$PWD/.harrier/mpi
intel_version=2021.18.1
wanted=" $* "
tried=0
wrong=0
work=$(mktemp -d)
slurm=
trap 'clean' EXIT

clean() {
    [ -z "$slurm" ] || scripts/slurm.sh down "$slurm"
    # Its daemons may write for a moment yet.
    rm -rf "$work" 2>/dev/null || { sleep 2 && rm -rf "$work"; } || true
}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
crowded="--map-by :OVERSUBSCRIBE --bind-to none -n 3"

# The rank, whatever the launcher calls it.
rank='${PMIX_RANK:-${PMI_RANK:-${PMI_ID:-$SLURM_PROCID}}}'

# expect LAUNCHER CASE FOUND RIGHT
expect() {
    tried=$((tried + 1))
    if [ "$3" = "$4" ]; then
        right_here=$((right_here + 1))
        echo "right  $1: $2"
    else
        wrong=$((wrong + 1))
        wrong_here=$((wrong_here + 1))
        echo "WRONG  $1: $2: \"$3\", not \"$4\""
        sed 's/^/       /' "$work/said" | head -n 20
    fi
}

# row LAUNCHER RIGHT WRONG NOTE: of the table.
row() {
    printf '%-14s %5s %5s  %s\n' "$@" >>"$work/table"
}

# ranks COMMAND…: under the launcher in $launcher, for a minute at most; what it says goes to $work/said.
ranks() {
    status=0
    # shellcheck disable=SC2086 # the launcher's words
    timeout -k 5 60 $launcher "$@" >"$work/said" 2>&1 </dev/null || status=$?
}

# errors CODE: how often it was told.
errors() {
    grep -c "ERROR $1" "$work/said" || true
}

# rows: of the table that the ranks have filled, on this process alone.
rows() {
    "$harrier" sql --alone --warehouse "$work/warehouse" --format csv -c "SELECT count(*) FROM t" 2>/dev/null | tail -n 1
}

# launcher NAME [refuses] WORDS…
launcher() {
    name=$1
    shift
    [ "$wanted" = "  " ] || case $wanted in *" $name "*) ;; *) return 0 ;; esac
    refuses=
    if [ "$1" = refuses ]; then
        refuses=yes
        shift
    fi
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "launchers: $name: $1 is not installed" >&2
        row "$name" - - "not installed"
        return 0
    fi
    launcher="$*"
    right_here=0
    wrong_here=0

    rm -rf "$work/warehouse"
    ranks "$harrier" sql --warehouse "$work/warehouse" -c "CREATE TABLE t (a INT)" \
        -c "INSERT INTO t SELECT * FROM generate_series(1, 1000)"
    if [ -n "$refuses" ]; then
        expect "$name" "a statement is refused, once" "$(errors 58000) $(rows)" "1 "
    else
        expect "$name" "a statement of three ranks is done once" "$status $(rows)" "0 1000"
        ranks sh -c "exec \"$harrier\" sql -c \"SELECT 40 + $rank\""
        expect "$name" "tasks that differ are refused, once" "$(errors 55000)" 1
        export HARRIER_START_SECONDS=5
        ranks sh -c "[ $rank != 1 ] || exit 0; exec \"$harrier\" sql -c 'SELECT 1'"
        expect "$name" "a rank that does not come is told, once" "$(errors 08001)" 1
        unset HARRIER_START_SECONDS
    fi
    ranks sh -c "exec \"$harrier\" sql --alone --format csv -c \"SELECT 40 + $rank\""
    expect "$name" "tasks work by themselves" "$(grep -Ex '4[012]' "$work/said" | sort | tr '\n' ' ')" "40 41 42 "
    row "$name" "$right_here" "$wrong_here" ""
}

with_slurm() {
    slurm=$work/slurm
    if ! scripts/slurm.sh up "$slurm" 2 >"$work/slurm.log" 2>&1; then
        echo "launchers: Slurm: $(tail -n 1 "$work/slurm.log")" >&2
        row srun - - "no cluster"
        slurm=
        return 0
    fi
    export SLURM_CONF="$slurm/slurm.conf"
    launcher srun-pmix srun --mpi=pmix -N 1 -n 3
    launcher srun-pmi2 srun --mpi=pmi2 -N 1 -n 3
    launcher srun-none refuses srun --mpi=none -N 1 -n 3
    launcher srun-pmi2-open refuses env HARRIER_MPI_ABI=openmpi srun --mpi=pmi2 -N 1 -n 3
}

[ -x "$harrier" ] || fail "$harrier is not there: make build makes it"
scripts/mpi-runtimes.sh >&2 || true
[ -x "$wheels/intel/bin/mpiexec" ] || environment "$wheels/intel" "" "impi-rt==$intel_version" >&2 || true

# shellcheck disable=SC2086 # words
{
    launcher open-mpi mpirun.openmpi $crowded
    launcher open-mpi-5 "$wheels/openmpi5/bin/mpirun" $crowded
    launcher prterun "$wheels/openmpi5/bin/prterun" $crowded
}
launcher mpich mpiexec.mpich -n 3
launcher mpich-port mpiexec.mpich -pmi-port -n 3
launcher mpich-5 "$wheels/mpich5/bin/mpiexec" -n 3
launcher mpich-5-port "$wheels/mpich5/bin/mpiexec" -pmi-port -n 3
launcher intel "$wheels/intel/bin/mpiexec" -n 3
with_slurm

if [ "$tried" -eq 0 ]; then
    echo "launchers: there is none here" >&2
    exit 77
fi
printf '%-14s %5s %5s\n' launcher right wrong
sed 's/ *$//' "$work/table"
echo "$((tried - wrong)) of $tried answers are right"
[ "$wrong" -eq 0 ]
