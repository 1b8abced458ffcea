#!/usr/bin/env bash
# Unmodified clients through the gateway to a real Valkey: valkey-cli, valkey-benchmark, redis-py and valkey-py (blocking and asyncio),
# ioredis and iovalkey, hiredis, libvalkey and redis-rs. On the host the gateway reaches the server over TCP; inside the lab, over RDMA. On the
# host also valkey-glide (Python with asyncio and with threads, Node.js), node-redis, php-redis, ruby-redis, Perl's Redis, lua-redis, and what consoles
# and exporters ask (redis-cli, prometheus-redis-exporter): what lies between them and the gateway is the same in both places. There too, workers
# of Celery, RQ, huey, Bull, BullMQ and Sidekiq have to survive restarts of the server. The programs are in gateway-clients/.
#
# usage: tests/lab/gateway-clients.sh LAB             on the host; fetches the clients into LAB/clients
#        tests/lab/gateway-clients.sh LAB fetch       on the host; does no more than that
#        ./dev lab tests/lab/gateway-clients.sh LAB   in the lab, once the clients have been fetched
#        valkey-rdma-cluster-faults --valkey LAB/valkey/9.1 -- tests/lab/gateway-clients.sh LAB
#                                                     the same in front of a cluster, which that program starts; two of its primaries
#                                                     hand over then, and one dies (gateway-clients/failover.py)
#        ./dev lab tests/lab/cluster.sh target/quick 9.1 -- tests/lab/gateway-clients.sh LAB
#                                                     that in the lab
#
# The gateway is target/quick/valkey-rdma-gateway, or that of the folder $VALKEY_RDMA_BIN. redis-rs is the gateway's
# example redis_rs, in ../debug/examples from there.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
. "$here/packages.sh"
bin=$(readlink -f "${VALKEY_RDMA_BIN:-$here/../../target/quick}")
[ $# -eq 1 ] || [ "${2:-}" = fetch ] || { sed -n '2,19s/^# \{0,1\}//p' "$0" >&2; exit 2; }
lab=$(readlink -f "$1")
server=$lab/valkey/9.1
clients=$lab/clients
programs=$here/gateway-clients
# kombu, a part of Celery, needs `packaging` and does not say so.
python_packages=(redis valkey valkey-glide valkey-glide-sync celery packaging rq huey)
node_packages=(ioredis iovalkey redis @valkey/valkey-glide bull bullmq)
debian_packages=(php-cli php-redis ruby-redis ruby-sidekiq libredis-perl lua5.1 lua-redis redis-tools prometheus-redis-exporter)

# shellcheck disable=SC2317 # called by way of `quietly`
fetch() {
    rm -rf "$clients"
    python3 -m venv "$clients/python"
    "$clients/python/bin/pip" install -q "${python_packages[@]}"
    npm install --silent --no-audit --no-fund --prefix "$clients/node" "${node_packages[@]}"
    echo "${python_packages[*]} ${node_packages[*]}" >"$clients/fetched"
}
# hiredis is Debian's, libvalkey that of Valkey's archive. Linked statically, because the lab has neither.
# shellcheck disable=SC2317 # called by way of `quietly`
build_c() {
    local tree=$clients/valkey
    mkdir -p "$tree"
    tar -xf "$server"/*.orig.tar.* -C "$tree" --strip-components=1 --wildcards '*/deps/libvalkey'
    make -C "$tree/deps/libvalkey" static
    cc -O1 -Wall -Werror -DLIB=redis -DHEADER='<hiredis/hiredis.h>' "$programs/hiredis.c" -l:libhiredis.a -o "$clients/hiredis"
    cc -O1 -Wall -Werror -DLIB=valkey -DHEADER='<valkey/valkey.h>' -I"$tree/deps/libvalkey/include" "$programs/hiredis.c" \
        "$tree/deps/libvalkey/lib/libvalkey.a" -o "$clients/libvalkey"
}
if [ "$(cat "$clients/fetched" 2>/dev/null)" != "${python_packages[*]} ${node_packages[*]}" ]; then
    command -v npm >/dev/null || need_packages npm
    need_packages python3-venv
    quietly "fetching the clients of other languages" fetch
fi
if ! [ -x "$clients/libvalkey" ]; then
    need_packages gcc libc6-dev make libhiredis-dev
    quietly "building the clients in C" build_c
fi
[ -n "${VALKEY_RDMA_LAB_OUT:-}" ] || need_packages "${debian_packages[@]}"
[ $# -eq 1 ] || exit 0

work_folder
port=7501
cluster=()
if [ -n "${VALKEY_RDMA_TEST_CLUSTER:-}" ]; then
    IFS=, read -ra urls <<<"$VALKEY_RDMA_TEST_CLUSTER"
    cluster=(--cluster)
else
    start_server "$server" $port "$work/server.log"
    urls=("$url")
fi
socket=$work/socket
address=127.0.0.1:$((port + 2))
start_gateway unix --listen "unix:$socket" --listen "tcp:$address" "${urls[@]/#/--server=}" "${cluster[@]}"

status=0
# check NAME COMMAND... An interrupt lets Python say where it was.
check() {
    local log=$work/log
    if timeout --signal=INT --kill-after=10 "${patience:-600}" "${@:2}" >"$log" 2>&1; then echo "passed: $1"; else echo "FAILED: $1"; tr '\r' '\n' <"$log" | tail -n 15; status=1; fi
}
# shellcheck disable=SC2317 # called by way of `check`
cli() {
    [ "$("$server/valkey-cli" -s "$socket" "$@" SET greeting hello)" = OK ] && [ "$("$server/valkey-cli" -s "$socket" "$@" GET greeting)" = hello ]
}
export -f cli
export server socket
check "valkey-cli" bash -c cli
check "valkey-cli -3" bash -c 'cli -3'
load=(-n 2000)
python=(redis valkey) node=(ioredis iovalkey) c=(hiredis libvalkey)
# Six servers leave little time to emulated processors: one of each pair, which differ in their names.
if [ ${#cluster[@]} -gt 0 ] && [ -n "${VALKEY_RDMA_LAB_OUT:-}" ]; then
    load=(-n 1000 -t "set,get,incr,mset" -r 1000)
    python=(redis) node=(iovalkey) c=(libvalkey)
fi
check "valkey-benchmark" "$server/valkey-benchmark" -s "$socket" "${load[@]}" -c 20 -P 4 -q
for library in "${python[@]}"; do
    for protocol in 2 3; do
        check "$library-py, RESP$protocol" "$clients/python/bin/python3" "$programs/redis_blocking.py" "$library" "$socket" $protocol
        check "$library-py asyncio, RESP$protocol" "$clients/python/bin/python3" "$programs/redis_asyncio.py" "$library" "$socket" $protocol
    done
done
for library in "${node[@]}"; do
    check "$library" node "$programs/ioredis.js" "$clients/node/node_modules/$library" "$socket"
done
for library in "${c[@]}"; do
    check "$library" "$clients/$library" "$socket"
done
check "redis-rs" "$bin/../debug/examples/redis_rs" "$socket"
if [ -z "${VALKEY_RDMA_LAB_OUT:-}" ]; then
    modules=$clients/node/node_modules
    for protocol in 2 3; do
        check "valkey-glide for Python, RESP$protocol" "$clients/python/bin/python3" "$programs/glide_asyncio.py" "$socket" $protocol
        check "valkey-glide for Node.js, RESP$protocol" node "$programs/glide.mjs" "$modules/@valkey/valkey-glide" "$address" $protocol
        check "node-redis, RESP$protocol" node "$programs/node_redis.mjs" "$modules/redis" "$socket" $protocol
    done
    check "valkey-glide for Python with threads" "$clients/python/bin/python3" "$programs/glide_threads.py" "$socket"
    check "php-redis" php "$programs/client.php" "$socket"
    check "ruby-redis" ruby "$programs/client.rb" "$socket"
    check "Redis.pm" perl "$programs/client.pl" "$socket"
    check "lua-redis" lua5.1 "$programs/client.lua" "$socket"
    check "consoles and an exporter" python3 "$programs/consoles.py" "$address" "$server" redis-cli prometheus-redis-exporter
fi
# Their queues have keys in many slots, which a cluster refuses.
if [ -z "${VALKEY_RDMA_LAB_OUT:-}" ] && [ ${#cluster[@]} = 0 ]; then
    check "workers, while the server is away" "$clients/python/bin/python3" "$programs/workers/workers.py" "$server/valkey-server" \
        "$bin/valkey-rdma-gateway" "$clients" $((port + 3))
fi
# The last: a node is dead then.
if [ ${#cluster[@]} -gt 0 ]; then
    patience=1800 check "redis-py, while primaries hand over and die" "$clients/python/bin/python3" "$programs/failover.py" "$socket" "${urls[0]#*://}"
    cat "$work/log"
fi
# The other direction: RDMA clients of a server that speaks TCP.
if [ -n "${VALKEY_RDMA_LAB_OUT:-}" ] && [ ${#cluster[@]} = 0 ]; then
    "$bin/valkey-rdma-gateway" --listen rdma:10.0.0.1:$((port + 1)) --server "valkey://127.0.0.1:$port" >"$work/back.out" 2>"$work/back.err" &
    back=$!
    wait_for_log "$work/back.out" "ready rdma" "$back"
    check "valkey-cli --rdma to a server over TCP" "$server/valkey-cli" --rdma -h 10.0.0.1 -p $((port + 1)) INCR counter
    check "valkey-benchmark --rdma to a server over TCP" "$server/valkey-benchmark" --rdma -h 10.0.0.1 -p $((port + 1)) -n 500 -c 5 -t set,get -q
    [ "$("$server/valkey-cli" -p $port GET counter)" = 1 ] || { echo "FAILED: the server has not counted"; status=1; }
    kill $back
fi
"$bin/valkey-rdma-gateway" top "unix:$socket" --once
[ $status = 0 ] || { echo "the gateway's log ends with:"; tail -n 20 "$work/gateway.err"; }
exit $status
