#!/usr/bin/env bash
# Thousands of idle and of hostile local clients at once: what each costs the gateway in memory, and what becomes of the rate and the
# latency of 50 others. On the host, over TCP and Unix sockets.
#
# usage: tests/lab/gateway-idle.sh LAB [CLIENTS]     10000 by default
#
# The gateway is target/quick/valkey-rdma-gateway, or that of the folder $VALKEY_RDMA_BIN.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
bin=$(readlink -f "${VALKEY_RDMA_BIN:-$here/../../target/quick}")
[ $# -ge 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
server=$(readlink -f "$1")/valkey/9.1
clients=${2:-10000}
port=7601
ulimit -n $((clients + 5000))
work_folder

start_server "$server" $port "$work/server.log"
cat >"$work/gateway.toml" <<TOML
[[route]]
listen = ["unix:$work/socket"]
server = "$url"
[limits]
clients = $((clients + 1000))
unread_bytes = 4194304
TOML
start_gateway unix --config "$work/gateway.toml"

resident() { awk '$1 == "VmRSS:" { print $2 }' "/proc/$gateway/status"; }
others() {
    "$server/valkey-benchmark" -s "$work/socket" -t get -c 50 -n 100000 -d 16 --csv 2>/dev/null | tail -n 1 |
        awk -F '","' -v what="$1" '{ printf "%-28s %.0f requests/s, median %s ms, 99 %% %s ms\n", what, $2, $5, $7 }'
}

others "50 clients alone:"
before=$(resident)
# Idle ones have sent a command, and read its reply.
python3 - "$work/socket" "$clients" "$work/opened" <<'PYTHON' &
import os, signal, socket, sys
path, count, opened = sys.argv[1], int(sys.argv[2]), sys.argv[3]
clients = []
for number in range(count):
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.sendall(b"*1\r\n$4\r\nPING\r\n")
    assert client.recv(16) == b"+PONG\r\n"
    clients.append(client)
open(opened, "w").close()
signal.pause()
PYTHON
idle=$!
until [ -e "$work/opened" ]; do
    kill -0 "$idle" || { echo "FAILED: not all idle clients have connected"; exit 1; }
    sleep 0.1
done
after=$(resident)
echo "$clients idle clients: $(((after - before) * 1024 / clients)) bytes of memory each"
others "50 beside idle ones:"
kill "$idle"
wait "$idle" 2>/dev/null || true

# Half commands, an endless argument, replies that are never read, and clients that come and go with commands in flight.
head -c 1000000 /dev/zero | tr '\0' x | "$server/valkey-cli" -p $port -x SET large >/dev/null
python3 - "$work/socket" "$work/hostile" <<'PYTHON' &
import socket, sys, time
path, begun = sys.argv[1:]
def connect():
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    client.setblocking(False)
    return client
half = [connect() for _ in range(300)]
for client in half:
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60000\r\nx")
endless, deaf = [], []
end = time.monotonic() + 6
open(begun, "w").close()
while time.monotonic() < end:
    if not endless:
        endless = [connect() for _ in range(4)]
        for client in endless:
            client.send(b"*3\r\n$3\r\nSET\r\n$1\r\ne\r\n$500000000\r\n")
        deaf = [connect() for _ in range(4)]
        for client in deaf:
            client.send(b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n" * 500)
    for client in list(endless):
        try:
            client.send(b"x" * 65536)
        except BlockingIOError:
            pass
        except OSError:
            endless.remove(client)
    leaver = connect()
    leaver.send(b"*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n" * 200)
    leaver.close()
    time.sleep(0.002)
PYTHON
hostile=$!
until [ -e "$work/hostile" ]; do
    kill -0 "$hostile" || { echo "FAILED: the hostile clients"; exit 1; }
    sleep 0.1
done
others "50 beside hostile ones:"
wait "$hostile"
echo "after all: $(($(resident) - before)) KiB more than at first"
"$server/valkey-cli" -s "$work/socket" INFO gateway | grep -E "gateway_(clients|clients_slow|unread_bytes|connections):"
