#!/usr/bin/env bash
# Unpacks the test suite of the newest Valkey that LAB has into LAB/valkey/VERSION/suite, from Debian's source package, with links to
# LAB's programs where the suite looks for them. Prints the folder.
#
# usage: valkey-tests.sh LAB LINE     LINE is 9.1 or 8.1
set -euo pipefail
. "$(dirname "$0")/packages.sh"
lab=$(readlink -f "$1")
built=$(readlink -f "$lab/valkey/$2")
suite=$built/suite

# As valkey.sh: a separate configuration, so that the machine's sources and lists do not change.
private_apt() {
    local tool=$1
    shift
    "$tool" -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root "$@"
}

unpack() {
    local release uri version program
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    # shellcheck disable=SC2016 # apt expands these itself
    uri=$(apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' "Created-By: Packages" |
        awk -v release="$release" '$1 == release && $2 == "main" { print $3; exit }')
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    printf "deb-src $uri %s main\n" sid testing trixie >"$work/sources.list"
    private_apt apt-get update
    version=$(private_apt apt-cache showsrc --only-source valkey |
        awk -v line="$(basename "$built")" '$1 == "Version:" && index($2, line) == 1 { print $2; exit }')
    [ -n "$version" ] || { echo "Debian has no source of Valkey $(basename "$built") any more"; return 1; }
    cd "$work"
    private_apt apt-get source --download-only "valkey=$version"
    dpkg-source --no-check -x ./*.dsc tree
    mkdir -p "$work/suite/src"
    cp -r tree/tests tree/runtest tree/utils tree/valkey.conf "$work/suite/"
    cp -r tree/src/commands "$work/suite/src/"
    for program in valkey-server valkey-cli valkey-benchmark; do
        ln -s "$built/$program" "$work/suite/src/$program"
    done
    mv "$work/suite" "$suite"
}

if [ ! -e "$suite" ]; then
    need_packages dpkg-dev tcl
    work=$(mktemp -d "$lab/valkey-suite.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    quietly "unpacking Valkey's test suite" unpack
fi
echo "$suite"
