#!/usr/bin/env bash
# LMCache's own tests of native connectors, with their connectors and with ours, side by side, against a real server.
#
# usage: lmcache_suite.sh SERVER DIR
#
# SERVER is a valkey-server program, with valkey-cli beside it. DIR keeps LMCache's sources, which pip fetches, and the results. The
# python3 in PATH has valkey_rdma, pytest and the released lmcache with torch: `pip install lmcache==0.5.6` (2.5 GB; a processor is enough).
# Ports $PORT (17389) and the next are used.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
server=$(readlink -f "$1")
mkdir -p "$2"
dir=$(readlink -f "$2")
port=${PORT:-17389}
files=(tests/v1/distributed/test_{native_connector_l2_adapter,resp_l2_adapter_integration}.py)

# suite theirs|ours PORT: its results are in DIR/lmcache-theirs.txt or DIR/lmcache-ours.txt.
suite() {
    local over=$1 process options=() run=$dir/run-lmcache-$1
    # Away from LMCache's sources: LMCache is the one that is installed.
    rm -rf "$run"
    mkdir -p "$run/bin"
    cp -r "$dir/lmcache-$version/tests" "$run"
    # The tests ask `redis-cli` whether the server is there.
    ln -s "$(dirname "$server")/valkey-cli" "$run/bin/redis-cli"
    [ "$over" = theirs ] || options+=(-p through_lmcache_client)
    cd "$run"
    "$server" --port "$2" --save "" --logfile "$run/server.log" &
    process=$!
    until "$run/bin/redis-cli" -p "$2" ping >/dev/null 2>&1; do
        kill -0 "$process" || { echo "$server ended; its log is $run/server.log" >&2; exit 1; }
    done
    PATH=$run/bin:$PATH REDIS_HOST=127.0.0.1 REDIS_PORT=$2 PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH} \
        python3 -m pytest -q -p no:cacheprovider -rfEs --tb=short "${options[@]}" "${files[@]}" >"$dir/lmcache-$over.txt" 2>&1 || true
    kill "$process"
}

version=$(python3 -c 'import importlib.metadata; print(importlib.metadata.version("lmcache"))')
cd "$dir"
if [ ! -d "lmcache-$version" ]; then
    python3 -m pip download --quiet --no-deps --no-binary lmcache --no-build-isolation "lmcache==$version" --dest "$dir"
    tar -xf "lmcache-$version.tar.gz"
fi
(suite theirs "$port")
(suite ours "$((port + 1))")
for over in theirs ours; do
    echo "lmcache $version, connector: $over: $(tail -1 "lmcache-$over.txt")"
    grep -E '^(FAILED|ERROR|SKIPPED) ' "lmcache-$over.txt" || true
done
grep 'connectors were valkey_rdma.LMCacheClient' lmcache-ours.txt
