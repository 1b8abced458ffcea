#!/usr/bin/env bash
# Installs the Debian package and tries its programs. It changes the system: run it in a clean root.
#
# usage: tests/lab/clean-root.sh SUITE release/try-package.sh FILE.deb      SUITE: bookworm (Debian 12), trixie (Debian 13)
set -euo pipefail
deb=$1

expect() {
    local what=$1 text=$2
    grep -qF -- "$text" <<<"$what" || { echo "expected: $text"; echo "found: $what"; exit 1; }
}

. /etc/os-release
echo "== $PRETTY_NAME"
dpkg --install "$deb"
[ "$(dpkg-query -W -f '${db:Status-Status}' valkey-rdma-tools)" = installed ]
dpkg --verify valkey-rdma-tools

for program in benchmark mock doctor gateway conformance; do
    version=$("valkey-rdma-$program" --version)
    echo "$version"
    expect "$version" "(commit "
    expect "$version" "features: verbs)"
    [ -s "/usr/share/man/man1/valkey-rdma-$program.1.gz" ]
    [ -s "/usr/share/bash-completion/completions/valkey-rdma-$program" ]
done
# The bare file system of a container leaves man pages out; here they are expected.
gzip -t /usr/share/man/man1/valkey-rdma-*.1.gz

valkey-rdma-gateway --config /etc/valkey-rdma-gateway.toml --check

# A server, the gateway in front of it, and load through both.
ready=$(mktemp)
valkey-rdma-mock --tcp-port 7001 >>"$ready" &
mock=$!
valkey-rdma-gateway --listen tcp:127.0.0.1:7002 --server valkey://127.0.0.1:7001 >>"$ready" 2>/dev/null &
gateway=$!
for _ in $(seq 300); do
    [ "$(grep -c ready "$ready")" -lt 2 ] || break
    sleep 0.1
done
load=$(valkey-rdma-benchmark -p 7002 -t set,get -n 20000 -c 10)
echo "$load"
expect "$load" GET
kill "$gateway" "$mock"
wait "$gateway" "$mock"

# What it says of RDMA depends on the machine. It must say something, and not crash.
doctor=$(valkey-rdma-doctor) || [ $? -eq 1 ]
echo "$doctor"
rdma=$(valkey-rdma-benchmark -u rdma://127.0.0.1:1 -n 1 2>&1) && exit 1
echo "$rdma"

dpkg --purge valkey-rdma-tools
[ ! -e /etc/valkey-rdma-gateway.toml ]
echo "== the package works on $PRETTY_NAME"
