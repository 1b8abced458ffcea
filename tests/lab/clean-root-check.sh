#!/usr/bin/env bash
# What has to work in a clean root (clean-root.sh): building, the demo, and an error of `rdma://` that names the packages.
set -euo pipefail
[ ! -e /usr/include/infiniband ] || { echo "${0##*/}: RDMA headers in here: this root is not clean" >&2; exit 1; }

# Unoptimised: what counts is that it builds. The lab builds optimised programs.
VALKEY_RDMA_DEMO_PROFILE=dev ./dev demo

tools=(valkey-rdma-mock valkey-rdma-benchmark valkey-rdma-conformance)
cargo build --quiet --locked -p valkey-rdma-client -p valkey-rdma-server "${tools[@]/#/-p}"

programs=${CARGO_TARGET_DIR:-target}/debug
# expect PART OUTPUT: the output has it.
expect() {
    grep -qF -- "$1" <<<"$2" || { printf '%s: no "%s" in:\n%s\n' "${0##*/}" "$1" "$2" >&2; exit 1; }
}
for command in "valkey-rdma-benchmark --url rdma://127.0.0.1:6379 -n 1" "valkey-rdma-mock --device verbs --bind 127.0.0.1"; do
    # shellcheck disable=SC2086 # a program and its arguments
    output=$("$programs"/$command 2>&1) && { echo "${0##*/}: $command succeeded without RDMA libraries" >&2; exit 1; }
    expect "libibverbs.so.1" "$output"
    expect "apt install libibverbs1 librdmacm1 ibverbs-providers" "$output"
    expect "dnf install libibverbs librdmacm" "$output"
    echo "$command:"
    echo "$output"
done
