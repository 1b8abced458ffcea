#!/usr/bin/env bash
# Unpacks the test suite of the newest Valkey that LAB has into LAB/valkey/VERSION/suite, with links to LAB's programs where the suite
# looks for them. Prints the folder.
#
# usage: valkey-tests.sh LAB LINE     LINE is 9.1 or 8.1
set -euo pipefail
. "$(dirname "$0")/packages.sh"
lab=$(readlink -f "$1")
built=$(readlink -f "$lab/valkey/$2")
suite=$built/suite

unpack() {
    local program
    mkdir -p "$work/suite/src"
    tar -xf "$built"/*.orig.tar.* -C "$work"
    mv "$work"/valkey*/{tests,runtest,utils,valkey.conf} "$work/suite/"
    mv "$work"/valkey*/src/commands "$work/suite/src/"
    for program in valkey-server valkey-cli valkey-benchmark; do
        ln -s "$built/$program" "$work/suite/src/$program"
    done
    mv "$work/suite" "$suite"
}

if [ ! -e "$suite" ]; then
    need_packages tcl xz-utils
    work=$(mktemp -d "$lab/valkey-suite.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    quietly "unpacking Valkey's test suite" unpack
fi
echo "$suite"
