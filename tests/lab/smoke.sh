#!/usr/bin/env bash
# The lab's own check, to be run inside it: a real server and a real client exchange a value over RDMA.
#
# usage: ./dev lab tests/lab/smoke.sh [LINE]     LINE is 9.1 (default) or 8.1
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
line=${1:-9.1}
server=$VALKEY_RDMA_LAB_DIR/valkey/$line
client=$VALKEY_RDMA_LAB_DIR/valkey/9.1
log=/tmp/smoke-server.log

cli() { "$client/valkey-cli" --rdma -h 10.0.0.1 -p 6379 "$@"; }

start_valkey "$server" 10.0.0.1 "$log"

"$server/valkey-server" --version
cat /sys/class/infiniband/rxe0/ports/1/state
cli PING
cli SET key "a value"
[ "$(cli GET key)" = "a value" ]
echo "real server and real client exchanged a value over RDMA"
