#!/usr/bin/env bash
# Makes the Debian package valkey-rdma-tools of what release/make.sh has staged.
#
# usage: package.sh STAGED VERSION FOLDER      STAGED: a folder with bin, share and lib, as under /usr
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
staged=$1 version=$2 out=$3
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -d "$root/usr" "$root/etc" "$root/DEBIAN"
cp -r "$staged"/* "$root/usr"
share=$root/usr/share
mv "$share/doc/valkey-rdma-tools/valkey-rdma-gateway.toml" "$root/etc"
# Debian's zsh looks there.
install -d "$share/zsh/vendor-completions"
mv "$share"/zsh/site-functions/* "$share/zsh/vendor-completions"
rmdir "$share/zsh/site-functions"
gzip -n9 "$share"/man/man1/*.1 "$share/doc/valkey-rdma-tools/CHANGELOG.md"
mv "$share/doc/valkey-rdma-tools/CHANGELOG.md.gz" "$share/doc/valkey-rdma-tools/changelog.gz"
rm "$share"/doc/valkey-rdma-tools/LICENSE-*
{
    cat "$here/copyright"
    sed -e 's/^$/./' -e 's/^/ /' "$here/../../LICENSE-MIT"
    printf '\nLicense: Apache-2.0\n On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n'
} >"$share/doc/valkey-rdma-tools/copyright"

glibc=$(objdump -T "$root"/usr/bin/* | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
cat >"$root/DEBIAN/control" <<END
Package: valkey-rdma-tools
Version: $version
Architecture: $arch
Maintainer: The valkey-rdma project <valkey-rdma@localhost>
Section: net
Priority: optional
Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1
Recommends: libibverbs1, librdmacm1, ibverbs-providers
Suggests: rdma-core, bash-completion
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Description: Valkey over RDMA: gateway, load tool, diagnosis, conformance suite and mock
 valkey-rdma-gateway lets any Valkey client of this machine reach a server over RDMA.
 valkey-rdma-benchmark measures a server over RDMA or TCP and checks every reply.
 valkey-rdma-doctor says whether RDMA works here, and what to do if it does not.
 valkey-rdma-conformance tests any server or client of Valkey over RDMA.
 valkey-rdma-mock is a small Valkey for tests, with faults on request.
 .
 The RDMA libraries are loaded when an rdma:// address is used. Without them, all else works.
END
echo /etc/valkey-rdma-gateway.toml >"$root/DEBIAN/conffiles"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$root/DEBIAN"
(cd "$root" && find usr etc -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
dpkg-deb --root-owner-group -Zxz --build "$root" "$out/valkey-rdma-tools_${version}_$arch.deb"
