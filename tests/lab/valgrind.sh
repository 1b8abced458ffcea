#!/usr/bin/env bash
# Runs tests of the transport on kernel verbs under Valgrind's memcheck, to be run inside the lab: use of memory that is
# not there, was never written, or is never freed. Exit status 0 if nothing is reported that tests/lab/valgrind.supp
# does not explain.
#
# usage: ./dev lab tests/lab/valgrind.sh TEST_BINARY FILTER...     Valgrind has to be installed (apt-get install valgrind)
#
# Use optimised binaries: the processor is emulated twice over. The device contract takes two minutes then, and so do the
# streams, without the test that polls busily, which leaves no time to connect within the deadline. Both are clean.
#
#   cargo test --profile quick -p valkey-rdma-transport --test device_contract --test stream --no-run
#   ./dev lab tests/lab/valgrind.sh target/quick/deps/device_contract-...
#   ./dev lab tests/lab/valgrind.sh target/quick/deps/stream-... --skip whatever_the_polling
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
test=$1
shift
export VALKEY_RDMA_TEST_DEVICE=verbs VALKEY_RDMA_TEST_ADDR=10.0.0.1

# The test harness and tokio keep what still has an owner at the end; what has none is lost.
exec valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
    --suppressions="$here/valgrind.supp" --gen-suppressions=all --num-callers=20 --fair-sched=yes \
    "$test" --include-ignored --test-threads=1 "$@"
