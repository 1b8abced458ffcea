#!/usr/bin/env bash
# The conformance suite inside the lab: against our mock, or against a real server that is started again whenever a case
# has killed it. The report is also written to $VALKEY_RDMA_LAB_OUT.
#
# usage: ./dev lab tests/lab/conformance.sh mock|9.1|8.1 [FLAG...]     FLAGs are those of `valkey-rdma-conformance server`
set -euo pipefail
subject=$1
shift
bin=${VALKEY_RDMA_BIN:-target/release}

case $subject in
    mock) server="$bin/valkey-rdma-mock --bind 10.0.0.1 --port 6379 --device verbs" ;;
    *)
        dir=$VALKEY_RDMA_LAB_DIR/valkey/$subject
        server="$dir/valkey-server --protected-mode no --save '' --port 0 --loadmodule $dir/valkey-rdma.so"
        server+=" --rdma-bind 10.0.0.1 --rdma-port 6379"
        ;;
esac
exec "$bin/valkey-rdma-conformance" server rdma://10.0.0.1:6379 --spawn "$server" \
    --json "$VALKEY_RDMA_LAB_OUT/conformance-$subject.json" "$@"
