#!/usr/bin/env bash
# The suite of the lab's first machine, to be run inside it: the transport's tests and hostile peers on kernel verbs, the proofs that
# connections leave nothing behind, the conformance suite against our own programs. With $VALKEY_RDMA_LAB_EVERY, clusters and Sentinels of
# both versions of Valkey, all of the stream's tests with shared completion queues, and all tests of the device linked through rdma-sys.
#
# usage: suite.sh PROGRAMS TEST_BINARY...     PROGRAMS is the folder of the workspace's built programs
set -uo pipefail
here=$(dirname "$0")
. "$here/times.sh"
programs=$1
shift

versions=(9.1)
[ -z "${VALKEY_RDMA_LAB_EVERY:-}" ] || versions+=(8.1)
export VALKEY_RDMA_TEST_DEVICE=verbs VALKEY_RDMA_TEST_ADDR=10.0.0.1
export VALKEY_RDMA_REAL_SERVER=$VALKEY_RDMA_LAB_DIR/valkey/9.1/valkey-server

# The client's tests against both real servers, over RDMA. What runs is marked in the tests: valkey-rdma-client/tests/client/main.rs.
# 8.1.1 does not survive it when it ends a connection itself (spec/peers.md). What starts a server of its own starts 9.1 each time.
# shellcheck disable=SC2317 # called by `timed`
real_servers() {
    local client=$here/client.sh
    local words=(--include-ignored --test-threads=2 --skip mocks_only:: --skip half_a_gibibyte::)
    some "$client" 9.1 "$1" "${words[@]}" &&
        some "$client" 8.1 "$1" "${words[@]}" --skip own_server:: --skip server_closes::
}

# A cluster of six real servers: the client's tests that take one, then faults under load.
# shellcheck disable=SC2317 # called by `timed`
real_clusters() {
    local line
    for line in "${versions[@]}"; do
        some "$here/cluster.sh" "$programs" "$line" --load -- "$1" --test-threads=2 --skip mocks_only:: || return
    done
}

# Sentinels and servers of one version.
# shellcheck disable=SC2317 # called by `timed`
real_sentinels() {
    local line
    for line in "${versions[@]}"; do
        VALKEY_RDMA_REAL_SERVER=$VALKEY_RDMA_LAB_DIR/valkey/$line/valkey-server "$1" --ignored || return
    done
}

# Where the client finds keys, compared with the server's COMMAND GETKEYS. 8.1 looks for those of GEORADIUS elsewhere if its words make
# no sense.
# shellcheck disable=SC2317 # called by `timed`
key_positions() {
    some "$here/client.sh" 9.1 "$1" --ignored every_command_has_its_keys
}

# some COMMAND...: runs tests, and fails if their filter has left none.
# shellcheck disable=SC2317 # called by `timed`
some() {
    "$@" 2>&1 | tee /tmp/some.txt
    [ "${PIPESTATUS[0]}" = 0 ] && grep -q '^test result: ok. [1-9]' /tmp/some.txt
}

# Those that need a device are ignored elsewhere; here they are the point. One at a time: the device is slow.
# The rules of a shared queue need no device, and every order of their steps takes minutes here.
# shellcheck disable=SC2317 # called by `timed`
device_test() {
    "$@" --include-ignored --test-threads=1 --skip tcp:: --skip unix:: --skip demux::
}

declare -A shared
for test in "$@"; do
    name=${test##*/}
    name=${name%-*}
    # What is about the emulated device alone has a name that says so, and shows nothing new here.
    case $name in
        emulated_*) continue ;;
        client) timed "client, real servers" real_servers "$test"; continue ;;
        cluster) timed "client, real clusters" real_clusters "$test"; continue ;;
        sentinel) timed "client, real Sentinels" real_sentinels "$test"; continue ;;
        # The other unit tests need no device. Linked through rdma-sys, these compare our bindings with it.
        valkey_rdma_transport) timed "$name" some device_test "$test" verbs::; continue ;;
        valkey_rdma_client) timed "client, key positions" key_positions "$test"; continue ;;
    esac
    timed "$name" device_test "$test"
    # Once more with completion queues that connections share. That is the same code in the build that links rdma-core.
    case $name in
        stream) [ -n "${VALKEY_RDMA_LAB_EVERY:-}" ] || continue ;;&
        device_contract | device_leaks | stream | listener)
            [ -z "${shared[$name]:-}" ] || continue
            shared[$name]=yes
            VALKEY_RDMA_TEST_SHARE=1 timed "$name, shared queues" device_test "$test"
            ;;
    esac
done
# Our mock and our load tool, rule by rule; what others do is in spec/conformance.md.
export VALKEY_RDMA_BIN=$programs
timed "conformance, mock" "$here/conformance.sh" mock --hostile --patience 15
timed "conformance, mock with TLS" "$here/conformance.sh" mock-tls --hostile --patience 15
timed "conformance, load tool" "$here/conformance.sh" client-ours --patience 90
timed "real clients, our servers" "$here/mock.sh" "$programs"
timed "C and Python over file descriptors" "$here/c-abi.sh" "$programs/libvalkey_rdma.so"
timed "clients of other languages, through the gateway" "$here/gateway-clients.sh" "$VALKEY_RDMA_LAB_DIR"
timed "real Sentinels, through the gateway" "$here/gateway-sentinel.sh" "$programs"
# Far from full size, which takes half an hour: what grows with connections shows with these too.
export VALKEY_RDMA_LAB_CHURN=${VALKEY_RDMA_LAB_CHURN:-200} VALKEY_RDMA_LAB_HELD=${VALKEY_RDMA_LAB_HELD:-50}
timed "proofs" "$programs/valkey-rdma-lab-proofs"
echo "== where the lab's time went"
print_times
[ ${#failed[@]} -eq 0 ]
