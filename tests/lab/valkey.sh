#!/usr/bin/env bash
# Builds real Valkeys with RDMA and TLS from the upstream archives in Debian's source packages (its binary packages lack RDMA) into
# LAB/valkey/VERSION, beside the archive, and links LAB/valkey/9.1 and LAB/valkey/8.1 to the newest of each line. To look for newer
# ones, delete LAB/valkey. Servers that were built with other options are built again.
#
# usage: valkey.sh LAB
set -euo pipefail
. "$(dirname "$0")/packages.sh"
mkdir -p "$1"
lab=$(readlink -f "$1")

lines=(9.1 8.1)
suites=(sid testing trixie)
products=(valkey-server valkey-cli valkey-benchmark valkey-rdma.so)
options=(BUILD_RDMA=module BUILD_TLS=yes MALLOC=libc)

# apt with a separate configuration: the machine's sources and lists do not change.
private_apt() {
    local tool=$1
    shift
    "$tool" -q -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root "$@"
}

# The repository this machine already uses for its own release.
repository() {
    local release
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    # shellcheck disable=SC2016 # apt expands these itself
    apt-get indextargets --format '$(CODENAME) $(COMPONENT) $(REPO_URI)' "Created-By: Packages" |
        awk -v release="$release" '$1 == release && $2 == "main" { print $3; exit }'
}

read_lists() {
    local uri suite
    refresh_lists
    uri=$(repository)
    [ -n "$uri" ] || { echo "apt has no Debian repository with a 'main' component configured"; return 1; }
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    for suite in "${suites[@]}"; do
        echo "deb-src $uri $suite main"
    done >"$work/sources.list"
    private_apt apt-get update
}

# newest LINE: the highest package version of a line such as 9.1.
newest() {
    private_apt apt-cache showsrc --only-source valkey |
        awk -v line="$1." '$1 == "Version:" && index($2, line) == 1 { print $2 }' | sort -uV | tail -n 1
}

# build PACKAGE_VERSION DIRECTORY
build() {
    local source=$work/source-$1 product
    mkdir -p "$source"
    cd "$source"
    # Only the upstream archive: a mirror that just got a newer revision has it still, but no longer the patches of this one.
    private_apt apt-get source --download-only --tar-only "valkey=$1"
    mkdir tree
    tar -xf ./*.orig.tar.* -C tree --strip-components=1
    make -C "$source/tree" -j"$(nproc)" "${options[@]}"
    mkdir -p "$work/built"
    for product in "${products[@]}"; do
        cp "$source/tree/src/$product" "$work/built/"
    done
    # Valkey's own tests and the descriptions of its commands are in it.
    cp ./*.orig.tar.* "$work/built/"
    # Valkey's own RDMA client, for the conformance suite; a lab without it runs the suite without it.
    if [ -f "$source/tree/tests/rdma/Makefile" ]; then
        make -C "$source/tree/tests/rdma"
        cp "$source/tree/tests/rdma/rdma-test" "$work/built/"
    fi
    echo "${options[*]}" >"$work/built/options"
    rm -rf "$2"
    mv "$work/built" "$2"
}

# up_to_date FOLDER: it has the products, built with these options.
up_to_date() {
    [ "$(cat "$1/options" 2>/dev/null)" = "${options[*]}" ]
}

complete() {
    local line
    for line in "${lines[@]}"; do
        up_to_date "$lab/valkey/$line" || return 1
    done
}

! complete || exit 0
need_packages gcc libc6-dev make pkg-config xz-utils libibverbs-dev librdmacm-dev libssl-dev
work=$(mktemp -d "$lab/valkey-build.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$lab/valkey"

quietly "looking for Valkey's sources" read_lists
for line in "${lines[@]}"; do
    version=$(newest "$line")
    [ -n "$version" ] || die "no Valkey $line.x among the sources of: ${suites[*]}"
    # 9.1.2+dfsg-1 is Valkey 9.1.2.
    upstream=$(expr "$version" : '\([0-9.]*\)')
    up_to_date "$lab/valkey/$upstream" || quietly "building Valkey $upstream" build "$version" "$lab/valkey/$upstream"
    ln -sfn "$upstream" "$lab/valkey/$line"
done
