//! Secrets from the command line, hidden in debug output.

use std::fmt;

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

/// A server's URL as typed, which shows neither user nor password nor options in debug output.
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
        // Nothing says that it is a good URL: whatever comes before the last `@` may be secret, and so may the options.
        let (place, options) = self.0.split_once('?').unwrap_or((&self.0, ""));
        let scheme = place.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
        let masked = match place.rsplit_once('@') {
            // The `?` may be part of a password.
            _ if options.contains('@') => format!("{scheme}***"),
            None => place.to_owned(),
            Some((_, host)) => format!("{scheme}***@{host}"),
        };
        fmt::Debug::fmt(&masked, out)
    }
}
