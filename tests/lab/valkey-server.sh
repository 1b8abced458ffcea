# shellcheck shell=bash
# A real Valkey in the background, sourced by scripts of the lab and of the benchmarks.

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
