//! Finds the commit that this is built from, for `--version`.

#![allow(clippy::print_stdout, reason = "lines on standard output are how a build script reports to cargo")]

use std::env;
use std::fs;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-env-changed=VALKEY_RDMA_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let folder = Path::new(&folder);
    let named = env::var("VALKEY_RDMA_COMMIT").ok().filter(|commit| !commit.is_empty());
    if let Some(commit) = named.or_else(|| packaged(folder)).or_else(|| checked_out(folder)) {
        println!("cargo::rustc-env=VALKEY_RDMA_COMMIT_FOUND={commit}");
    }
}

/// What `cargo package` has noted in the package.
fn packaged(folder: &Path) -> Option<String> {
    let note = fs::read_to_string(folder.join(".cargo_vcs_info.json")).ok()?;
    let (_, after) = note.split_once("\"sha1\"")?;
    let commit = after.split('"').nth(1)?;
    let dirty = if note.contains("\"dirty\": true") { "-dirty" } else { "" };
    Some(format!("{}{dirty}", commit.get(..12)?))
}

/// Where cargo checks out git dependencies (`cargo install --git`), the folder is named after the commit:
/// `.../git/checkouts/NAME-HASH/COMMIT/`. A working tree has no such name, and what is built there need not be any commit.
fn checked_out(folder: &Path) -> Option<String> {
    let mut names = folder.iter().skip_while(|name| *name != "checkouts");
    let commit = names.nth(2)?.to_str()?;
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| commit.to_owned())
}
