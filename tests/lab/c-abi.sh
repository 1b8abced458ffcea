#!/usr/bin/env bash
# A C program and Python's sockets talk to a real Valkey over RDMA, through libvalkey_rdma. To be run inside the lab.
#
# usage: cargo build -p valkey-rdma-c && ./dev lab tests/lab/c-abi.sh LIBRARY [LINE]     LINE is 9.1 (default) or 8.1
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
library=$(readlink -f "$1")
server=$VALKEY_RDMA_LAB_DIR/valkey/${2:-9.1}
crate=$here/../../valkey-rdma-c

start_valkey "$server" 10.0.0.1 /tmp/c-abi-server.log
trap 'kill "$valkey"; wait "$valkey" || true' EXIT

"$crate/install.sh" "${library%/*}" /tmp/c-abi
for program in ping process; do
    cc -Wall -Werror -I /tmp/c-abi/include "$crate/tests/$program.c" -o "/tmp/$program" -L /tmp/c-abi/lib -lvalkey_rdma -Wl,-rpath,/tmp/c-abi/lib
done
pong=$(/tmp/ping rdma://10.0.0.1:6379 | tr -d '\r')
[ "$pong" = +PONG ]
echo "C: $pong"
held=$(/tmp/process hold rdma://10.0.0.1:6379)
echo "C: $held"
python3 "$crate/tests/sockets.py" "$library" rdma://10.0.0.1:6379 >/tmp/value
grep -q "300000 bytes, as sent" /tmp/value
echo "Python: $(tail -1 /tmp/value)"
listened=$(python3 "$crate/tests/sockets.py" "$library" listen rdma://10.0.0.1:0)
[ "$listened" = $'as if it were TCP\nthe listener was stopped' ]
echo "Python: both sides"
