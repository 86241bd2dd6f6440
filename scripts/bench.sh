#!/bin/sh
# Compares configurations of Harrier, or Harrier and its peers, side by side; leaves .harrier/bench/*.json and *.svg.
#
# usage: scripts/bench.sh interconnects|blocks|primitives|peers|commit|load [SCALE]
#        scripts/bench.sh crowded [SCALE]        (0.1 without it)
#        scripts/bench.sh duel [SCALE [SETS]]    (tpch,tpcds,joins,visits without them)
#        scripts/bench.sh plan
#        scripts/bench.sh planning [BASELINE]    (another build of harrier to compare with, statement by statement)
#        scripts/bench.sh mpid [BYTES]           (of input: 1000000000 without it, an hour or two for all)
#        scripts/bench.sh serve [SECONDS]        (of each window of load: 1.5 without it, 14 minutes for all)
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

# Bytes from one process to another, by each of the means that data systems use.
primitives() {
    steadily "installing Hadoop and Jetty" bench/primitives/run --install || true
    step "bytes from one process to another"
    mkdir -p "$folder"
    "$harrier" bench primitives --json "$folder/primitives.json" --chart "$folder/primitives.svg"
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

# Sets of statements against DuckDB, by processor time.
duel() {
    steadily "installing DuckDB" bench/peers/run --install duckdb
    step "a duel at scale $scale"
    mkdir -p "$folder"
    "$harrier" bench duel --scale "$scale" ${1:+--sets "$1"} \
        --json "$folder/duel-sf$scale.json" --chart "$folder/duel-sf$scale.svg"
}

# Tables filled, beside DuckDB that fills tables of DuckLake; it is left out where it cannot be installed.
load() {
    set --
    if steadily "installing DuckDB with DuckLake" bench/peers/run --install ducklake; then
        set -- --peer 'ducklake=bench/peers/run ducklake --threads 1'
    else
        echo "bench.sh: left out: DuckDB with DuckLake could not be installed" >&2
    fi
    step "loads at scale $scale"
    mkdir -p "$folder"
    "$harrier" bench load --scale "$scale" --json "$folder/load-sf$scale.json" --chart "$folder/load-sf$scale.svg" "$@"
}

# A server under the load of many clients, beside those of the peers that can be had. A peer that does not start is told and left out.
serve() {
    set --
    if steadily "installing PostgreSQL" scripts/postgres.sh >/dev/null; then
        set -- "$@" --peer postgres=bench/peers/postgres_server.sh
    else
        echo "bench.sh: left out: PostgreSQL could not be installed" >&2
    fi
    for peer in duckdb spark; do
        if steadily "installing $peer" bench/peers/run --install "$peer"; then
            set -- "$@" --peer "$peer=bench/peers/run $peer-server"
        else
            echo "bench.sh: left out: $peer could not be installed" >&2
        fi
    done
    if steadily "installing a client of Arrow Flight" bench/peers/run --install flight; then
        set -- "$@" --flight-reader "bench/peers/run flight-reader"
    fi
    step "servers under load"
    mkdir -p "$folder"
    # A thousand connections that do nothing need as many descriptors, on both sides.
    ulimit -n 8192 2>/dev/null || true
    "$harrier" bench serve --seconds "$seconds" --time-max 760 --json "$folder/serve.json" --chart "$folder/serve.svg" "$@"
}

case $what in
    mpid)
        build
        need_mpi
        step "programs in keys and values"
        "$harrier" bench mpid --bytes "${2:-1000000000}"
        ;;
    serve)
        seconds=${2:-1.5}
        build
        need_mpi
        step "installing the peers"
        serve
        ;;
    commit)
        build
        step "installing the peers"
        steadily "installing Spark" bench/peers/run --install spark
        steadily "installing Spark's client for S3" bench/peers/spark-jars.sh || true
        commit
        ;;
    duel)
        build
        duel "${3-}"
        ;;
    plan)
        build
        step "plans over many files"
        mkdir -p "$folder"
        "$harrier" bench plan --json "$folder/plan.json"
        ;;
    planning)
        build
        step "statements planned"
        mkdir -p "$folder"
        "$harrier" bench planning ${2:+--baseline "$2"} --json "$folder/planning.json"
        ;;
    load)
        build
        need_mpi
        step "installing the peers"
        load
        ;;
    blocks)
        build
        need_mpi
        blocks
        ;;
    primitives)
        build
        need_mpi
        primitives
        ;;
    crowded)
        scale=${2:-0.1}
        build
        need_mpi
        run crowded crowded
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
        echo "usage: scripts/bench.sh interconnects|blocks|primitives|peers|commit|load|crowded [SCALE], duel [SCALE [SETS]], plan, planning [BASELINE], serve [SECONDS], or mpid [BYTES]" >&2
        exit 2
        ;;
esac
