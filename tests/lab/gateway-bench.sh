#!/usr/bin/env bash
# valkey-benchmark directly and through the gateway, in turn: requests per second, median latency, and CPU time per request of server and
# gateway. On the host all is TCP and Unix sockets; inside the lab the gateway reaches the server over RDMA.
#
# usage: tests/lab/gateway-bench.sh LAB [ROUNDS]             on the host
#        ./dev lab tests/lab/gateway-bench.sh LAB [ROUNDS]   in the lab
#
# The gateway is target/quick/valkey-rdma-gateway, or that of the folder $VALKEY_RDMA_BIN. $VALKEY_RDMA_GATEWAY_CASES lists
# CLIENTS:PIPELINE:REQUESTS.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
bin=$(readlink -f "${VALKEY_RDMA_BIN:-$here/../../target/quick}")
[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
server=$(readlink -f "$1")/valkey/9.1
rounds=${2:-3}
port=7401
work_folder

ways=(tcp unix gateway-unix gateway-tcp)
cases=(1:1:20000 50:1:200000 50:16:1000000)
if [ -n "${VALKEY_RDMA_LAB_OUT:-}" ]; then
    ways+=(rdma)
    cases=(1:1:1000 50:1:20000 50:16:200000)
fi
start_server "$server" $port "$work/server.log" --unixsocket "$work/direct"
[ -z "${VALKEY_RDMA_GATEWAY_CASES:-}" ] || read -ra cases <<<"$VALKEY_RDMA_GATEWAY_CASES"
start_gateway tcp --listen "unix:$work/socket" --listen tcp:127.0.0.1:$((port + 1)) --server "$url"

# ticks PROCESS: its CPU time in hundredths of a second.
ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }

# benchmark WAY CLIENTS PIPELINE REQUESTS: requests/s, median in ms, CPU of the server and of the gateway in us.
benchmark() {
    local address before=("$(ticks "$valkey")" "$(ticks "$gateway")")
    case $1 in
        tcp) address=(-h 127.0.0.1 -p "$port") ;;
        unix) address=(-s "$work/direct") ;;
        rdma) address=(--rdma -h 10.0.0.1 -p "$port") ;;
        gateway-unix) address=(-s "$work/socket") ;;
        gateway-tcp) address=(-h 127.0.0.1 -p $((port + 1))) ;;
    esac
    "$server/valkey-benchmark" "${address[@]}" -t get -c "$2" -P "$3" -n "$4" -d 16 --csv 2>/dev/null | tail -n 1 |
        awk -F '","' '{ printf "%.0f %s ", $2, $5 }'
    # The end of its connections is part of the run.
    until [ "$("$server/valkey-cli" -p "$port" info clients | sed -n 's/^connected_clients:\([0-9]*\).*/\1/p')" -lt 10 ]; do sleep 0.1; done
    echo "$((($(ticks "$valkey") - before[0]) * 10000)) $((($(ticks "$gateway") - before[1]) * 10000))"
}

# run WAY CLIENTS PIPELINE REQUESTS: one line: requests/s, median in ms, CPU of the server and of the gateway in us per request. A run
# of one pipeline per client shows what the connections cost, over RDMA more than thousands of requests: that is not counted.
run() {
    local short=$(($2 * $3))
    { benchmark "$1" "$2" "$3" "$short"; benchmark "$1" "$2" "$3" "$4"; } |
        awk -v n="$(($4 - short))" '{ rate = $1; median = $2; server = $3 - server; gateway = $4 - gateway }
            END { printf "%s %s %.2f %.2f\n", rate, median, server / n, gateway / n }'
}

# column N FILE: median, lowest and highest.
column() {
    awk -v n="$1" '{ print $n }' "$2" | sort -g | awk '{ v[NR] = $1 } END { printf "%s (%s to %s)", v[int((NR + 1) / 2)], v[1], v[NR] }'
}

for case in "${cases[@]}"; do
    IFS=: read -r clients pipeline requests <<<"$case"
    for ((round = 0; round < rounds; round++)); do
        for way in "${ways[@]}"; do
            run "$way" "$clients" "$pipeline" "$requests" >>"$work/$case-$way"
        done
    done
    echo "$clients clients, pipelines of $pipeline, $rounds rounds: median (lowest to highest)"
    for way in "${ways[@]}"; do
        printf '    %-13s %s requests/s, %s ms, server %s us/request, gateway %s us/request\n' "$way" \
            "$(column 1 "$work/$case-$way")" "$(column 2 "$work/$case-$way")" \
            "$(column 3 "$work/$case-$way")" "$(column 4 "$work/$case-$way")"
    done
done
