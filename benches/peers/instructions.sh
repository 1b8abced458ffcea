#!/usr/bin/env bash
# Instructions that a client executes per GET over RDMA, the kernel's not counted: ours beside valkey-benchmark's, under
# callgrind in the lab. Such counts depend on the machine's mood only as far as the number of wake-ups does, so those of one
# caller and of 50 connections by up to a third; times do altogether.
#
# usage: ./dev lab benches/peers/instructions.sh PROGRAMS     PROGRAMS is the folder of this project's built programs
set -euo pipefail
programs=$1
server=$VALKEY_RDMA_LAB_DIR/valkey/9.1
address=10.0.0.1
log=/tmp/instructions-server.log

here=$(dirname "$(readlink -f "$0")")
. "$here/callgrind.sh"
. "$here/../../tests/lab/valkey-server.sh"
start_valkey "$server" "$address" "$log"

ours=("$programs/valkey-rdma-benchmark" -u "rdma://$address:6379?protocol=resp2&timeout=60s" -d 3 -t get --populate all --csv)
theirs=("$server/valkey-benchmark" --rdma -h "$address" -p 6379 -d 3 -t get --csv)
printf '%-46s %8s %8s %7s\n' "instructions per GET of 3 B" ours theirs ratio

# row TITLE REQUESTS OURS THEIRS: the last two are words, the shape of either.
row() {
    local a b
    read -ra shape <<<"$3"
    a=$(per_request "$2" "${ours[@]}" "${shape[@]}")
    read -ra shape <<<"$4"
    b=$(per_request "$2" "${theirs[@]}" "${shape[@]}")
    printf '%-46s %8d %8d %6s\n' "$1" "$a" "$b" "$(awk "BEGIN { printf \"%.2fx\", $a / $b }")"
}

library="--tasks-per-connection"
row "1 caller, streams" 1000 "-c 1" "-c 1"
row "1 caller, client library" 1000 "-c 1 $library 1" "-c 1"
row "1 caller, pipelines of 16, streams" 16000 "-c 1 -P 16" "-c 1 -P 16"
row "1 caller, pipelines of 16, client library" 16000 "-c 1 -P 16 $library 1" "-c 1 -P 16"
row "50 callers: tasks of 1 connection / connections" 10000 "-c 1 $library 50" "-c 50"
row "50 connections, streams" 5000 "-c 50" "-c 50"
