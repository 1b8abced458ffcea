//! [`Login`]: user and password beside a server's URL, which other users of the machine can see.

use std::fmt;
use std::path::PathBuf;

use valkey_rdma_transport::password_in_file;

/// User and password. Debug output does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user; empty for the default user.
    pub user: String,
    /// The password. Mind where you print it.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The flags for a login beside a URL.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LoginArgs {
    /// User whose password the file or variable has. Default: the default user
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// File with the password, in one line
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

impl LoginArgs {
    /// The login with the password of the file, or else with that of the [variables](PASSWORD_VARIABLES). `None`: there is neither.
    ///
    /// # Errors
    /// A text for people: the file has no password, or there is a user without a password.
    pub fn login(&self) -> Result<Option<Login>, String> {
        let password = match &self.password_file {
            Some(file) => {
                let read = password_in_file(file);
                Some(read.map_err(|error| format!("--password-file {}: {error}", file.display()))?)
            }
            None => password_in_environment(),
        };
        match password {
            Some(password) => Ok(Some(Login { user: self.user.clone().unwrap_or_default(), password })),
            None if self.user.is_some() => {
                Err(format!("--user needs a password: --password-file, or set {}", PASSWORD_VARIABLES[0]))
            }
            None => Ok(None),
        }
    }
}

/// The variables that may hold the server's password: ours, then those of valkey-cli.
pub const PASSWORD_VARIABLES: [&str; 3] = ["VALKEY_RDMA_PASSWORD", "VALKEYCLI_AUTH", "REDISCLI_AUTH"];

/// The password in the first of [`PASSWORD_VARIABLES`] that is set and not empty.
#[must_use]
pub fn password_in_environment() -> Option<String> {
    let mut set = PASSWORD_VARIABLES.into_iter().filter_map(|name| std::env::var(name).ok());
    set.find(|password| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_no_password() {
        let login = Login { user: "user".to_owned(), password: "secret".to_owned() };
        assert_eq!(format!("{login:?}"), r#"Login { user: "user", .. }"#);
    }
}
