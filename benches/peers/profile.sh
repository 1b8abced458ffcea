#!/usr/bin/env bash
# Where the time of a workload goes, kernel included: samples of both processors, by the clock, as an emulated processor has
# no counters. Needs perf (Debian's linux-perf).
#
# usage: ./dev lab benches/peers/profile.sh COMMAND...     the command finds valkey-server 9.1 on rdma://10.0.0.1:6379
set -euo pipefail
server=$VALKEY_RDMA_LAB_DIR/valkey/9.1
data=$VALKEY_RDMA_LAB_OUT/profile.data
log=/tmp/profile-server.log

command -v perf >/dev/null || { echo "no perf: install linux-perf"; exit 1; }
. "$(dirname "$(readlink -f "$0")")/../../tests/lab/valkey-server.sh"
start_valkey "$server" 10.0.0.1 "$log"

sysctl -q kernel.kptr_restrict=0
perf record -q -a -e cpu-clock -F 997 -o "$data" -- "$@"
# Processes, then what each of them spends more than half a percent on. `swapper` is a processor that waits.
perf report -i "$data" --no-children --sort comm --stdio -q
perf report -i "$data" --no-children --sort comm,dso,sym --stdio -q --percent-limit 0.5
