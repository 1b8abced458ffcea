#!/usr/bin/env bash
# Instructions per GET that finding the node costs in a cluster client, under callgrind: `--cluster` beside one connection to the
# same node, and `--cluster` over three nodes. The servers are our mock's, over TCP, in a process of their own.
#
# usage: benches/peers/routing.sh PROGRAMS     PROGRAMS is the folder of this project's built programs
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/callgrind.sh"
programs=$1

declare -a servers
trap 'kill "${servers[@]}" 2>/dev/null || true' EXIT

# start PORT NODES: a mock cluster on consecutive ports.
start() {
    "$programs/valkey-rdma-mock" --tcp-port "$1" --cluster "$2" >/dev/null &
    servers+=($!)
}

requests=${REQUESTS:-10000}
one=7100 three=7110
start "$one" 1
start "$three" 3
load=("$programs/valkey-rdma-benchmark" -d 3 -t get -c 1 -r 1000 --populate missing --csv)
printf '%-6s %8s %9s %12s   %s\n' tasks client cluster "three nodes" "cluster - client"
for tasks in 1 50; do
    shape=(--tasks-per-connection "$tasks")
    client=$(per_request "$requests" "${load[@]}" -u "valkey://127.0.0.1:$one?timeout=60s" "${shape[@]}")
    cluster=$(per_request "$requests" "${load[@]}" -u "valkey://127.0.0.1:$one?timeout=60s" --cluster "${shape[@]}")
    nodes=$(per_request "$requests" "${load[@]}" -u "valkey://127.0.0.1:$three?timeout=60s" --cluster "${shape[@]}")
    percent=$(awk "BEGIN { printf \"%.1f\", 100 * ($cluster - $client) / $client }")
    printf '%-6s %8s %9s %12s   %s (%s %%)\n' "$tasks" "$client" "$cluster" "$nodes" $((cluster - client)) "$percent"
done
