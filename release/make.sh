#!/usr/bin/env bash
# Makes what a release offers for download, in one folder. What it makes, and why so, is in release/README.md.
#
# usage: release/make.sh [FOLDER]      FOLDER: target/artifacts if none is given; what it holds is replaced
#
# Run it on the oldest Debian that is supported (12): programs need the glibc of the machine that they were built on, or a
# later one. The script checks that.
set -euo pipefail
# Every user reads what is installed.
umask 022
top=$(dirname "$(readlink -f "$0")")/..
top=$(readlink -f "$top")
. "$top/tests/lab/packages.sh"
cd "$top"

# The oldest glibc that programs may need: Debian 12's.
oldest_glibc=2.36
programs=(valkey-rdma-benchmark valkey-rdma-mock valkey-rdma-doctor valkey-rdma-gateway valkey-rdma-conformance)

out=${1:-target/artifacts}
mkdir -p "$out"
out=$(readlink -f "$out")
target=${CARGO_TARGET_DIR:-$top/target}/release-artifacts
arch=$(uname -m)

# A changed working tree is not what its commit says; `--version` and the file names then end in "dirty".
VALKEY_RDMA_COMMIT=$(git describe --always --dirty --abbrev=12 --exclude '*')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
version=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"name":"valkey-rdma-gateway","version":"\([^"]*\)".*/\1/p')
# A build of anything else sorts before the release in Debian.
[[ $(git tag --points-at HEAD "v$version") && $VALKEY_RDMA_COMMIT != *-dirty ]] || version=$version~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d).${VALKEY_RDMA_COMMIT//-/.}
export VALKEY_RDMA_COMMIT SOURCE_DATE_EPOCH

# Programs and libraries do not name folders of this machine.
export RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src= --remap-path-prefix=$top="

build() {
    cargo build --quiet --locked --release --target-dir "$target" "$@"
}

# The gateway alone: built together with the other programs, it would get the emulated device, which they need.
build_programs() {
    local program
    build -p valkey-rdma-gateway --bin valkey-rdma-gateway
    build -p valkey-rdma-benchmark -p valkey-rdma-mock -p valkey-rdma-doctor -p valkey-rdma-conformance --bins
    for program in "${programs[@]}"; do
        check_glibc "$target/release/$program"
        [[ $("$target/release/$program" --version) = *"(commit $VALKEY_RDMA_COMMIT, "* ]] ||
            die "$program does not say that it is built from $VALKEY_RDMA_COMMIT"
    done
}

check_glibc() {
    local needed
    needed=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
    needed=${needed#GLIBC_}
    [ "$(printf '%s\n' "$needed" "$oldest_glibc" | sort -V | tail -1)" = "$oldest_glibc" ] ||
        die "${1##*/} needs glibc $needed, later than $oldest_glibc: run this on Debian 12"
}

# The C library, as it is under /usr/local.
c_library() {
    build -p valkey-rdma-c
    check_glibc "$target/release/libvalkey_rdma.so"
    DESTDIR=$1 valkey-rdma-c/install.sh "$target/release" /usr/local
    release/third-party.py valkey-rdma-c >"$1/usr/local/share/doc/valkey-rdma-c/THIRD-PARTY.txt"
}

# archive NAME FOLDER. Targets of links stay as they are (`S`): each link of the unpacked archive leads to a file.
archive() {
    local unpacked dangling
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --use-compress-program='gzip -n9' \
        -cf "$out/$1.tar.gz" -C "$2" --transform "s,^\.,$1,S" .
    unpacked=$(mktemp -d)
    tar -xzf "$out/$1.tar.gz" -C "$unpacked"
    dangling=$(find "$unpacked" -xtype l)
    rm -rf "$unpacked"
    [ -z "$dangling" ] || die "links of $1 that lead nowhere: $dangling"
}

# For users: without the emulated device, with which `./dev python` tests it. Its licences are `license-files` of
# pyproject.toml.
wheel() {
    local env=${CARGO_TARGET_DIR:-$top/target}/python crate=valkey-rdma-python text
    [ -x "$env/bin/pip" ] || python3 -m venv "$env"
    "$env/bin/pip" install --quiet 'maturin>=1.16,<2'
    release/third-party.py $crate >$crate/LICENSE-THIRD-PARTY.txt
    PATH=$env/bin:$PATH CARGO_TARGET_DIR=$target maturin build --quiet --release --locked --strip \
        --manifest-path $crate/Cargo.toml --interpreter "$env/bin/python" --out "$out"
    for text in LICENSE-MIT LICENSE-APACHE $crate/LICENSE-THIRD-PARTY.txt; do
        unzip -p "$out"/*.whl "*.dist-info/licenses/${text##*/}" | cmp - "$text"
    done
}

# What each program and library is made of: one CycloneDX document each. The tool writes beside the manifests, and its names end with
# the kinds of Cargo's target.
bills_of_materials() {
    local name file
    command -v cargo-cyclonedx >/dev/null || cargo install --quiet --locked --debug cargo-cyclonedx
    cargo cyclonedx --quiet --format json --describe binaries --manifest-path valkey-rdma-gateway/Cargo.toml
    mkdir -p "$out/sbom"
    for name in "${programs[@]/%/_bin}" valkey_rdma_cdylib-rlib valkey_rdma_python_cdylib; do
        file=$(bills "$name.cdx.json" -print)
        [ -n "$file" ] || die "cargo-cyclonedx has written no $name.cdx.json"
        mv "$file" "$out/sbom/${name%_*}.cdx.json"
    done
    bills '*.cdx.json' -exec rm '{}' +
}

# bills NAME ACTION...: finds those beside the manifests.
bills() {
    find "$top" '(' -path "$top/target" -o -path "$out" ')' -prune -o -name "$1" "${@:2}"
}

need_packages gcc libc6-dev binutils python3-venv dpkg-dev unzip
rm -rf "${out:?}"/*
quietly "building the programs" build_programs
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
release/stage.sh "$stage" "$target/release" "${programs[@]}"
archive "valkey-rdma-tools-$version-$arch-linux-gnu" "$stage"
c=$(mktemp -d)
trap 'rm -rf "$stage" "$c"' EXIT
quietly "building the C library" c_library "$c"
archive "valkey-rdma-c-$version-$arch-linux-gnu" "$c/usr/local"
quietly "making the Debian package" release/debian/package.sh "$stage" "$version" "$out"
cp release/Containerfile "$out"
quietly "building the Python wheel" wheel
quietly "writing bills of materials" bills_of_materials
sums=$(cd "$out" && find . -type f -printf '%P\0' | sort -z | xargs -0 sha256sum)
tee "$out/SHA256SUMS" <<<"$sums"
