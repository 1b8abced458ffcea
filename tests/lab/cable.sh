#!/usr/bin/env bash
# Two virtual machines with a cable between them, and a command in each: FAR in 10.0.0.1, NEAR in 10.0.0.2. The cable exists before NEAR
# starts. Exit status 0 if both succeed.
#
# usage: cable.sh LAB FAR NEAR     each of the commands is one argument, a line for bash
#
# VALKEY_RDMA_LAB_CABLE_MEMORY: the memory of each machine in MiB; with a comma, that of the far and that of the near one (1024).
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
lab=$1
memory=${VALKEY_RDMA_LAB_CABLE_MEMORY:-1024}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

VALKEY_RDMA_LAB_MEMORY=${memory%,*} VALKEY_RDMA_LAB_CABLE=1:$folder/cable "$here/vm.sh" "$lab" bash -c "$2" >"$folder/far" 2>&1 &
far=$!
until [ -S "$folder/cable" ]; do
    kill -0 $far 2>/dev/null || break
    sleep 0.1
done
failed=0
VALKEY_RDMA_LAB_MEMORY=${memory#*,} VALKEY_RDMA_LAB_CABLE=2:$folder/cable "$here/vm.sh" "$lab" bash -c "$3" || failed=1
wait $far || failed=1
cat "$folder/far"
exit $failed
