#!/usr/bin/env bash
# The load tool's `--evidence` on a real server over soft-RoCE and TCP, to be run inside the lab: what docs/evidence.md has people run on two
# machines. Its figures mean nothing: processors and device are emulated. It fails if a reply is wrong, or a cell is missing.
#
# usage: ./dev lab tests/lab/evidence.sh PROGRAMS [LINE [FLAG...]]     PROGRAMS is the folder of the workspace's built programs
#
# LINE is the server's, 9.1 (default) or 8.1. The flags are the tool's: --cells NAMES, --rounds N, --duration SECONDS. Without them, all cells run in
# 3 rounds of 1 s: about 10 minutes, and longer for values of 32 MiB. The files are left in .lab/out: evidence.json and evidence.html.
# $VALKEY_RDMA_LAB_IO_THREADS is the server's number of I/O threads (1).
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/valkey-server.sh"
[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
tool=$1/valkey-rdma-benchmark
server=$VALKEY_RDMA_LAB_DIR/valkey/${2:-9.1}
flags=("${@:3}")
[ ${#flags[@]} -gt 0 ] || flags=(--rounds 3 --duration 3)
out=$VALKEY_RDMA_LAB_OUT/evidence.json

start_valkey "$server" 10.0.0.1 /tmp/evidence-server.log --io-threads "${VALKEY_RDMA_LAB_IO_THREADS:-1}"
status=0
"$tool" -u 'rdma://10.0.0.1:6379?timeout=60s' --evidence "$out" "${flags[@]}" || status=$?
tail -n 3 /tmp/evidence-server.log

# What a reader of the file relies on.
python3 - "$out" <<'CHECK' || status=1
import json, sys
found = json.load(open(sys.argv[1]))
wrong = []
for cell in found["cells"]:
    direct = cell["cell"].endswith("-direct")
    reasons = [failed["reason"] for failed in cell["failed"]]
    if direct and not any("does not offer direct transfers" in reason for reason in reasons):
        wrong.append(f"{cell['cell']}: a stock server offers no direct transfers: {reasons}")
    if not direct and len(cell["comparisons"]) < 2:
        wrong.append(f"{cell['cell']}: not measured: {reasons}")
    for compared in cell["comparisons"]:
        if [side["transport"] for side in cell["servers"]] != ["rdma", "tcp"]:
            wrong.append(f"{cell['cell']}: {cell['servers']}")
        if not all(side["server_cpu_us_per_request"] for side in compared["sides"]):
            wrong.append(f"{cell['cell']} {compared['test']}: no processor time of the server")
if len(found["cells"]) != found["cells_chosen"] or "10.0.0.1" in json.dumps(found):
    wrong.append("cells are missing, or an address is in the file")
print("\n".join(wrong) or f"{len(found['cells'])} cells are as they should be")
sys.exit(bool(wrong))
CHECK
exit "$status"
