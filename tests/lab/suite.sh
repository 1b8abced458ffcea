#!/usr/bin/env bash
# The lab's whole suite, to be run inside it: the transport's tests and hostile peers on kernel verbs, the proofs that
# connections leave nothing behind, the conformance suite against our own programs, then every client against every server.
#
# usage: suite.sh PROGRAMS TEST_BINARY...     PROGRAMS is the folder of the workspace's built programs
set -uo pipefail
programs=$1
shift

export VALKEY_RDMA_TEST_DEVICE=verbs VALKEY_RDMA_TEST_ADDR=10.0.0.1
export VALKEY_RDMA_REAL_SERVER=$VALKEY_RDMA_LAB_DIR/valkey/9.1/valkey-server

# Some tests need huge pages.
echo 8 >/proc/sys/vm/nr_hugepages

# The client's tests against both real servers, over RDMA. Half a gibibyte takes minutes here. 8.1.1 does not survive it
# when it ends a connection itself (spec/peers.md): what makes it do that is left out.
real_servers() {
    local client
    client=$(dirname "$0")/client.sh
    "$client" 9.1 "$1" --include-ignored --skip half_a --test-threads=2 &&
        "$client" 8.1 "$1" --include-ignored --skip half_a --skip cache:: --skip come_back --test-threads=2
}

failed=0
for test in "$@"; do
    # What is about the emulated device alone shows nothing new here.
    case ${test##*/} in
        emulated_* | flood-* | wakeups-*) continue ;;
        client-*) real_servers "$test" || failed=1; continue ;;
    esac
    # Those that need a device are ignored elsewhere; here they are the point. One at a time: the device is slow.
    # The rules of a shared queue need no device, and every order of their steps takes minutes here.
    "$test" --include-ignored --test-threads=1 --skip tcp:: --skip unix:: --skip demux:: || failed=1
    # Once more with completion queues that connections share.
    case ${test##*/} in
        device_contract-* | device_leaks-* | stream-* | listener-*)
            VALKEY_RDMA_TEST_SHARE=1 "$test" --include-ignored --test-threads=1 --skip tcp:: --skip unix:: || failed=1
            ;;
    esac
done
# Our mock and our load tool, rule by rule; what others do is in spec/conformance.md.
export VALKEY_RDMA_BIN=$programs
"$(dirname "$0")/conformance.sh" mock --hostile --patience 15 || failed=1
"$(dirname "$0")/conformance.sh" client-ours --patience 90 || failed=1
"$(dirname "$0")/mock.sh" "$programs" || failed=1
# Far from full size, which takes half an hour: what grows with connections shows with these too.
VALKEY_RDMA_LAB_CHURN=${VALKEY_RDMA_LAB_CHURN:-200} VALKEY_RDMA_LAB_HELD=${VALKEY_RDMA_LAB_HELD:-50} \
    "$programs/valkey-rdma-lab-proofs" || failed=1
# Last, because it ends by removing the device. All combinations take some 18 minutes.
interop=("$programs/valkey-rdma-interop")
[ -n "${VALKEY_RDMA_LAB_EVERY:-}" ] || interop+=(--brief)
"${interop[@]}" || failed=1
exit "$failed"
