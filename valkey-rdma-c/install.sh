#!/bin/sh
# Installs the C library: the shared library and its links, the header, a pkg-config file and the licences.
#
# usage: [DESTDIR=FOLDER] [LIBDIR=lib/x86_64-linux-gnu] install.sh BUILT PREFIX      BUILT: the folder with libvalkey_rdma.so
set -eu
[ $# = 2 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(dirname "$(readlink -f "$0")")
built=$1 prefix=$2 libdir=${LIBDIR:-lib}
root=${DESTDIR:-}$prefix
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml" | head -n 1)

install -d "$root/$libdir/pkgconfig" "$root/include" "$root/share/doc/valkey-rdma-c"
install -m 755 "$built/libvalkey_rdma.so" "$root/$libdir/libvalkey_rdma.so.$version"
ln -sf "libvalkey_rdma.so.$version" "$root/$libdir/libvalkey_rdma.so.0"
ln -sf libvalkey_rdma.so.0 "$root/$libdir/libvalkey_rdma.so"
install -m 644 "$here/include/valkey_rdma.h" "$root/include"
install -m 644 "$here/../LICENSE-MIT" "$here/../LICENSE-APACHE" "$here/README.md" "$root/share/doc/valkey-rdma-c"
cat >"$root/$libdir/pkgconfig/valkey_rdma.pc" <<END
prefix=$prefix
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: valkey_rdma
Description: Connections to Valkey over RDMA as file descriptors
Version: $version
Libs: -L\${libdir} -lvalkey_rdma
Cflags: -I\${includedir}
END
