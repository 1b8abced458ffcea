#!/usr/bin/env bash
# The proof that needs two machines: a connection whose cable is cut, so that neither side hears of it. Boots two
# virtual machines with a cable between them and runs one end of the proof in each.
#
# usage: cable.sh LAB PROOFS
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
lab=$1
proofs=$2

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

export VALKEY_RDMA_LAB_MEMORY=${VALKEY_RDMA_LAB_CABLE_MEMORY:-1024}
VALKEY_RDMA_LAB_CABLE=1:$folder/cable "$here/vm.sh" "$lab" "$proofs" cable-far 10.0.0.1:7000 >"$folder/far" 2>&1 &
far=$!
until [ -S "$folder/cable" ]; do
    kill -0 $far 2>/dev/null || break
    sleep 0.1
done
failed=0
VALKEY_RDMA_LAB_CABLE=2:$folder/cable "$here/vm.sh" "$lab" "$proofs" cable-near 10.0.0.1:7000 10.0.0.2:0 || failed=1
wait $far || failed=1
cat "$folder/far"
exit $failed
