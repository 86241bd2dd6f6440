#!/bin/sh
# Two hosts on one machine, as network namespaces with a line of limited bandwidth and added delay between them.
#
# usage: scripts/hosts.sh [--rate RATE] [--delay MILLISECONDS] [--tell FILE] test | run COMMAND... | mpirun N COMMAND... | quic N COMMAND...
#
# test runs the interconnect's exchange over MPI's TCP and over QUIC, and a statement of `harrier sql` at 4 ranks, two on each host.
# run runs a command on host A; HARRIER_MPIRUN=scripts/hosts/mpirun.sh has a benchmark's ranks alternate between the hosts. mpirun starts N
# ranks, which alternate too, over TCP; quic starts N that meet by a hosts file, the first half of them on host A. RATE is as tc has it
# (1gbit). FILE is told at the end what the line was and what it carried, by the counters of its queues (tc -s) and of the process that
# delays.
# HOST_A, HOST_B, ADDRESS_A and ADDRESS_B tell a command where it is. Needs root, iproute2 and namespaces; where these are not permitted
# it says so and ends with status 77.
. "$(dirname -- "$0")/common.sh"

rate=1gbit
delay=0
told=
while :; do
    case ${1-} in
    --rate) rate=$2 && shift 2 ;;
    --delay) delay=$2 && shift 2 ;;
    --tell) told=$2 && shift 2 ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || fail "test, run COMMAND, mpirun N COMMAND or quic N COMMAND"

export HOST_A="hra$$" HOST_B="hrb$$" ADDRESS_A=10.98.0.1 ADDRESS_B=10.98.0.2
token=$$.$(date +%s%N).harrier-hosts
folder=$(mktemp -d)
link=

# The devices of a line that is a process go with it.
tell() {
    for host in "$HOST_A" "$HOST_B"; do
        ip netns exec "$host" tc -s qdisc show dev line 2>/dev/null || true
    done
}

clean() {
    [ -z "$told" ] || tell >"$told"
    if [ -n "$link" ]; then
        kill "$link" 2>/dev/null || true
        wait "$link" 2>/dev/null || true
        [ -z "$told" ] || cat <&3 >>"$told"
    fi
    ip netns del "$HOST_A" 2>/dev/null || true
    ip netns del "$HOST_B" 2>/dev/null || true
    rm -rf "$folder"
}
trap clean EXIT
trap 'exit 130' INT TERM

skip() {
    echo "skipped: $*" >&2
    exit 77
}

limit() {
    ip netns exec "$1" tc qdisc add dev line root tbf rate "$rate" burst 256kb latency 50ms
}

# With a delay and no netem in the kernel, a process of ours is the line.
make_line() {
    ip link add line netns "$HOST_A" type veth peer name line netns "$HOST_B"
    for end in "$HOST_A $ADDRESS_A" "$HOST_B $ADDRESS_B"; do
        ip -n "${end% *}" address add "${end#* }/24" dev line
        ip -n "${end% *}" link set line up
    done
    [ "$delay" = 0 ] && return
    if ip netns exec "$HOST_A" tc qdisc add dev line root netem delay "${delay}ms" rate "$rate" 2>/dev/null; then
        ip netns exec "$HOST_B" tc qdisc add dev line root netem delay "${delay}ms" rate "$rate"
        return
    fi
    ip -n "$HOST_A" link del line
    mkfifo "$folder/up"
    python3 scripts/hosts/link.py "$delay" "$HOST_A" "$ADDRESS_A" "$HOST_B" "$ADDRESS_B" >"$folder/up" &
    link=$!
    # Until the end: it says what it has held.
    exec 3<"$folder/up"
    read -r _ <&3 || skip "no netem in the kernel, and no /dev/net/tun"
}

up() {
    [ "$(id -u)" -eq 0 ] || skip "namespaces need root"
    command -v ip >/dev/null && command -v tc >/dev/null || skip "iproute2 is not installed"
    ip netns add "$HOST_A" 2>/dev/null || skip "network namespaces are not permitted here"
    ip netns add "$HOST_B"
    ip -n "$HOST_A" link set lo up
    ip -n "$HOST_B" link set lo up
    make_line
    [ -n "$(ip netns exec "$HOST_A" tc qdisc show dev line | grep netem)" ] || { limit "$HOST_A" && limit "$HOST_B"; } ||
        skip "no token bucket in the kernel"
}

on() {
    host=$1
    shift
    ip netns exec "$host" unshare -u sh -c 'hostname "$0"; exec "$@"' "$host" "$@"
}

# over_mpi N COMMAND...
over_mpi() {
    ranks=$1
    shift
    on "$HOST_A" timeout 300 scripts/hosts/mpirun.sh -n "$ranks" "$@"
}

# over_quic N COMMAND...: ranks by a hosts file, the first half of them on host A.
over_quic() {
    ranks=$1
    shift
    printf '%s:7350 slots=%d\n%s:7450 slots=%d\n' "$ADDRESS_A" $((ranks / 2)) "$ADDRESS_B" $((ranks - ranks / 2)) >"$folder/hosts"
    export HARRIER_HOSTS="$folder/hosts" HARRIER_TOKEN="$token"
    pids=
    rank=1
    while [ $rank -lt "$ranks" ]; do
        host=$HOST_B
        [ $rank -ge $((ranks / 2)) ] || host=$HOST_A
        (export HARRIER_RANK=$rank; on "$host" timeout 300 "$@" >"$folder/rank$rank") &
        pids="$pids $!"
        rank=$((rank + 1))
    done
    (export HARRIER_RANK=0; on "$HOST_A" timeout 300 "$@")
    for pid in $pids; do
        wait "$pid"
    done
    cat "$folder"/rank*
    unset HARRIER_HOSTS HARRIER_TOKEN
}

expect_lines() {
    lines=$(grep -c "$2" "$folder/said" || true)
    [ "$lines" -eq "$1" ] || fail "$(cat "$folder/said")"
}

check() {
    exchange=${harrier%/harrier}/examples/exchange
    step "exchange over MPI's TCP, 4 ranks on 2 hosts"
    over_mpi 4 "$exchange" --rounds 2 >"$folder/said"
    expect_lines 4 'streams read'
    step "exchange over QUIC, 4 ranks on 2 hosts"
    over_quic 4 "$exchange" --rounds 2 >"$folder/said"
    expect_lines 4 'streams read'
    step "harrier sql over MPI's TCP, 4 ranks on 2 hosts"
    "$harrier" generate tpch --scale 0.01 --out "$folder/tpch" >/dev/null
    sql="select l_returnflag, o_orderpriority, count(*), sum(l_quantity) from '$folder/tpch/lineitem/' join '$folder/tpch/orders/'
        on l_orderkey = o_orderkey group by 1, 2 order by 1, 2"
    "$harrier" sql --format csv -c "$sql" >"$folder/alone"
    over_mpi 4 "$harrier" sql --format csv -c "$sql" >"$folder/said"
    cmp "$folder/alone" "$folder/said" || fail "4 ranks on 2 hosts give something else than one process"
    step "harrier sql over QUIC, 4 ranks on 2 hosts"
    over_quic 4 "$harrier" sql --format csv -c "$sql" >"$folder/said"
    cmp "$folder/alone" "$folder/said" || fail "4 ranks on 2 hosts give something else than one process"
}

up
command=$1
shift
case $command in
test) check ;;
run) on "$HOST_A" "$@" ;;
mpirun) over_mpi "$@" ;;
quic) over_quic "$@" ;;
*) fail "test, run COMMAND, mpirun N COMMAND or quic N COMMAND" ;;
esac
