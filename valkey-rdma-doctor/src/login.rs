//! The login beside the URL: other users of this machine can see what is in it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use valkey_rdma_client::Endpoint;

/// A user and a password. Neither shows in debug output, because it has none.
pub(crate) struct Login {
    user: Option<String>,
    password: String,
}

impl Login {
    /// The password of `file`, or of the first variable that is set and not empty: ours, then those of valkey-cli. `None`: there is neither.
    pub(crate) fn find(
        user: Option<&str>,
        file: Option<&Path>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let password = match file {
            Some(file) => {
                let read = line_of(file);
                Some(read.map_err(|error| format!("--password-file {}: {error}", file.display()))?)
            }
            None => VARIABLES.into_iter().filter_map(variable).find(|password| !password.is_empty()),
        };
        match (password, user) {
            (Some(password), user) => Ok(Some(Self { user: user.map(str::to_owned), password })),
            (None, Some(_)) => {
                Err(format!("--user needs a password: --password-file, or set {}", VARIABLES[0]))
            }
            (None, None) => Ok(None),
        }
    }

    /// The same server with this login.
    pub(crate) fn apply(self, endpoint: Endpoint) -> Endpoint {
        match self.user {
            Some(user) => endpoint.with_login(user, self.password),
            None => endpoint.with_password(self.password),
        }
    }
}

/// The file without the end of its line.
fn line_of(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    // A path that names something else must not fill the memory.
    File::open(file)?.take(LONGEST).read_to_string(&mut text)?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() || line.contains(['\n', '\r']) {
        return Err(io::Error::other("it must hold one line, the password"));
    }
    Ok(line.to_owned())
}

const VARIABLES: [&str; 3] = ["VALKEY_RDMA_PASSWORD", "VALKEYCLI_AUTH", "REDISCLI_AUTH"];
/// Most bytes of a file that are read.
const LONGEST: u64 = 4096;
