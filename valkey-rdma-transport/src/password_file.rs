//! [`password_in_file`]: a password from a file that holds nothing else.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a password from a file that holds nothing else, in one line. The end of the line is not part of it. Permissions are not checked.
///
/// Shape: 1 to 4096 bytes of UTF-8. No error has a part of them.
///
/// # Errors
/// Those of reading; and if the file is empty, is not UTF-8, has several lines, or is too long.
pub fn password_in_file(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    // A path that names something else must not fill the memory.
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    let alone = "it must hold the password alone";
    if bytes.len() as u64 > LONGEST {
        return Err(io::Error::other(format!("it is longer than {LONGEST} bytes: {alone}")));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other(format!("it is not UTF-8: {alone}")))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err(io::Error::other("it is empty"));
    }
    if line.contains(['\n', '\r', '\0']) {
        return Err(io::Error::other(format!("it is more than one line: {alone}")));
    }
    Ok(line.to_owned())
}

/// Most bytes of a password file.
const LONGEST: u64 = 4096;
