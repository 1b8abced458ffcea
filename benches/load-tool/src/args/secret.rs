//! Secrets from the command line, hidden in debug output.

use std::fmt;

use valkey_rdma_client::Endpoint;
use valkey_rdma_program::shown;

/// A password, which does not show in debug output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(String);

impl Password {
    /// That of the [variables](valkey_rdma_program::PASSWORD_VARIABLES).
    pub(super) fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Password> {
        valkey_rdma_program::password_in_environment(variable).map(Password)
    }

    /// The password itself. Mind where you print it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Password {
        Password(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// A server's URL as typed, which shows neither passwords nor options in debug output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl(String);

impl ServerUrl {
    /// The URL itself, password included. Mind where you print it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ServerUrl {
    fn from(text: String) -> ServerUrl {
        ServerUrl(text)
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masked = match self.0.parse::<Endpoint>() {
            Ok(endpoint) => endpoint.to_string(),
            Err(_) => shown(&self.0).into_owned(),
        };
        fmt::Debug::fmt(&masked, out)
    }
}
