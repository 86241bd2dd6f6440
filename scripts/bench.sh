#!/bin/sh
# Compares configurations of Harrier, or Harrier and its peers, side by side; leaves .harrier/bench/*.json and *.svg.
#
# usage: scripts/bench.sh interconnects|blocks|peers|commit [SCALE]
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

# Files made visible, on local disks, HDFS, and S3 that takes 20 ms for every request; Spark beside. The servers end with it.
commit() {
    step "commits at scale $scale"
    mkdir -p "$folder"
    "${CARGO_TARGET_DIR:-target}/release/examples/servers" --s3-delay 20 -- "$harrier" bench commit --scale "$scale" \
        --store local=.harrier/bench/commit --store 'hdfs={hdfs}' --store 's3={s3}' \
        --peer "spark=bench/peers/run spark --threads 2 --jars .harrier/peers/spark-jars" \
        --json "$folder/commit-sf$scale.json" --chart "$folder/commit-sf$scale.svg"
}

case $what in
    commit)
        build
        step "installing the peers"
        steadily "installing Spark" bench/peers/run --install spark
        steadily "installing Spark's client for S3" bench/peers/spark-jars.sh || true
        commit
        ;;
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
        echo "usage: scripts/bench.sh interconnects|blocks|peers|commit [SCALE]" >&2
        exit 2
        ;;
esac
