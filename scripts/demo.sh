#!/bin/sh
# From a fresh clone to the 22 queries of TPC-H, embedded and over MPI: installs what is missing, builds, generates the
# data at scale 1, runs, checks every answer, prints the times and draws them. What is there already is used again.
. "$(dirname -- "$0")/common.sh"

folder=.harrier/demo

build
need_mpi
step "generating TPC-H at scale 1 in .harrier/data/tpch-sf1, where it is missing"
steadily generating "$harrier" generate tpch --scale 1 --out .harrier/data/tpch-sf1
step "running the 22 queries in one process of two threads, and in two ranks of one thread over MPI ($HARRIER_MPIRUN)"
mkdir -p "$folder"
"$harrier" bench tpch --scale 1 --config embedded:threads=2 --config mpi:ranks=2,threads=1 \
    --data .harrier/data/tpch-sf1 --json "$folder/tpch.json" --chart "$folder/tpch.svg"
