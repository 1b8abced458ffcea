#!/usr/bin/env bash
# What a GET costs the client's process: instructions under callgrind, the kernel's not counted, and system calls under strace. These
# hardly depend on the machine's mood; those of several tasks or connections do as far as the number of wake-ups does.
#
# usage: benches/peers/costs.sh PROGRAMS                      over TCP and TLS: ours beside other libraries; a cluster's client
#        ./dev lab benches/peers/costs.sh PROGRAMS VALKEY     over RDMA: ours beside valkey-benchmark, with the server of VALKEY
#
# PROGRAMS is the folder of this project's built programs. Over TCP, the server is our mock, in a process of its own.
set -euo pipefail
programs=$1
here=$(dirname "$(readlink -f "$0")")
declare -a servers
work=$(mktemp -d)
calls=$work/calls
trap 'kill "${servers[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

# executed COMMAND...: instructions of a whole run.
executed() {
    local output
    output=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null "$@" 2>&1) || { echo "$output" >&2; return 1; }
    sed -n 's/.*Collected : //p' <<<"$output"
}

# per_request REQUESTS COMMAND...: start and end cancel out between a short and a longer run.
per_request() {
    local requests=$1 short long
    shift
    short=$(executed "$@" -n "$requests") || return
    long=$(executed "$@" -n $((3 * requests))) || return
    echo $(((long - short) / (2 * requests)))
}

# mock PORT FLAG...: starts our mock on TCP, and waits for the line that says that it listens.
mock() {
    local output
    exec {output}< <(exec "$programs/valkey-rdma-mock" --tcp-port "$@")
    servers+=($!)
    read -r <&"$output"
}

# count REQUESTS NAME...: how often these system calls were made, per 1000 requests.
count() {
    awk -v names=" ${*:2} " -v requests="$1" \
        'index(names, " " $NF " ") { sum += $4 } END { printf "%.0f", 1000 * sum / requests }' "$calls"
}

of_libraries() {
    local tasks library load url instructions requests=${REQUESTS:-4000}
    PYTHONPATH=$here/../../tests/lab python3 -Bc 'import pathlib, sys, certificates
certificates.Authority(pathlib.Path(sys.argv[1]), "issuer").issue("127.0.0.1")' "$work"
    mock 7120 --tls-port 7121 --tls-cert "$work/issuer-1.crt" --tls-key "$work/issuer-1.key"
    echo "per GET: instructions; per 1000 GET: system calls to send, to receive, to wait for events"
    printf '%-5s %-16s %13s   %5s %8s %5s\n' tasks library instructions send receive epoll
    for tasks in 1 50; do
        for library in valkey-rdma redis-rs fred "valkey-rdma TLS" "redis-rs TLS"; do
            url=valkey://127.0.0.1:7120
            [ "$library" = "${library% TLS}" ] || url="valkeys://127.0.0.1:7121?ca=$work/issuer.crt"
            load=("$programs/valkey-rdma-peers" -u "$url" -c 1 --tasks-per-connection "$tasks" -t get --populate all --csv)
            [[ $library = valkey-rdma* ]] || load+=(--library "${library% TLS}")
            instructions=$(per_request "$requests" "${load[@]}")
            printf '%-5s %-16s %13s' "$tasks" "$library" "$instructions"
            strace -f -c -o "$calls" "${load[@]}" -n $((10 * requests)) >/dev/null 2>&1
            printf '   %5s %8s %5s\n' "$(count $((10 * requests)) sendto writev)" "$(count $((10 * requests)) recvfrom)" \
                "$(count $((10 * requests)) epoll_wait)"
        done
    done
}

of_a_cluster() {
    local tasks load client cluster nodes requests=${REQUESTS:-10000}
    mock 7100 --cluster 1
    mock 7110 --cluster 3
    load=("$programs/valkey-rdma-benchmark" -d 3 -t get -c 1 -r 1000 --populate missing --csv)
    printf '\n%-6s %8s %9s %12s   %s\n' tasks client cluster "three nodes" "cluster - client"
    for tasks in 1 50; do
        client=$(per_request "$requests" "${load[@]}" -p 7100 --tasks-per-connection "$tasks")
        cluster=$(per_request "$requests" "${load[@]}" -p 7100 --cluster --tasks-per-connection "$tasks")
        nodes=$(per_request "$requests" "${load[@]}" -p 7110 --cluster --tasks-per-connection "$tasks")
        printf '%-6s %8s %9s %12s   %s\n' "$tasks" "$client" "$cluster" "$nodes" $((cluster - client))
    done
}

# row REQUESTS OURS THEIRS: the last two are flags.
row() {
    local ours theirs flags
    read -ra flags <<<"$2"
    ours=$(per_request "$1" "$programs/valkey-rdma-benchmark" -u "rdma://10.0.0.1:6379?protocol=resp2&timeout=60s" -t get \
        --populate all --csv "${flags[@]}")
    read -ra flags <<<"$3"
    theirs=$(per_request "$1" "$valkey_folder/valkey-benchmark" --rdma -h 10.0.0.1 -p 6379 -d 3 -t get --csv "${flags[@]}")
    printf '%-38s %8d %8d %6s\n' "$2" "$ours" "$theirs" "$(awk "BEGIN { printf \"%.2fx\", $ours / $theirs }")"
}

of_the_reference() {
    . "$here/../../tests/lab/valkey-server.sh"
    start_valkey "$valkey_folder" 10.0.0.1 /tmp/costs-server.log
    servers+=("$valkey")
    printf '%-38s %8s %8s %7s\n' "instructions per GET of 3 B" ours theirs ratio
    row 1000 "-c 1" "-c 1"
    row 1000 "-c 1 --tasks-per-connection 1" "-c 1"
    row 16000 "-c 1 -P 16" "-c 1 -P 16"
    row 16000 "-c 1 -P 16 --tasks-per-connection 1" "-c 1 -P 16"
    row 10000 "-c 1 --tasks-per-connection 50" "-c 50"
    row 5000 "-c 50" "-c 50"
}

if [ $# -gt 1 ]; then
    valkey_folder=$2
    of_the_reference
else
    of_libraries
    of_a_cluster
fi
