#!/usr/bin/env bash
# What a GET costs the client's process, ours beside redis-rs, over TCP: instructions under callgrind, the kernel's not counted, and
# system calls under strace. The server is our mock, in a process of its own. Instructions hardly depend on the machine's mood; with
# 50 tasks on 2 threads, system calls do.
#
# usage: benches/peers/client-costs.sh PROGRAMS     PROGRAMS is the folder of this project's built programs
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/callgrind.sh"
programs=$1
port=7120
calls=$(mktemp)

"$programs/valkey-rdma-mock" --tcp-port "$port" >/dev/null &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -f "$calls"' EXIT

requests=${REQUESTS:-4000}
echo "of the client, per GET: instructions; per 1000 GET: system calls to send, to receive, to wait for events, to let threads sleep or wake them"
printf '%-8s %-5s %-12s %13s   %5s %8s %5s %7s\n' threads tasks library instructions send receive epoll threads

# count NAME...: how often these system calls were made, per 1000 requests.
count() {
    awk -v names=" $* " -v requests="$((10 * requests))" \
        'index(names, " " $NF " ") { sum += $4 } END { printf "%.0f", 1000 * sum / requests }' "$calls"
}

for threads in 1 2; do
    for tasks in 1 50; do
        for library in valkey-rdma redis-rs; do
            scheme=valkey
            [ "$library" = valkey-rdma ] || scheme=redis
            load=("$programs/client-load" --library "$library" --url "$scheme://127.0.0.1:$port" --threads "$threads"
                --tasks "$tasks" -t get)
            instructions=$(per_request "$requests" "${load[@]}")
            strace -f -c -o "$calls" "${load[@]}" -n $((10 * requests)) >/dev/null
            # Threads sleep on a futex and are woken through it, or through an eventfd if they wait for events.
            printf '%-8s %-5s %-12s %13s   %5s %8s %5s %7s\n' "$threads" "$tasks" "$library" "$instructions" \
                "$(count sendto writev)" "$(count recvfrom)" "$(count epoll_wait)" "$(count futex write)"
        done
    done
done
