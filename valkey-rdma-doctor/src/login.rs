//! The login beside the URL: other users of this machine can see what is in it.

use std::path::Path;

use valkey_rdma_client::Endpoint;
use valkey_rdma_program::{PASSWORD_VARIABLES, password_in_environment, password_in_file};

/// A user and a password. Neither shows in debug output, because it has none.
pub(crate) struct Login {
    user: Option<String>,
    password: String,
}

impl Login {
    /// The password of `file`, or that of the [variables](PASSWORD_VARIABLES). `None`: there is neither.
    pub(crate) fn find(
        user: Option<&str>,
        file: Option<&Path>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, String> {
        let password = match file {
            Some(file) => {
                let read = password_in_file(file);
                Some(read.map_err(|error| format!("--password-file {}: {error}", file.display()))?)
            }
            None => password_in_environment(variable),
        };
        match (password, user) {
            (Some(password), user) => Ok(Some(Self { user: user.map(str::to_owned), password })),
            (None, Some(_)) => {
                Err(format!("--user needs a password: --password-file, or set {}", PASSWORD_VARIABLES[0]))
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
