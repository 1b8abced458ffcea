#!/usr/bin/env bash
# The lab's own check, to be run inside it: a real server and a real client exchange a value over RDMA.
#
# usage: ./dev lab tests/lab/smoke.sh [LINE]     LINE is 9.1 (default) or 8.1
set -euo pipefail
line=${1:-9.1}
server=$VALKEY_RDMA_LAB_DIR/valkey/$line
client=$VALKEY_RDMA_LAB_DIR/valkey/9.1
log=/tmp/smoke-server.log

cli() { "$client/valkey-cli" --rdma -h 10.0.0.1 -p 6379 "$@"; }

"$server/valkey-server" --protected-mode no --save "" --port 6379 --logfile "$log" \
    --loadmodule "$server/valkey-rdma.so" --rdma-bind 10.0.0.1 --rdma-port 6379 &

# The clients crash when nobody listens, so the log says when to begin.
until grep -q "Ready to accept connections rdma" "$log" 2>/dev/null; do
    [ "$SECONDS" -lt 30 ] || { cat "$log"; echo "the server did not come up"; exit 1; }
done

"$server/valkey-server" --version
cat /sys/class/infiniband/rxe0/ports/1/state
cli PING
cli SET key "a value"
[ "$(cli GET key)" = "a value" ]
echo "real server and real client exchanged a value over RDMA"
