#!/usr/bin/env bash
# A cluster of six real Valkeys with faults, under the load of the cluster client, over RDMA; to be run inside the lab.
#
# usage: ./dev lab tests/lab/cluster.sh PROGRAMS [LINE [OPTION...]]     LINE is 9.1 (default) or 8.1
#
# PROGRAMS is the folder of the workspace's built programs. The options are those of valkey-rdma-cluster-faults; without any
# it is small. With -- COMMAND..., the cluster is lent to a command instead of load and faults. With --load -- COMMAND..., it is lent,
# and then the small load follows.
set -euo pipefail
programs=$1
line=${2:-9.1}
shift $(($# < 2 ? $# : 2))
# A few slots move: each costs an emulated processor a fifth of a second when it moves alone.
[ "${1:---load}" != --load ] || set -- --tasks 100 --rate 200 --seconds 24 --slots 40 "$@"
# A processor that is emulated answers late: a node that is only slow must not count as failed.
exec "$programs/valkey-rdma-cluster-faults" --valkey "$VALKEY_RDMA_LAB_DIR/valkey/$line" --rdma --bind 10.0.0.1 \
    --node-timeout 5000 "$@"
