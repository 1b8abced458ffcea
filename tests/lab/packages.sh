# Installing what is missing, quietly. Sourced by ./dev and by the lab's scripts.
# shellcheck shell=bash

die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# quietly WHAT COMMAND...: one line while it works; the whole log only if it fails.
quietly() {
    local what=$1 log status
    shift
    log=$(mktemp)
    echo "$what ..." >&2
    # Not `if ! COMMAND`: that would switch `set -e` off inside the command.
    set +e
    (set -e; "$@") >"$log" 2>&1 </dev/null
    status=$?
    set -e
    [ "$status" -eq 0 ] || cat "$log" >&2
    rm -f "$log"
    [ "$status" -eq 0 ] || die "failed: $what (the log is above)"
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# one_at_a_time COMMAND...: scripts run side by side, and apt gives up if another apt reads the lists.
# The lock file is appended to: others may have put a link in its place.
one_at_a_time() {
    (flock 8 && "$@") 8>>"${TMPDIR:-/tmp}/valkey-rdma-apt-$(id -u).lock"
}

refresh_lists() {
    one_at_a_time as_root apt-get -q update
}

apt_install() {
    refresh_lists
    one_at_a_time as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
        install --no-install-recommends "$@"
}

# The Debian mirror that this machine's apt uses.
debian_mirror() {
    local mirror
    # shellcheck disable=SC2016 # apt fills these in
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" && $2 !~ /security/ { print $2; exit }')
    [ -n "$mirror" ] || die "this machine's apt has no Debian mirror"
    echo "$mirror"
}

# need_packages PACKAGE...: installs the Debian packages that are not there yet.
# VALKEY_RDMA_NO_INSTALL=1 is for systems without dpkg: the caller vouches that their contents are there.
need_packages() {
    local package missing=()
    [ -z "${VALKEY_RDMA_NO_INSTALL:-}" ] || return 0
    for package; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0

    command -v apt-get >/dev/null ||
        die "no apt-get here: install the equivalent of: ${missing[*]}; then set VALKEY_RDMA_NO_INSTALL=1"
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
        die "neither root nor sudo: as root, run: apt-get install ${missing[*]}"
    quietly "installing ${missing[*]}" apt_install "${missing[@]}"
}
