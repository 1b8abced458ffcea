#!/usr/bin/env bash
# Tests against a real server over RDMA, to be run inside the lab.
#
# usage: ./dev lab tests/lab/client.sh LINE TEST_BINARY [ARGUMENTS...]     LINE is 9.1 or 8.1
#
# The binary is the client's test "client", as `cargo test -p valkey-rdma-client --all-features --no-run` names it; or
# "unchanged_programs" of valkey-rdma-scenarios, with --test-threads=1; or any other program. It finds the server's URL in
# VALKEY_RDMA_TEST_SERVER.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
line=$1
shift
server=$VALKEY_RDMA_LAB_DIR/valkey/$line
log=/tmp/client-server.log

start_valkey "$server" 10.0.0.1 "$log" --enable-debug-command yes
"$server/valkey-server" --version
status=0
VALKEY_RDMA_TEST_SERVER=rdma://10.0.0.1:6379 "$@" || status=$?
grep -iE "crash|assert|panic|warning" "$log" | tail -5 || true
kill "$valkey"
wait "$valkey" || true
exit "$status"
