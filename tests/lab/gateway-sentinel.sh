#!/usr/bin/env bash
# A gateway that follows real Sentinels from a primary that is killed to the next one: over RDMA inside the lab, over TCP on the host.
#
# usage: ./dev lab tests/lab/gateway-sentinel.sh PROGRAMS [LINE]     LINE is 9.1 (default) or 8.1
#
# PROGRAMS is the folder of the workspace's built programs.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/valkey-server.sh"
bin=$1
server=$VALKEY_RDMA_LAB_DIR/valkey/${2:-9.1}
ip=127.0.0.1 scheme=valkey
[ -z "${VALKEY_RDMA_LAB_OUT:-}" ] || { ip=10.0.0.1 scheme=rdma; }

work_folder

# node PORT [FLAG...]: starts a server.
node() { start_server "$server" "$1" "$work/$1.log" --bind $ip --dir "$work" "${@:2}"; }

# ask PORT COMMAND...: a server or a Sentinel, over TCP.
ask() { "$server/valkey-cli" -h $ip -p "$@"; }

# through COMMAND...: through the gateway.
through() { "$server/valkey-cli" -s "$work/gateway" "$@"; }

# expect REPLY COMMAND...: waits up to five minutes until the command prints a line with REPLY.
expect() {
    local end=$((SECONDS + 300)) reply
    until reply=$("${@:2}" 2>&1) && grep -qx -- "$1" <<<"$reply"; do
        [ $SECONDS -lt $end ] || { echo "${*:2}: $reply instead of $1" >&2; cat "$work/gateway.err" >&2; exit 1; }
        sleep 0.2
    done
}

node 7691
primary=$valkey
node 7692 --replicaof $ip 7691 --repl-diskless-sync-delay 0
for port in 7694 7695 7696; do
    printf '%s\n' "port $port" "bind $ip" "protected-mode no" "sentinel monitor mymaster $ip 7691 2" \
        "sentinel down-after-milliseconds mymaster 1000" "sentinel failover-timeout mymaster 5000" >"$work/$port.conf"
    "$server/valkey-server" "$work/$port.conf" --sentinel >/dev/null &
done
know() { ask "$1" SENTINEL MASTER mymaster | paste - - | grep -E '^num-(slaves|other-sentinels)' | tr '\t\n' '= '; }
for port in 7694 7695 7696; do
    expect "num-slaves=1 num-other-sentinels=2 " know $port
done

start_gateway unix --listen "unix:$work/gateway" --server "$scheme+sentinel://$ip:7694,$ip:7695,$ip:7696/mymaster"
expect OK through SET key before
expect before ask 7692 GET key

kill -KILL "$primary"
wait "$primary" 2>/dev/null || true
begin=$(date +%s%N)
expect OK through SET key after
echo "the gateway writes to the next primary $((($(date +%s%N) - begin) / 1000000)) ms after the first was killed"
expect after ask 7692 GET key
[ $scheme = valkey ] && transport=tcp || transport=$scheme
grep -q "connected connection=$transport to $ip:7692" "$work/gateway.err" || { cat "$work/gateway.err" >&2; exit 1; }
