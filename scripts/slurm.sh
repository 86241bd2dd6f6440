#!/bin/sh
# A throw-away Slurm cluster on this machine, for tests: one controller and NODES virtual nodes of CPUS
# processors each (8), all on loopback.
#
# usage: scripts/slurm.sh up DIR [NODES [CPUS]] | down DIR | installed | install | --packages
#
# up leaves DIR/slurm.conf; `SLURM_CONF=DIR/slurm.conf srun --mpi=pmix -n 4 …` then works. down ends what up
# started. installed tells by its exit status whether Slurm is, install installs it where it may, as up does,
# and --packages prints the packages that would be installed. Needs the Debian packages slurmctld, slurmd,
# slurm-client, munge and libpmix-dev, and root, as slurmd does.
. "$(dirname -- "$0")/common.sh"
. scripts/packages.sh

# Slurm loads PMIx by the name that only its development package has.
packages="slurmctld slurmd slurm-client munge libpmix-dev"

installed() {
    for program in slurmctld slurmd srun munged; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
    PATH=$PATH:/sbin:/usr/sbin ldconfig -p | grep -q 'libpmix\.so '
}

install() {
    installed && return
    [ "$(id -u)" -eq 0 ] || fail "Slurm is not installed: $packages"
    # shellcheck disable=SC2086 # one word each
    steadily apt-get install_packages $packages || true
    installed || fail "Slurm could not be installed: $packages"
}

missing_packages() {
    # slurmd would not run as anybody else.
    [ "$(id -u)" -ne 0 ] || installed || echo "$packages"
}

# Two processes talk to each other through a socket that munge authenticates; a key of our own, a daemon of
# our own.
start_munge() {
    dd if=/dev/urandom bs=1024 count=1 of="$dir/munge.key" 2>/dev/null
    chmod 400 "$dir/munge.key"
    munged --force --key-file="$dir/munge.key" --socket="$dir/munge.socket" --pid-file="$dir/munge.pid" \
        --log-file="$dir/munge.log" --seed-file="$dir/munge.seed"
}

write_configuration() {
    host=$(hostname -s)
    {
        echo "ClusterName=harrier"
        echo "SlurmctldHost=$host(127.0.0.1)"
        echo "SlurmctldPort=$((port))"
        echo "SlurmUser=root"
        echo "AuthType=auth/munge"
        echo "AuthInfo=socket=$dir/munge.socket"
        echo "CredType=cred/munge"
        echo "StateSaveLocation=$dir/state"
        echo "SlurmdSpoolDir=$dir/spool-%n"
        echo "SlurmctldPidFile=$dir/slurmctld.pid"
        echo "SlurmdPidFile=$dir/slurmd-%n.pid"
        echo "SlurmctldLogFile=$dir/slurmctld.log"
        echo "SlurmdLogFile=$dir/slurmd-%n.log"
        # The virtual nodes would share a folder of PMIx otherwise.
        echo "TmpFS=$dir/tmp/%n"
        echo "ProctrackType=proctrack/pgid"
        echo "TaskPlugin=task/none"
        echo "SelectType=select/cons_tres"
        echo "SelectTypeParameters=CR_Core"
        echo "MpiDefault=pmix"
        echo "ReturnToService=2"
        echo "SlurmdParameters=config_overrides"
        echo "JobAcctGatherType=jobacct_gather/none"
        echo "AccountingStorageType=accounting_storage/none"
        node=1
        while [ "$node" -le "$nodes" ]; do
            echo "NodeName=n$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + node)) CPUs=$cpus RealMemory=1000"
            node=$((node + 1))
        done
        echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8"
    } >"$dir/slurm.conf"
}

up() {
    install
    mkdir -p "$dir/state" "$dir/tmp"
    dir=$(cd "$dir" && pwd)
    # munge insists that nobody else can write above its files.
    chmod 755 "$dir"
    # Any free stretch of ports will do; two clusters at once are unlikely.
    port=$((20000 + $$ % 20000))
    start_munge
    write_configuration
    export SLURM_CONF="$dir/slurm.conf"
    slurmctld -c -f "$SLURM_CONF"
    node=1
    while [ "$node" -le "$nodes" ]; do
        mkdir -p "$dir/spool-n$node" "$dir/tmp/n$node"
        slurmd -c -N "n$node" -f "$SLURM_CONF"
        node=$((node + 1))
    done
    tries=0
    until [ "$(sinfo -h -o %D -t idle 2>/dev/null)" = "$nodes" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 60 ] || fail "the cluster did not come up: $(tail -n 3 "$dir"/*.log)"
        sleep 0.5
    done
}

down() {
    for pid in "$dir"/slurmd-*.pid "$dir/slurmctld.pid" "$dir/munge.pid"; do
        [ ! -s "$pid" ] || kill "$(cat "$pid")" 2>/dev/null || true
    done
}

what=${1-}
dir=${2-}
nodes=${3:-1}
cpus=${4:-8}
case $what in
    installed) installed ;;
    install) install ;;
    --packages) missing_packages ;;
    up) up ;;
    down) down ;;
    *)
        echo "usage: scripts/slurm.sh up DIR [NODES [CPUS]] | down DIR | installed | install | --packages" >&2
        exit 2
        ;;
esac
