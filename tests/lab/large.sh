#!/usr/bin/env bash
# The client's test of a value of half a gibibyte, against a real Valkey over TCP. On the host: in the lab's machine it takes
# minutes.
#
# usage: tests/lab/large.sh DIRECTORY TEST_BINARY     DIRECTORY is the lab's, prepared; the binary is the client's test "client"
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
server=$1/valkey/9.1/valkey-server
test=$2
dir=$(mktemp -d)
port=6397

"$server" --bind 127.0.0.1 --port "$port" --save "" --dir "$dir" --logfile "$dir/log" >/dev/null &
valkey=$!
trap 'kill "$valkey" 2>/dev/null || true; wait "$valkey" || true; rm -r "$dir"' EXIT

wait_for_log "$dir/log" "Ready to accept connections tcp" "$valkey"
VALKEY_RDMA_TEST_SERVER=valkey://127.0.0.1:$port "$test" --ignored half_a_gibibyte | tee "$dir/output"
grep -q "1 passed" "$dir/output" # and not 0, should the test ever get another name
