#!/usr/bin/env bash
# The conformance suite inside the lab. Server mode: against our mock, or a real server that is started again whenever a
# case has killed it. Client mode: our load tool, or one of the real clients. The report is also written to
# $VALKEY_RDMA_LAB_OUT.
#
# usage: ./dev lab tests/lab/conformance.sh mock|9.1|8.1 [FLAG...]
#        ./dev lab tests/lab/conformance.sh mock-tls [FLAG...]      how a server that requires TLS agrees on it
#        ./dev lab tests/lab/conformance.sh client-ours|client-cli|client-benchmark|client-rdma-test [FLAG...]
# FLAGs are those of `valkey-rdma-conformance server` and `client`.
set -euo pipefail
subject=$1
shift
bin=${VALKEY_RDMA_BIN:-target/quick}
valkey=$VALKEY_RDMA_LAB_DIR/valkey
report=(--json "$VALKEY_RDMA_LAB_OUT/conformance-$subject.json")

server() {
    exec "$bin/valkey-rdma-conformance" server "$scheme://10.0.0.1:6379" --spawn "$1" "${report[@]}" "${@:2}"
}

# client COMMAND...: FLAGS are already known.
client() {
    exec "$bin/valkey-rdma-conformance" client --bind 10.0.0.1 "${report[@]}" "${flags[@]}" -- "$@"
}

flags=("$@") scheme=rdma
at=(-h '{host}' -p '{port}')
case $subject in
    mock) server "$bin/valkey-rdma-mock --bind 10.0.0.1 --port 6379 --device verbs" "$@" ;;
    mock-tls)
        scheme=rdmas certificates=$(mktemp -d)
        PYTHONPATH=$(dirname "$0") python3 -Bc 'import pathlib, sys, certificates
certificates.Authority(pathlib.Path(sys.argv[1]), "issuer").issue("10.0.0.1")' "$certificates"
        server "$bin/valkey-rdma-mock --bind 10.0.0.1 --tls-rdma-port 6379 --device verbs --tls-cert $certificates/issuer-1.crt \
            --tls-key $certificates/issuer-1.key" "$@"
        ;;
    8.1 | 9.1)
        server "$valkey/$subject/valkey-server --protected-mode no --save '' --port 0 \
            --loadmodule $valkey/$subject/valkey-rdma.so --rdma-bind 10.0.0.1 --rdma-port 6379" "$@"
        ;;
    client-ours) client "$bin/valkey-rdma-benchmark" --url '{url}' -t set,get -n 300 -c 2 -d 1000 --fail-fast ;;
    client-cli) client "$valkey/9.1/valkey-cli" --rdma "${at[@]}" SET key value ;;
    client-benchmark) client "$valkey/9.1/valkey-benchmark" --rdma "${at[@]}" -t set,get -n 300 -c 2 -d 1000 -q ;;
    client-rdma-test) client "$valkey/9.1/rdma-test" --host '{host}' --port '{port}' --minkeys 100 --maxkeys 101 ;;
    *)
        sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
esac
