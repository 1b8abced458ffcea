#!/usr/bin/env bash
# redis-py's and valkey-py's own tests against a real server, over their connections and over ours, side by side.
#
# usage: client_suites.sh SERVER DIR [TEST-FILE...]
#
# SERVER is a valkey-server program. DIR keeps the sources of the client libraries, which pip fetches, and the results. The python3 in
# PATH has valkey_rdma, redis, valkey, pytest, pytest-asyncio, pytest-timeout and numpy installed. TEST-FILEs are relative to `tests`,
# and are taken from both libraries; by default those of the connection and of what it carries. Tests that need a cluster, TLS,
# replicas or modules are left out. Ports from $PORT (17379) on are used.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
server=$(readlink -f "$1")
mkdir -p "$2"
dir=$(readlink -f "$2")
shift 2
files=("$@")
[ $# -gt 0 ] || files=(test_{connection,connection_pool,commands,encoding,lock,monitor,multiprocessing,pipeline,pubsub,retry,scripting}.py
    test_asyncio/test_{connection,connection_pool,commands,encoding,lock,monitor,pipeline,pubsub,retry,scripting}.py)
port=${PORT:-17379}

# suite LIBRARY theirs|ours PORT: its results are in DIR/LIBRARY-theirs.txt or DIR/LIBRARY-ours.txt.
suite() {
    local library=$1 over=$2 port=$3 process options=() file
    local run=$dir/run-$library-$over
    # Away from the library's sources: the library is the one that is installed.
    rm -rf "$run"
    mkdir -p "$run"
    cp -r "$dir/$library-$version"/{tests,pyproject.toml,pytest.ini} "$run" 2>/dev/null || true
    cd "$run"
    for file in "${files[@]}"; do
        [ ! -e "tests/$file" ] || options+=("tests/$file")
    done
    [ "$over" = theirs ] || options+=(-p through_bridge)
    "$server" --port "$port" --save "" --enable-debug-command yes --protected-mode no --logfile "$run/server.log" &
    process=$!
    LIBRARY=$library PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH} python3 -m pytest -q -p no:cacheprovider --timeout=30 \
        --timeout-method=signal "--$library-url=$library://127.0.0.1:$port/0" -rfE --tb=short "${options[@]}" \
        -m "not onlycluster and not redismod and not valkeymod and not ssl and not replica and not cp_integration" \
        >"$dir/$library-$over.txt" 2>&1 || true
    kill "$process"
}

failures() {
    grep -E "^(FAILED|ERROR) " "$1" | sed 's/ - .*//' | sort
}

cd "$dir"
for library in redis valkey; do
    version=$(python3 -c "import $library; print($library.__version__)")
    if [ ! -d "$library-$version" ]; then
        python3 -m pip download --quiet --no-deps --no-binary "$library" "$library==$version" --dest "$dir"
        tar -xf "$library-$version.tar.gz"
    fi
    suite "$library" theirs "$port" &
    suite "$library" ours $((port + 1)) &
    wait
    port=$((port + 2))
    for over in theirs ours; do
        echo "$library $version, over $over: $(tail -1 "$library-$over.txt")"
    done
    grep "connections over valkey_rdma" "$library-ours.txt"
    echo "failures that the other does not have (<: theirs, >: ours):"
    diff <(failures "$library-theirs.txt") <(failures "$library-ours.txt") | grep '^[<>]' || echo none
done
