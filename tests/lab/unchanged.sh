#!/usr/bin/env bash
# redis-rs and copy_bidirectional over RDMA against a real server, to be run inside the lab.
#
# usage: ./dev lab tests/lab/unchanged.sh TEST_BINARY [LINE]     LINE is 9.1 (default) or 8.1
#   the binary: cargo test -p valkey-rdma-scenarios --test unchanged_programs --no-run
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
binary=$1
line=${2:-9.1}
server=$VALKEY_RDMA_LAB_DIR/valkey/$line
log=/tmp/unchanged-server.log

start_valkey "$server" 10.0.0.1 "$log"

"$server/valkey-server" --version
VALKEY_RDMA_TEST_URL=rdma://10.0.0.1:6379 "$binary" --test-threads=1
