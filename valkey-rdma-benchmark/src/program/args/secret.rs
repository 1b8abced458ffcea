//! Secrets from the command line, hidden in debug output.

use std::fmt;

use valkey_rdma_client::Endpoint;
use valkey_rdma_program::shown;

/// A password, which does not show in debug output.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(String);

impl Password {
    /// That of the [variables](valkey_rdma_program::PASSWORD_VARIABLES).
    pub(super) fn from_environment() -> Option<Password> {
        valkey_rdma_program::password_in_environment().map(Password)
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

    /// What is before `://`.
    pub(super) fn scheme(&self) -> &str {
        self.0.split("://").next().unwrap_or_default()
    }

    /// Whether it has this option.
    pub(super) fn says(&self, option: &str) -> bool {
        let query = self.0.split_once('?').map_or("", |(_, query)| query);
        query.split('&').any(|said| said.split('=').next() == Some(option))
    }

    /// Whether it names a database: by its path, or at a Unix socket by an option.
    pub(super) fn names_database(&self) -> bool {
        let place = self.0.split(['?', '#']).next().unwrap_or_default();
        let (scheme, place) = place.split_once("://").unwrap_or(("", place));
        if scheme.ends_with("unix") {
            return self.says("db");
        }
        place.split_once('/').is_some_and(|(_, database)| !database.is_empty())
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
