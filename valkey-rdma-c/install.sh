#!/bin/sh
# Installs the C library: the shared library and its links, the header, a pkg-config file and the licences.
#
# usage: [DESTDIR=FOLDER] [LIBDIR=lib/x86_64-linux-gnu] install.sh BUILT PREFIX      BUILT: the folder with libvalkey_rdma.so
#
# PREFIX is an absolute path. LIBDIR is one too, or relative to PREFIX.
set -eu
# Every user reads what is installed.
umask 022
[ $# = 2 ] || { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }
here=$(dirname "$(readlink -f "$0")")
built=$1 prefix=$2 libdir=${LIBDIR:-lib} destdir=${DESTDIR:-}
case $prefix in
    /*) ;;
    *) echo "install.sh: PREFIX must be an absolute path, such as /usr, and is $prefix" >&2; exit 2 ;;
esac
# As the .pc file has it, and where it is.
case $libdir in
    /*) in_pc=$libdir lib=$destdir$libdir ;;
    *) in_pc="\${prefix}/$libdir" lib=$destdir$prefix/$libdir ;;
esac
root=$destdir$prefix
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml" | head -n 1)

install -d "$lib/pkgconfig" "$root/include" "$root/share/doc/valkey-rdma-c"
install -m 755 "$built/libvalkey_rdma.so" "$lib/libvalkey_rdma.so.$version"
ln -sf "libvalkey_rdma.so.$version" "$lib/libvalkey_rdma.so.0"
ln -sf libvalkey_rdma.so.0 "$lib/libvalkey_rdma.so"
install -m 644 "$here/include/valkey_rdma.h" "$root/include"
install -m 644 "$here/../LICENSE-MIT" "$here/../LICENSE-APACHE" "$here/README.md" "$root/share/doc/valkey-rdma-c"
cat >"$lib/pkgconfig/valkey_rdma.pc" <<END
prefix=$prefix
libdir=$in_pc
includedir=\${prefix}/include

Name: valkey_rdma
Description: Connections to Valkey over RDMA as file descriptors
Version: $version
Libs: -L\${libdir} -lvalkey_rdma
Cflags: -I\${includedir}
END
