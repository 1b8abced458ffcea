# shellcheck shell=bash
# A real Valkey or a gateway in the background, sourced by scripts of the lab and of the benchmarks.

# start_valkey FOLDER ADDRESS[:PORT] LOG [FLAG...]: starts the valkey-server of FOLDER with its RDMA module at ADDRESS (default
# port 6379), and waits until it accepts RDMA connections: the real clients crash when nothing listens. Sets $valkey to its
# process id.
start_valkey() {
    local folder=$1 address=${2%:*} port=6379 log=$3
    [[ $2 != *:* ]] || port=${2##*:}
    # The server appends: what another one was ready for counts for nothing.
    rm -f "$log"
    "$folder/valkey-server" --protected-mode no --save "" --port "$port" --logfile "$log" "${@:4}" \
        --loadmodule "$folder/valkey-rdma.so" --rdma-bind "$address" --rdma-port "$port" >/dev/null &
    valkey=$!
    wait_for_log "$log" "Ready to accept connections rdma" "$valkey"
}

# start_server FOLDER PORT LOG [FLAG...]: as `start_valkey` inside the lab, at 10.0.0.1. On the host, a server without RDMA. Sets $valkey
# and $url.
start_server() {
    if [ -n "${VALKEY_RDMA_LAB_OUT:-}" ]; then
        start_valkey "$1" "10.0.0.1:$2" "${@:3}"
        url=rdma://10.0.0.1:$2
        return
    fi
    rm -f "$3"
    "$1/valkey-server" --port "$2" --save "" --logfile "$3" "${@:4}" >/dev/null &
    valkey=$!
    wait_for_log "$3" "Ready to accept connections" "$valkey"
    # shellcheck disable=SC2034 # for the caller
    url=valkey://127.0.0.1:$2
}

# start_gateway KIND FLAG...: starts the gateway of the folder $bin, and waits until it listens to sockets of this kind: tcp, unix. Its
# output is $work/gateway.out, its log $work/gateway.err. Sets $gateway to its process id.
start_gateway() {
    rm -f "$work/gateway.out"
    # shellcheck disable=SC2154 # of the caller
    "$bin/valkey-rdma-gateway" "${@:2}" >"$work/gateway.out" 2>"$work/gateway.err" &
    gateway=$!
    wait_for_log "$work/gateway.out" "ready $1" "$gateway"
}

# work_folder: sets $work to a folder that is removed when the script ends. What the script has started is killed then.
work_folder() {
    work=$(mktemp -d)
    trap stop EXIT
}

# shellcheck disable=SC2317 # called by the trap
stop() {
    # A server in an endless script takes no other signal. Bash reports what was killed.
    # shellcheck disable=SC2046 # process ids
    { kill -KILL $(jobs -p) || true; wait; } 2>/dev/null
    rm -rf "$work"
}

# until_true COMMAND...: the deadline only ends what hangs; on a busy machine a step takes minutes.
until_true() {
    local deadline=$((SECONDS + 900))
    until "$@"; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.2
    done
}

# wait_for_log LOG TEXT PROCESS: waits up to ten minutes until LOG contains TEXT. Prints LOG and exits if PROCESS ends before.
wait_for_log() {
    local end=$((SECONDS + 600))
    until grep -q "$2" "$1" 2>/dev/null; do
        if ! kill -0 "$3" 2>/dev/null || [ "$SECONDS" -ge "$end" ]; then
            cat "$1"
            echo "the server did not start: its log lacks \"$2\"" >&2
            exit 1
        fi
        sleep 0.1
    done
}
