#!/usr/bin/env bash
# redis-rs and copy_bidirectional over RDMA against a real server, to be run inside the lab.
#
# usage: ./dev lab tests/lab/unchanged.sh TEST_BINARY [LINE]     LINE is 9.1 (default) or 8.1
#   the binary: cargo test -p valkey-rdma-scenarios --test unchanged_programs --no-run
set -euo pipefail
binary=$1
line=${2:-9.1}
server=$VALKEY_RDMA_LAB_DIR/valkey/$line
log=/tmp/unchanged-server.log

"$server/valkey-server" --protected-mode no --save "" --port 6379 --logfile "$log" \
    --loadmodule "$server/valkey-rdma.so" --rdma-bind 10.0.0.1 --rdma-port 6379 &

until grep -q "Ready to accept connections rdma" "$log" 2>/dev/null; do
    [ "$SECONDS" -lt 30 ] || { cat "$log"; echo "the server did not come up"; exit 1; }
done

"$server/valkey-server" --version
VALKEY_RDMA_TEST_URL=rdma://10.0.0.1:6379 "$binary" --test-threads=1
