#!/usr/bin/env bash
# RDMA beside TCP on one real server, in the lab: how `rdma-to-tcp.*` in this folder were made.
#
# usage: ./dev lab valkey-rdma-benchmark/examples/compare.sh TOOL FOLDER     TOOL is a build of valkey-rdma-benchmark
set -euo pipefail
tool=$1 folder=$2
server=$VALKEY_RDMA_LAB_DIR/valkey/9.1
log=/tmp/compare-server.log

. "$(dirname "$(readlink -f "$0")")/../../tests/lab/valkey-server.sh"
start_valkey "$server" 10.0.0.1 "$log"

"$tool" -u 'rdma://10.0.0.1:6379?timeout=30s' --compare 'valkey://10.0.0.1:6379?timeout=30s' \
    -t set,get -c 8 -d 64 -n 2000 --rounds 10 --json "$folder/rdma-to-tcp.json" --plot "$folder/rdma-to-tcp.svg" \
    > "$folder/rdma-to-tcp.txt"
cat "$folder/rdma-to-tcp.txt"
