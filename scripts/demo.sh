#!/bin/sh
# From a fresh clone to the 22 queries of TPC-H, embedded and over MPI: installs what is missing, builds the program and nothing else, makes
# the data at scale 1 while it compiles, runs, checks every answer, prints the times and draws them. What is there already is used again.
. "$(dirname -- "$0")/common.sh"

folder=.harrier/demo
data=.harrier/data/tpch-sf1
mkdir -p "$folder"

need_cargo
need_cc
step "building $harrier; an MPI is installed and the data made beside that"
# Whoever ends this ends all of it.
trap 'trap - EXIT; kill $installing $generating 2>/dev/null; exit 130' INT TERM
installing=
generating=
(need_mpi) >"$folder/mpi.log" 2>&1 &
installing=$!
# The generator is done long before the program is, of which it needs a small part.
build_program harrier-generate
nice "${harrier%/*}/harrier-generate" tpch 1 "$data" >"$folder/generate.log" 2>&1 &
generating=$!
build_program harrier
step "waiting for TPC-H at scale 1 in $data"
steadily generating wait "$generating" || { cat "$folder/generate.log" >&2; fail "the data could not be made"; }
wait "$installing" || true
need_mpi
step "running the 22 queries in one process of two threads, and in two ranks of one thread over MPI ($HARRIER_MPIRUN)"
"$harrier" bench tpch --scale 1 --config embedded:threads=2 --config mpi:ranks=2,threads=1 \
    --data "$data" --json "$folder/tpch.json" --chart "$folder/tpch.svg"
