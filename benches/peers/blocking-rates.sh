#!/usr/bin/env bash
# Blocking calls of our client beside redis-rs's, over TCP: rates and processor time of 1, 2 and 8 threads, which share our client, and then
# have one each. The server is our mock, in a process of its own.
#
# usage: benches/peers/blocking-rates.sh PROGRAMS     PROGRAMS is the folder of this project's built programs
set -euo pipefail
programs=$1
port=7121

exec {output}< <(exec "$programs/valkey-rdma-mock" --tcp-port "$port")
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
# Its first line says that it listens.
read -r <&"$output"

load=("$programs/blocking-load" --url "redis://127.0.0.1:$port")
echo "our threads share a client"
"${load[@]}"
echo "each of our threads has a client"
"${load[@]}" --own-clients
