#!/usr/bin/env bash
# To be run inside the lab: real clients against our servers. valkey-cli over TCP and RDMA against the example `counter`, and
# valkey-benchmark's whole default list over both against the mock. No error is allowed.
#
# usage: mock.sh [PROGRAMS]     PROGRAMS is the folder of the workspace's built programs (default: target/quick)
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
programs=${1:-$here/../../target/quick}
client=$VALKEY_RDMA_LAB_DIR/valkey/9.1
address=10.0.0.1
log=/tmp/mock.log

fail() {
    echo "mock.sh: $*" >&2
    tail -n 20 "$log" >&2
    exit 1
}

# ended LIST: the number of valkey-benchmark's tests that have printed their result.
ended() { tr '\r' '\n' <"$1" | grep -c 'requests per second'; }

"$programs/examples/counter" "rdma://$address:6380" >"$log" 2>&1 &
counter=$!
over_tcp() { "$client/valkey-cli" -p 6380 VISIT lobby; }
until_true over_tcp >/dev/null 2>&1 || fail "the counter does not answer over TCP"
first=$(over_tcp) || fail "valkey-cli: exit status $?"
second=$("$client/valkey-cli" --rdma -h $address -p 6380 VISIT lobby) || fail "valkey-cli --rdma: exit status $?"
[ "$second" -eq $((first + 1)) ] || fail "the counter counted $first over TCP, then $second over RDMA"
kill -INT $counter
wait $counter || fail "the counter did not end in good order"
echo "valkey-cli counted over TCP and over RDMA"

"$programs/valkey-rdma-mock" --bind $address --port 6379 --tcp-port 6379 >"$log" 2>&1 &
mock=$!
until_true grep -q 'ready valkey://' "$log" || fail "the mock is not ready"
for transport in --rdma ""; do
    # shellcheck disable=SC2086 # One flag or none.
    "$client/valkey-benchmark" $transport -h $address -p 6379 -n 200 -c 5 -q >/tmp/benchmark.txt 2>&1 ||
        fail "valkey-benchmark $transport: exit status $?, $(cat /tmp/benchmark.txt)"
    [ "$(ended /tmp/benchmark.txt)" -eq 24 ] || fail "valkey-benchmark $transport: $(cat /tmp/benchmark.txt)"
    # It goes on after an error reply without a word, so the server is asked.
    "$client/valkey-cli" -h $address -p 6379 INFO stats | grep -q $'^total_error_replies:0\r' ||
        fail "valkey-benchmark $transport got error replies"
    echo "valkey-benchmark ${transport:-over TCP}: 24 tests, no error"
done
kill $mock
wait $mock || fail "the mock did not end in good order"
