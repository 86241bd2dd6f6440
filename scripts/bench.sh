#!/bin/sh
# Compares configurations of Harrier, or Harrier and its peers, side by side; leaves .harrier/bench/*.json and *.svg.
#
# usage: scripts/bench.sh interconnects|blocks|peers [SCALE]
. "$(dirname -- "$0")/common.sh"

what=${1-}
scale=${2:-1}
folder=.harrier/bench

# run NAME BENCHMARK CONFIGURATIONS...
run() {
    name=$1
    benchmark=$2
    shift 2
    step "$benchmark at scale $scale"
    mkdir -p "$folder"
    "$harrier" bench "$benchmark" --scale "$scale" --json "$folder/$name-sf$scale.json" --chart "$folder/$name-sf$scale.svg" "$@"
}

# No queries and no data: blocks from rank to rank, in every way.
blocks() {
    step "blocks between ranks"
    mkdir -p "$folder"
    "$harrier" bench interconnect --json "$folder/blocks.json" --chart "$folder/blocks.svg"
}

case $what in
    blocks)
        build
        need_mpi
        blocks
        ;;
    interconnects)
        build
        need_mpi
        blocks
        for benchmark in tpch shuffle; do
            run "$benchmark-interconnects" "$benchmark" --config mpi:ranks=2,threads=1 --config embedded:threads=2 \
                --config inprocess:ranks=2,threads=1 --config grpc:ranks=2,threads=1,compression=none \
                --config grpc:ranks=2,threads=1,compression=lz4
        done
        ;;
    peers)
        build
        step "installing the peers"
        steadily "installing the peers" bench/peers/run --install datafusion duckdb
        run tpch-peers tpch --config embedded:threads=2 --peer 'datafusion=bench/peers/run datafusion --threads 2' \
            --peer 'duckdb=bench/peers/run duckdb --threads 2'
        ;;
    *)
        echo "usage: scripts/bench.sh interconnects|blocks|peers [SCALE]" >&2
        exit 2
        ;;
esac
