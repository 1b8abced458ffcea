#!/usr/bin/env bash
# Runs a command in a clean Debian root that has nothing of RDMA and nothing but a C compiler to build with: what the
# project's own build may rely on, beside a Rust toolchain.
#
# usage: clean-root.sh SUITE [COMMAND [ARGUMENT...]]     SUITE: bookworm (Debian 12), trixie (Debian 13)
#
# The default command builds client, server and tools with default features, runs `./dev demo`, and expects of `rdma://`
# the error that names the packages to install.
#
# The root is made once, in $VALKEY_RDMA_LAB_DIR/roots (.lab/roots), from the mirror that this machine's apt uses; what the
# command writes outside of cargo's target folder is forgotten. The command sees the project read-only at its path, this
# machine's Rust toolchain, and the crates that `cargo fetch` has downloaded; it has no network.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
top=$(readlink -f "$here/../..")
. "$here/packages.sh"

[ $# -ge 1 ] || die "usage: clean-root.sh SUITE [COMMAND...]"
suite=$1
shift
[ $# -gt 0 ] || set -- tests/lab/clean-root-check.sh

lab=${VALKEY_RDMA_LAB_DIR:-$top/.lab}
mkdir -p "$lab/roots"
lab=$(readlink -f "$lab")
root=$lab/roots/$suite
target=$lab/roots/$suite-target
mkdir -p "$target"

# shellcheck disable=SC2317 # called by way of `quietly`
make_root() {
    local from
    from=$(debian_mirror)
    rm -rf "$root.new"
    as_root debootstrap --variant=minbase --include=gcc,libc6-dev "$suite" "$root.new" "$from"
    as_root rm -rf "$root.new/var/cache/apt" "$root.new/var/lib/apt/lists"
    mv "$root.new" "$root"
}

(
    flock 9
    need_packages debootstrap
    [ -d "$root" ] || quietly "making a clean root of $suite" make_root
) 9>"$root.lock"

# All that the build needs from the network is downloaded here.
quietly "fetching crates" cargo fetch --locked --manifest-path "$top/Cargo.toml"
toolchain=$(rustc --print sysroot)
registry=${CARGO_HOME:-$HOME/.cargo}/registry

# In a separate mount namespace: the mounts go when the command ends. `inside` is what runs there.
# shellcheck disable=SC2016 # expanded by the shell inside
inside='
    set -euo pipefail
    root=$1 target=$2 top=$3 toolchain=$4 registry=$5 scratch=$6
    shift 6
    mount -t tmpfs tmpfs "$scratch"
    mkdir "$scratch"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
    root=$scratch/root
    mkdir -p "$root/$top" "$root/$toolchain" "$root/cargo/registry" "$root/target"
    mount --bind "$top" "$root/$top"
    mount -o remount,bind,ro "$root/$top"
    mount --bind "$toolchain" "$root/$toolchain"
    mount -o remount,bind,ro "$root/$toolchain"
    mount --bind "$registry" "$root/cargo/registry"
    mount --bind "$target" "$root/target"
    mount -t proc proc "$root/proc"
    for device in null zero full random urandom; do
        [ -e "$root/dev/$device" ] || touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    ip link set lo up 2>/dev/null || true
    exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 CARGO_HOME=/cargo CARGO_NET_OFFLINE=true \
        CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=/target PATH="$toolchain/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
        /bin/bash -c "cd \"\$0\" && exec \"\$@\"" "$top" "$@"
'
scratch=$(mktemp -d)
trap 'rmdir "$scratch"' EXIT
status=0
as_root unshare --mount --net --pid --fork --kill-child \
    /bin/bash -c "$inside" clean-root "$root" "$target" "$top" "$toolchain" "$registry" "$scratch" "$@" || status=$?
exit "$status"
