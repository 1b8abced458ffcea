#!/usr/bin/env bash
# Unpacks Debian's current kernel into LAB/kernel: `vmlinuz` and `lib/modules/VERSION`. It is never installed on this machine.
#
# usage: kernel.sh LAB
set -euo pipefail
. "$(dirname "$0")/packages.sh"
lab=$1

fetch_kernel() {
    local package version
    refresh_lists
    # The metapackage names the real one, such as linux-image-6.1.0-40-amd64.
    package=$(one_at_a_time apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2; exit }')
    [ -n "$package" ] || { echo "apt knows no kernel below linux-image-amd64"; return 1; }
    cd "$work"
    # As root, apt would drop to a user who may not write here.
    one_at_a_time apt-get -q -o APT::Sandbox::User=root download "$package"
    dpkg -x ./*.deb root
    # Since Debian 13, the package has its modules in /usr/lib.
    [ -e root/lib ] || ln -s usr/lib root/lib
    version=$(basename root/lib/modules/*)
    depmod -b root "$version"
    mv "root/boot/vmlinuz-$version" root/vmlinuz
}

[ ! -e "$lab/kernel/vmlinuz" ] || exit 0
need_packages kmod
work=$(mktemp -d "$lab/kernel.XXXXXX")
trap 'rm -rf "$work"' EXIT
quietly "fetching Debian's kernel" fetch_kernel
rm -rf "$lab/kernel"
mv "$work/root" "$lab/kernel"
