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

# What bash offers for a program's name and the beginning of an option.
completions() {
    (
        # shellcheck disable=SC1090 # one of the package
        . "/usr/share/bash-completion/completions/$1"
        function=$(complete -p "$1" | sed 's/.*-F \([^ ]*\) .*/\1/')
        # shellcheck disable=SC2034 # for the function
        COMP_WORDS=("$1" "$2") COMP_CWORD=1 COMPREPLY=()
        "$function" "$1" "$2" "$1"
        echo "${COMPREPLY[@]}"
    )
}

for program in benchmark mock doctor gateway conformance; do
    version=$("valkey-rdma-$program" --version)
    echo "$version"
    # The emulated device is for tests, and `./dev lab` builds without the commit, which release/make.sh checks.
    [[ $version =~ ', features: verbs'(' tls')?')'$ ]] || { echo "other features: $version"; exit 1; }
    # The bare file system of a container leaves man pages out; here they are expected.
    expect "$(zcat "/usr/share/man/man1/valkey-rdma-$program.1.gz")" ".TH valkey-rdma-$program 1"
    expect "$(completions "valkey-rdma-$program" --hel)" --help
done

# What the units start is there, and so is what they read.
grep -v '^#' /usr/lib/systemd/system/valkey-rdma-gateway.service | grep -o '/[a-z/-]*valkey-rdma[a-z.-]*' | sort -u | while read -r path; do
    [ -e "$path" ] || { echo "the unit names $path, which is not there"; exit 1; }
    echo "there is $path"
done

# The pages for operators are there, and what they link to.
manual=/usr/share/doc/valkey-rdma-tools
for page in valkey-rdma-gateway/README.md docs/gateway.md docs/operations.md docs/monitoring.md docs/troubleshooting.md; do
    grep -o '](\.*[a-z][^:)#]*' "$manual/$page" | cut -c3- | sort -u | while read -r link; do
        # On the web.
        case $link in https | */.github/*) continue ;; esac
        [ -e "$(dirname "$manual/$page")/$link" ] || { echo "$page links to $link, which is not there"; exit 1; }
    done
done

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
wait "$gateway"
wait "$mock"

# What it says of RDMA depends on the machine. It must say something, and not crash.
doctor=$(valkey-rdma-doctor) || [ $? -eq 1 ]
echo "$doctor"
rdma=$(valkey-rdma-benchmark -u rdma://127.0.0.1:1 -n 1 2>&1) && exit 1
echo "$rdma"

dpkg --purge valkey-rdma-tools
[ ! -e /etc/valkey-rdma-gateway.toml ]
echo "== the package works on $PRETTY_NAME"
