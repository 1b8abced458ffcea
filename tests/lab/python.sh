#!/usr/bin/env bash
# The tests of the Python package against a real server over RDMA, in the lab, then those of its cluster clients against three primaries
# and three replicas:
# ./dev lab tests/lab/python.sh 9.1 ENV [PYTEST-OPTION...]. ENV is the virtual environment that ./dev python makes: target/python.
# With options, the cluster is left out. Its programs are in target/quick.
# The soak test is left out: its server is a mock. So are processes that exit with connects and replies in flight: Valkey 9.1.2
# may not survive them (H-6, spec/peers.md). What happens to nodes and slots on command happens to mocks, and is left out too.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
version=$1
env=$(readlink -f "$2")
target=$(dirname "$env")
shift 2

cd "$top/valkey-rdma-python"
export VALKEY_RDMA_MOCK=$target/debug/valkey-rdma-mock
pytest=("$env/bin/python" -X dev -m pytest --quiet -p no:cacheprovider)
status=0
"$here/client.sh" "$version" "${pytest[@]}" --ignore tests/test_soak.py --ignore tests/test_cluster.py \
    --deselect tests/test_processes.py::test_python_exits_with_work_in_flight "$@" || status=$?
if [ $# -eq 0 ]; then
    "$here/cluster.sh" "$target/quick" "$version" -- "${pytest[@]}" tests/test_cluster.py || status=$?
fi
exit "$status"
