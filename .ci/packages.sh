#!/usr/bin/env bash
# What users of the registry get: each crate that may be published, from its package and nothing else of this project.
#
# Each has its licences inside, and the registry would accept it. It compiles with its default features, and with nothing that
# another crate asks for. What is left out of the packages is in `exclude` of the crates' manifests, with the reason.
#
# With --all, all tests that are in the packages compile too, and the documentation builds as on docs.rs. Of these tests, only those run
# that look at their package, or start its programs: a file that is missing there, or a program that is built without a repository,
# differs from what `./dev test` has tested. The others are the same code with the same features.
#
# usage: .ci/packages.sh [--all]      shares the target folder with other builds
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
# The same folder each time: cargo takes what it built in another for its own, with the path of that one inside.
dir=$target/packages
rm -rf "$dir"
mkdir -p "$dir"
status=0

# shellcheck disable=SC2016
mapfile -t crates < <(
    grep -L '^publish = false' ./*/Cargo.toml ./*/*/Cargo.toml |
        xargs awk '/^\[/ { section = $0 } section == "[package]" && /^name = / { gsub(/"/, "", $3); print $3 }'
)

# cargo, in the workspace of all packages.
packaged() {
    cargo "$1" --quiet --manifest-path "$dir/Cargo.toml" --target-dir "$target" "${@:2}"
}

unpack() {
    local crate
    for crate in "$target"/package/*.crate; do
        # With the time of now: all files in packages have one time, by which cargo would take changed ones for those it has built.
        tar -xmf "$crate" -C "$dir"
        crate=$dir/$(basename "$crate" .crate)
        if ! cmp LICENSE-MIT "$crate/LICENSE-MIT" || ! cmp LICENSE-APACHE "$crate/LICENSE-APACHE" || ! [ -s "$crate/README.md" ]; then
            echo "FAILED $(basename "$crate"): its licences are not the project's, or it has no README"
            status=1
        fi
    done
    cp Cargo.lock "$dir"
    {
        printf '[workspace]\nresolver = "3"\nmembers = ["*"]\n[patch.crates-io]\n'
        for crate in "${crates[@]}"; do
            printf '%s.path = "%s"\n' "$crate" "$(basename "$dir/$crate"-[0-9]*)"
        done
        # As in the workspace: its tests compute for minutes otherwise.
        sed -n '/^\[profile.dev.package.valkey-rdma-proto\]/,/^$/p' Cargo.toml
    } >"$dir/Cargo.toml"
}

# Lines "CRATE FEATURE,FEATURE": what docs.rs adds to the default features.
features_on_docs_rs() {
    cargo metadata --no-deps --format-version 1 --manifest-path "$dir/Cargo.toml" | python3 -c '
import json, sys
for crate in json.load(sys.stdin)["packages"]:
    settings = ((crate["metadata"] or {}).get("docs") or {}).get("rs") or {}
    print(crate["name"], ",".join(settings.get("features", [])))'
}

# As docs.rs does it, but for its nightly compiler, and nothing there may warn.
document() {
    local crate features
    while read -r crate features; do
        RUSTDOCFLAGS="--cfg docsrs -D warnings" packaged doc --no-deps --package "$crate" --features "$features" || status=1
    done <<<"$1"
}

# The names of the tests that look at files of their package, or start its programs, as options for cargo.
tests_of_packages() {
    local file name
    for file in "$dir"/*/tests/*.rs "$dir"/*/tests/*/main.rs; do
        [ -e "$file" ] || continue
        name=$(basename "$file" .rs)
        if [ "$name" = main ]; then
            file=$(dirname "$file")
            name=$(basename "$file")
        fi
        ! grep -rqE 'CARGO_MANIFEST_DIR|CARGO_BIN_EXE|current_exe' "$file" || echo "--test=$name"
    done | sort -u
}

# All in one build, with the features that docs.rs shows: tests need the emulated device.
run_tests() {
    local features tests
    mapfile -t tests < <(tests_of_packages)
    [ ${#tests[@]} -gt 0 ] || return
    features=$(awk '{ count = split($2, names, ","); for (i = 1; i <= count; i++) print $1 "/" names[i] }' <<<"$1" | paste -sd,)
    # Tests start them. `cargo test` builds them only if no test is named.
    packaged build --workspace --examples --features "$features" || return
    packaged test --workspace --no-run --message-format=json-render-diagnostics --features "$features" "${tests[@]}" \
        >"$dir/tests" || return
    .ci/run-tests.py <"$dir/tests"
}

rm -f "$target"/package/*.crate
cargo publish --quiet --dry-run --no-verify "${crates[@]/#/--package=}"
cargo package --quiet --no-verify "${crates[@]/#/--package=}"
unpack
for crate in "${crates[@]}"; do
    packaged check --package "$crate" || status=1
done
[ "${1:-}" = --all ] || exit $status
for crate in "${crates[@]}"; do
    packaged check --tests --package "$crate" || status=1
done
features=$(features_on_docs_rs)
document "$features"
run_tests "$features" || status=1
exit $status
