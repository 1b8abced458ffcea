//! Programs of this workspace, built from the present sources.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Returns the path of program `name` of `package`, after building it if a source has changed since it was built.
///
/// The sources are those that cargo lists beside the program, of all crates in this workspace, and `Cargo.lock`. A test
/// can therefore never run a program older than the sources. Each program is checked once per test process.
///
/// # Panics
/// If it does not build.
pub fn program(package: &str, name: &str) -> PathBuf {
    static KNOWN: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = known.get(name) {
        return path.clone();
    }
    let profile = profile_dir();
    let present = profile.join(name);
    let path = if is_current(&present) { present } else { build(&profile, package, name) };
    known.insert(name.to_owned(), path.clone());
    path
}

/// The folder of the running test's profile: `target/debug` for `target/debug/deps/TEST`.
fn profile_dir() -> PathBuf {
    let test = env::current_exe().expect("a test binary has a path");
    let folder = test.parent().expect("a file is in a folder");
    let folder = if folder.ends_with("deps") { folder.parent() } else { Some(folder) };
    folder.expect("target/PROFILE").to_owned()
}

/// Whether the program exists and is newer than each of its sources.
fn is_current(program: &Path) -> bool {
    let Some(built) = modified(program) else { return false };
    let Ok(list) = fs::read_to_string(program.with_extension("d")) else { return false };
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let sources = sources(&list);
    let newer = |source: &Path| modified(source).is_none_or(|changed| changed > built);
    !sources.is_empty() && !newer(&lock) && !sources.iter().any(|source| newer(source))
}

/// The paths in a list of cargo's: `PROGRAM: SOURCE SOURCE...`, in which a space is escaped with a backslash.
fn sources(list: &str) -> Vec<PathBuf> {
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
    let escaped = sources.replace("\\ ", "\0");
    escaped.split_whitespace().map(|path| PathBuf::from(path.replace('\0', " "))).collect()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// Builds the program in the profile of the running test. Cargo reports where it is.
fn build(profile: &Path, package: &str, name: &str) -> PathBuf {
    let profile = match profile.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(other) => other,
    };
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--message-format=json-render-diagnostics", "--profile", profile]);
    cargo.args(["--package", package, "--bin", name]);
    cargo.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")]);
    let output = cargo.output().expect("cargo runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} of {package} does not build:\n{stderr}");
    let messages = String::from_utf8_lossy(&output.stdout);
    executable(&messages, name).unwrap_or_else(|| panic!("cargo did not report where {name} is"))
}

/// The executable of the binary target `name` in cargo's messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    messages
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Folder;

    #[test]
    fn a_list_of_sources_is_split_at_spaces_that_are_not_escaped() {
        let list = "/t/debug/mock: /w/a.rs /w/with\\ space/b.rs /w/c.rs\n";
        assert_eq!(sources(list), ["/w/a.rs", "/w/with space/b.rs", "/w/c.rs"].map(PathBuf::from));
    }

    #[test]
    fn a_program_older_than_a_source_is_not_current() {
        let folder = Folder::new("programs");
        let (source, program) = (folder.path().join("main.rs"), folder.path().join("program"));
        assert!(!is_current(&program), "it does not exist");
        fs::write(&source, "").expect("a source");
        fs::write(folder.path().join("program.d"), format!("{}: {}\n", program.display(), source.display()))
            .expect("a list");
        fs::write(&program, "").expect("a program");
        assert!(is_current(&program));
        let later = SystemTime::now() + std::time::Duration::from_secs(60);
        fs::File::options().write(true).open(&source).expect("opens").set_modified(later).expect("touched");
        assert!(!is_current(&program), "its source is newer");
        fs::remove_file(&source).expect("removed");
        assert!(!is_current(&program), "its source is gone");
    }

    #[test]
    fn the_executable_is_found_among_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"mock"},"executable":null}"#,
            "\nnot json\n",
            r#"{"reason":"compiler-artifact","target":{"name":"mock"},"executable":"/t/debug/mock"}"#,
        );
        assert_eq!(executable(messages, "mock"), Some("/t/debug/mock".into()));
        assert_eq!(executable(messages, "other"), None);
    }
}
