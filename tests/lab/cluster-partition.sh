#!/usr/bin/env bash
# A cluster of real Valkeys, one of whose nodes loses its RDMA fabric while TCP lives: five nodes and the cluster client in one
# machine, the sixth in another. The near machine drops the RDMA packets to and from the other, and later lets them pass again.
#
# usage: tests/lab/cluster-partition.sh LAB PROGRAMS [LINE [OPTION...]]    on the host; LINE is 9.1 (default) or 8.1
#        cluster-partition.sh far|near PROGRAMS LINE [OPTION...]           in each of the machines
#
# The options are those of valkey-rdma-cluster-faults.
# shellcheck disable=SC2317 # Functions are called by name.
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"

# The node that runs alone: its port is the third.
far() {
    cd "$(mktemp -d)" || exit
    start_valkey "$VALKEY_RDMA_LAB_DIR/valkey/$2" 10.0.0.1:7602 server.log --bind 10.0.0.1 --cluster-enabled yes \
        --cluster-node-timeout 5000 --repl-diskless-sync-delay 0
    # Until the near end shuts it down.
    wait "$valkey"
}

# The rules take the packets silently (trap). If they reported the loss (drop), soft-RoCE would send again at once, for ever, inside the
# system call of the sender, which no real fabric does.
near() {
    local programs=$1 line=$2 rule="protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff action trap"
    shift 2
    reached() { "$VALKEY_RDMA_LAB_DIR/valkey/$line/valkey-cli" -h 10.0.0.1 -p 7602 PING >/dev/null 2>&1; }
    until_true reached || { echo "the far node does not answer" >&2; exit 1; }
    [ $# -gt 0 ] || set -- --tasks 100 --rate 200 --seconds 20 --events nothing,partition,nothing
    "$programs/valkey-rdma-cluster-faults" --valkey "$VALKEY_RDMA_LAB_DIR/valkey/$line" --rdma --bind 10.0.0.2 --far 10.0.0.1 \
        --node-timeout 5000 --mend "tc qdisc del dev d0 clsact" \
        --cut "tc qdisc add dev d0 clsact && tc filter add dev d0 egress $rule && tc filter add dev d0 ingress $rule" "$@"
}

case ${1:-} in
    far | near)
        "$@"
        exit
        ;;
esac
lab=${1:?usage: cluster-partition.sh LAB PROGRAMS [LINE [OPTION...]]}
programs=$(readlink -f "${2:?usage: cluster-partition.sh LAB PROGRAMS [LINE [OPTION...]]}")
line=${3:-9.1}
shift $(($# < 3 ? $# : 3))
VALKEY_RDMA_LAB_DIR=$(readlink -f "$lab")
export VALKEY_RDMA_LAB_DIR

# The far node's machine ends with it, or then.
export VALKEY_RDMA_LAB_TIMEOUT=${VALKEY_RDMA_LAB_TIMEOUT:-1800} VALKEY_RDMA_LAB_CABLE_MEMORY=1024,3072
"$here/cable.sh" "$lab" "$0 far $programs $line" "$0 near $programs $line ${*@Q}"
