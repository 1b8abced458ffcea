//! Passwords that are not on the command line, where other users of the machine can see them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The variables that may hold the server's password: ours, then those of valkey-cli.
pub const PASSWORD_VARIABLES: [&str; 3] = ["VALKEY_RDMA_PASSWORD", "VALKEYCLI_AUTH", "REDISCLI_AUTH"];

/// The first of [`PASSWORD_VARIABLES`] that is set and not empty. `variable` looks one up.
pub fn password_in_environment(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    PASSWORD_VARIABLES.into_iter().filter_map(variable).find(|password| !password.is_empty())
}

/// Reads a password from a file that holds nothing else, in one line.
///
/// # Errors
/// Those of reading; and if the file is empty, has several lines, or more than 4096 bytes.
pub fn password_in_file(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // A path that names something else must not fill the memory.
    File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let problem = if line.is_empty() {
        "it is empty"
    } else if line.contains(['\n', '\r', '\0']) {
        "it is more than one line: it must hold the password alone"
    } else if text.len() as u64 > LONGEST {
        "it is longer than 4096 bytes: it must hold the password alone"
    } else {
        return Ok(line.to_owned());
    };
    Err(io::Error::other(problem))
}

/// Most bytes of a password file.
const LONGEST: u64 = 4096;
