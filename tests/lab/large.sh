#!/usr/bin/env bash
# The client's test of a value of half a gibibyte, against a real Valkey over TCP. On the host: in the lab's machine it takes
# minutes.
#
# usage: tests/lab/large.sh DIRECTORY TEST_BINARY     DIRECTORY is the lab's, prepared; the binary is the client's test "client"
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
test=$2
work_folder

start_server "$1/valkey/9.1" 6397 "$work/log" --bind 127.0.0.1 --dir "$work"
VALKEY_RDMA_TEST_SERVER=$url "$test" --ignored half_a_gibibyte:: | tee "$work/output"
grep -q "1 passed" "$work/output" # and not 0, should the mark ever get another name
