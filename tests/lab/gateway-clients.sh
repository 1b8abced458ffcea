#!/usr/bin/env bash
# Unmodified clients through a Unix socket of the gateway to a real Valkey: valkey-cli, valkey-benchmark, redis-py and valkey-py (blocking
# and asyncio), ioredis and iovalkey, hiredis, libvalkey and redis-rs. On the host the gateway reaches the server over TCP; inside the lab, over RDMA.
#
# usage: tests/lab/gateway-clients.sh LAB             on the host; fetches the clients into LAB/clients
#        tests/lab/gateway-clients.sh LAB fetch       on the host; does no more than that
#        ./dev lab tests/lab/gateway-clients.sh LAB   in the lab, once the clients have been fetched
#        valkey-rdma-cluster-faults --valkey LAB/valkey/9.1 -- tests/lab/gateway-clients.sh LAB
#                                                     the same in front of a cluster, which that program starts; two of its primaries
#                                                     hand over then, and one dies (gateway-failover.py)
#        ./dev lab tests/lab/cluster.sh target/release 9.1 -- tests/lab/gateway-clients.sh LAB
#                                                     that in the lab
#
# The gateway is target/release/valkey-rdma-gateway, or that of the folder $VALKEY_RDMA_BIN. redis-rs is the gateway's
# example redis_rs, in ../debug/examples from there.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
. "$here/packages.sh"
bin=$(readlink -f "${VALKEY_RDMA_BIN:-$here/../../target/release}")
[ $# -eq 1 ] || [ "${2:-}" = fetch ] || { sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2; }
lab=$(readlink -f "$1")
server=$lab/valkey/9.1
clients=$lab/clients

# shellcheck disable=SC2317 # called by way of `quietly`
fetch() {
    rm -rf "$clients"
    python3 -m venv "$clients/python"
    "$clients/python/bin/pip" install -q redis valkey
    npm install --silent --no-audit --no-fund --prefix "$clients/node" ioredis iovalkey
}
# hiredis is Debian's, libvalkey that of Valkey's archive. Linked statically, because the lab has neither.
# shellcheck disable=SC2317 # called by way of `quietly`
build_c() {
    local tree=$clients/valkey
    mkdir -p "$tree"
    tar -xf "$server"/*.orig.tar.* -C "$tree" --strip-components=1 --wildcards '*/deps/libvalkey'
    make -C "$tree/deps/libvalkey" static
    cc -O1 -Wall -Werror -DLIB=redis -DHEADER='<hiredis/hiredis.h>' "$here/gateway-client.c" -l:libhiredis.a -o "$clients/hiredis"
    cc -O1 -Wall -Werror -DLIB=valkey -DHEADER='<valkey/valkey.h>' -I"$tree/deps/libvalkey/include" "$here/gateway-client.c" \
        "$tree/deps/libvalkey/lib/libvalkey.a" -o "$clients/libvalkey"
}
if ! [ -d "$clients/node" ]; then
    command -v npm >/dev/null || need_packages npm
    need_packages python3-venv
    quietly "fetching the clients of other languages" fetch
fi
if ! [ -x "$clients/libvalkey" ]; then
    need_packages gcc libc6-dev make libhiredis-dev
    quietly "building the clients in C" build_c
fi
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
start_gateway unix --listen "unix:$socket" "${urls[@]/#/--server=}" "${cluster[@]}"

cat >"$work/blocking.py" <<'PYTHON'
import importlib, sys, threading
library, path, protocol = importlib.import_module(sys.argv[1]), sys.argv[2], int(sys.argv[3])
name = "Valkey" if sys.argv[1] == "valkey" else "Redis"
# Its default is five seconds for a reply, which an emulated processor can take.
client = getattr(library, name)(unix_socket_path=path, protocol=protocol, decode_responses=True, client_name="suite", socket_timeout=None)
client.flushall()
assert client.set("k", "v") and client.get("k") == "v" and client.client_getname() == "suite"
with client.pipeline(transaction=True) as pipe:
    assert pipe.incr("n").incr("n").execute() == [1, 2]
with client.pipeline(transaction=False) as pipe:
    assert [pipe.echo(str(i)) for i in range(100)] and pipe.execute() == [str(i) for i in range(100)]
with client.pipeline() as pipe:
    pipe.watch("n")
    client.incr("n")
    pipe.multi()
    pipe.incr("n")
    try:
        pipe.execute()
        raise AssertionError("the watched key changed")
    except library.WatchError:
        pass
big = "x" * 5_000_000
assert client.set("big", big) and client.get("big") == big
assert client.hset("h", mapping={"a": 1, "b": 2}) == 2 and client.hgetall("h") == {"a": "1", "b": "2"}
with client.pubsub() as pubsub:
    pubsub.subscribe("c")
    assert pubsub.get_message(timeout=300)["type"] == "subscribe"
    client.publish("c", "hi")
    assert pubsub.get_message(timeout=300)["data"] == "hi"
pusher = threading.Timer(0.2, lambda: client.rpush("list", "item"))
pusher.start()
assert client.blpop("list", timeout=300) in (["list", "item"], ("list", "item"))
pusher.join()
assert client.eval("return KEYS[1]", 1, "k") == "k"
PYTHON
cat >"$work/asynchronous.py" <<'PYTHON'
import asyncio, importlib, sys
library, path, protocol = importlib.import_module(sys.argv[1] + ".asyncio"), sys.argv[2], int(sys.argv[3])
name = "Valkey" if sys.argv[1] == "valkey" else "Redis"
async def main():
    client = getattr(library, name)(unix_socket_path=path, protocol=protocol, decode_responses=True, socket_timeout=None)
    async def one(number):
        for _ in range(20):
            assert await client.set(f"k{number}", number) and await client.get(f"k{number}") == str(number)
    await asyncio.gather(*(one(number) for number in range(50)))
    async with client.pipeline(transaction=True) as pipe:
        assert await pipe.set("a", 1).get("a").execute() == [True, "1"]
    async with client.pubsub() as pubsub:
        await pubsub.subscribe("c")
        assert (await pubsub.get_message(timeout=300))["type"] == "subscribe"
        await client.publish("c", "hi")
        assert (await pubsub.get_message(timeout=300))["data"] == "hi"
    blocked = asyncio.create_task(client.blpop("list2", timeout=300))
    await asyncio.sleep(0.1)
    await client.rpush("list2", "item")
    assert list(await blocked) == ["list2", "item"]
    await client.aclose()
asyncio.run(main())
PYTHON
cat >"$work/client.js" <<'JAVASCRIPT'
const assert = require("assert");
const Client = require(process.argv[2]);
// Its default is ten seconds for a connection.
const patient = { connectTimeout: 300000 };
(async () => {
  const client = new Client(process.argv[3], patient), other = new Client(process.argv[3], patient);
  assert.equal(await client.set("k", "v"), "OK");
  assert.equal(await client.get("k"), "v");
  assert.deepEqual(await client.multi().set("m", "1").incr("m").exec(), [[null, "OK"], [null, 2]]);
  assert.deepEqual(await Promise.all([...Array(200).keys()].map((n) => client.echo(n))), [...Array(200).keys()].map(String));
  const message = new Promise((resolve) => other.on("message", (channel, text) => resolve(text)));
  await other.subscribe("c");
  await client.publish("c", "hi");
  assert.equal(await message, "hi");
  await other.unsubscribe("c");
  const blocked = other.blpop("list3", 300);
  await client.rpush("list3", "item");
  assert.deepEqual(await blocked, ["list3", "item"]);
  const big = "x".repeat(3000000);
  await client.set("big", big);
  assert.equal(await client.get("big"), big);
  await client.quit();
  await other.quit();
})().catch((error) => { console.error(error); process.exit(1); });
JAVASCRIPT

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
        check "$library-py, RESP$protocol" "$clients/python/bin/python3" "$work/blocking.py" "$library" "$socket" $protocol
        check "$library-py asyncio, RESP$protocol" "$clients/python/bin/python3" "$work/asynchronous.py" "$library" "$socket" $protocol
    done
done
for library in "${node[@]}"; do
    check "$library" node "$work/client.js" "$clients/node/node_modules/$library" "$socket"
done
for library in "${c[@]}"; do
    check "$library" "$clients/$library" "$socket"
done
check "redis-rs" "$bin/../debug/examples/redis_rs" "$socket"
# The last: a node is dead then.
if [ ${#cluster[@]} -gt 0 ]; then
    patience=1800 check "redis-py, while primaries hand over and die" "$clients/python/bin/python3" "$here/gateway-failover.py" "$socket" "${urls[0]#*://}"
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
