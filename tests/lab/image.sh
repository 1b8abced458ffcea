#!/usr/bin/env bash
# Builds LAB/initramfs: busybox, the kernel modules the lab needs, and ./init. Rebuilt when one of its sources is newer.
#
# usage: image.sh LAB
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
. "$here/packages.sh"
lab=$1

# The host's file system, the ports that carry output, and soft-RoCE on a dummy interface or a cable.
modules=(virtio_pci virtio_rng virtio_console virtio_net 9p 9pnet_virtio overlay
    dummy rdma_rxe rdma_ucm ib_uverbs rdma_cm crc32_generic)

# Module files in the order they must be loaded, each once.
module_files() {
    local module
    for module in "${modules[@]}"; do
        modprobe --show-depends -d "$lab/kernel" -S "$version" "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
}

build_image() {
    local file files name
    mkdir -p "$work/bin" "$work/modules"
    cp /bin/busybox "$work/bin/busybox"
    cp "$here/init" "$work/init"
    files=$(module_files)
    for file in $files; do
        name=$(basename "${file%.xz}")
        # Newer Debians compress their modules; the init's insmod wants them plain.
        case $file in
            *.xz) xz -dc "$file" >"$work/modules/$name" ;;
            *) cp "$file" "$work/modules/$name" ;;
        esac
        echo "$name" >>"$work/modules/order"
    done
    (cd "$work" && find . | cpio --quiet -o -H newc) >"$lab/initramfs.new"
    mv "$lab/initramfs.new" "$lab/initramfs"
}

up_to_date() {
    local source
    for source in "$here/init" "$here/image.sh" "$lab/kernel/vmlinuz"; do
        [ "$lab/initramfs" -nt "$source" ] || return 1
    done
}

! up_to_date || exit 0
need_packages busybox-static cpio kmod xz-utils
version=$(basename "$lab"/kernel/lib/modules/*)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
quietly "building the lab's initial ramdisk" build_image
