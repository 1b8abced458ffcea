#!/usr/bin/env bash
# RDMA beside TCP on one real server, in the lab: how `rdma-to-tcp.*` in this folder were made.
#
# usage: ./dev lab benches/load-tool/examples/compare.sh TOOL FOLDER     TOOL is a build of valkey-rdma-benchmark
set -euo pipefail
tool=$1 folder=$2
server=$VALKEY_RDMA_LAB_DIR/valkey/9.1
log=/tmp/compare-server.log

"$server/valkey-server" --protected-mode no --save "" --port 6379 --logfile "$log" \
    --loadmodule "$server/valkey-rdma.so" --rdma-bind 10.0.0.1 --rdma-port 6379 &
until grep -q "Ready to accept connections rdma" "$log" 2>/dev/null; do
    [ "$SECONDS" -lt 60 ] || { cat "$log"; echo "the server did not come up"; exit 1; }
done

"$tool" -u 'rdma://10.0.0.1:6379?timeout=30s' --compare 'valkey://10.0.0.1:6379?timeout=30s' \
    -t set,get -c 8 -d 64 -n 2000 --rounds 10 --json "$folder/rdma-to-tcp.json" --plot "$folder/rdma-to-tcp.svg" \
    > "$folder/rdma-to-tcp.txt"
cat "$folder/rdma-to-tcp.txt"
