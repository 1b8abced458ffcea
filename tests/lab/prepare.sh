#!/usr/bin/env bash
# Everything the lab is made of, into LAB: the virtual machine and the real Valkeys. What is there already is kept.
#
# usage: prepare.sh LAB
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/packages.sh"
lab=$1

[ "$(uname -m)" = x86_64 ] ||
    die "the lab's virtual machine is x86-64 and runs this machine's programs, and this machine is $(uname -m)"

# Two runs at once must not build the same thing twice.
exec 9>"$lab/lock"
flock 9

need_packages qemu-system-x86 iproute2 ibverbs-providers ibverbs-utils librdmacm1
"$here/kernel.sh" "$lab"
"$here/image.sh" "$lab"
"$here/valkey.sh" "$lab"
