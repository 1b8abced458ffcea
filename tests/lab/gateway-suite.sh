#!/usr/bin/env bash
# Runs units of Valkey's test suite directly against a real Valkey and through the gateway, and prints which tests differ. On the host
# the gateway reaches the server over TCP; inside the lab, over RDMA.
#
# usage: tests/lab/gateway-suite.sh LAB [UNIT...]              on the host, after `./dev lab true` has prepared LAB
#        ./dev lab tests/lab/gateway-suite.sh LAB [UNIT...]    in the lab, once tests/lab/valkey-tests.sh has unpacked the suite
#
# The gateway is target/quick/valkey-rdma-gateway, or that of the folder $VALKEY_RDMA_BIN. $VALKEY_RDMA_GATEWAY_SHARE is the share mode.
#
# A unit ends early, which is printed, after $VALKEY_RDMA_SUITE_TIMEOUT seconds (240), or when the suite hears of no result for
# $VALKEY_RDMA_SUITE_PATIENCE seconds (60). A single test may take longer than that on the lab's emulated processors.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
bin=$(readlink -f "${VALKEY_RDMA_BIN:-$here/../../target/quick}")
[ $# -ge 1 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
suite=$("$here/valkey-tests.sh" "$1" 9.1)
server=$(dirname "$suite")
shift
units=("$@")
[ $# -gt 0 ] || units=(type/string type/incr type/list type/hash type/set type/zset type/stream type/stream-cgroups expire scan multi
    pubsub pubsubshard tracking keyspace scripting)

work_folder

port=7301
# restart: a server and a gateway without a past, because a test that fails leaves its settings behind.
restart() {
    kill -KILL "${gateway:-}" "${valkey:-}" 2>/dev/null || true
    # Bash reports what was killed.
    wait 2>/dev/null
    # Over TCP, the suite's direct runs use the same port.
    start_server "$server" $port "$work/server.log" --enable-debug-command yes --enable-protected-configs yes --dir "$work"
    start_gateway tcp --listen tcp:127.0.0.1:$((port + 1)) --server "$url" --share "${VALKEY_RDMA_GATEWAY_SHARE:-auto}"
}

# run PORT UNIT RESULTS: the tests of a unit, one line each: ok, err or skip, and the name.
run() {
    restart
    local status=0
    (cd "$suite" && timeout "${VALKEY_RDMA_SUITE_TIMEOUT:-240}" tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$1" --single "unit/$2" \
        --clients 1 --tags "${VALKEY_RDMA_SUITE_TAGS:--slow -needs:repl -needs:reset}" --timeout "${VALKEY_RDMA_SUITE_PATIENCE:-60}" </dev/null) \
        >"$3.log" 2>&1 || status=$?
    if [ $status -eq 124 ]; then
        echo "    port $1: ended after \$VALKEY_RDMA_SUITE_TIMEOUT, $(tail -n 1 "$3.log")"
    elif grep -q 'TIMEOUT' "$3.log"; then
        echo "    port $1: ended for want of a result, $(sed 's/\x1b\[[0-9;]*m//g' "$3.log" | grep 'TIMEOUT' | tail -n 1)"
    fi
    sed -e 's/\x1b\[[0-9;]*m//g' "$3.log" |
        sed -nE 's/^\[(ok|err|skip|exception)\]: (.*)$/\1 \2/p' |
        sed -E 's/ \([0-9]+ ms\)$//; s/ in tests\/unit.*$//; s/ \(?Executing test client.*$//' | sort >"$3"
}

status=0
for unit in "${units[@]}"; do
    run $port "$unit" "$work/direct"
    run $((port + 1)) "$unit" "$work/through"
    passed_directly=$(grep -c '^ok ' "$work/direct" || true)
    passed_through=$(grep -c '^ok ' "$work/through" || true)
    echo "$unit: $passed_directly pass directly, $passed_through through the gateway"
    if ! diff <(grep -v '^skip' "$work/direct") <(grep -v '^skip' "$work/through") >"$work/diff"; then
        grep '^[<>]' "$work/diff" | sort | uniq -c | sed -E 's/^ *([0-9]+) </    \1 directly:/; s/^ *([0-9]+) >/    \1 through: /' |
            sed -n 1,40p
        # An exception ends a unit: its last words.
        grep -v '\[ok\]\|\[skip\]\|\[ignore\]' "$work/through.log" | tail -n 40 | sed 's/^/        /' || true
        status=1
    fi
    kill -0 "$gateway" || { echo "the gateway has ended:"; cat "$work/gateway.err"; exit 1; }
done
exit $status
