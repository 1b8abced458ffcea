//! [`Identity`]: what connections must have in common to be shared.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use valkey_rdma_resp::Protocol;

/// User, database and protocol version of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// `None`: the login of the server's URL.
    pub(crate) login: Option<Arc<Login>>,
    pub(crate) database: u32,
    /// The login with which the database was selected, for users that may use it and may not run SELECT.
    pub(crate) selected_as: Option<Arc<Login>>,
    pub(crate) protocol: Protocol,
}

/// A login that the server has accepted. It lives as long as the clients and connections that use it, because a private or a
/// reconnected connection has to log in again.
#[derive(PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Vec<u8>,
    pub(crate) password: Vec<u8>,
}

/// Without the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user.escape_ascii().to_string()).finish_non_exhaustive()
    }
}

/// A hash with a salt of this process. Clients share a connection only if they have given the same password. A wrong or an old
/// password must not reach a connection that logged in with the right one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PasswordHash(u64);

impl PasswordHash {
    fn of(password: Option<&[u8]>) -> Self {
        static SALT: OnceLock<RandomState> = OnceLock::new();
        Self(SALT.get_or_init(RandomState::new).hash_one(password))
    }
}

/// Without the hash.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

/// Connections with equal keys are interchangeable. A user that has logged in never shares with clients that have not, even if the
/// name is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Serves clients. Scripts have a connection of their own, so that other commands do not wait behind them.
    Shared { scripts: bool, user: Option<Vec<u8>>, password: PasswordHash, database: u32, protocol: Protocol },
    /// Not logged in: checks logins.
    Checker,
}

impl Identity {
    pub(crate) fn key(&self) -> Key {
        self.key_for(false)
    }

    /// The key of the connection for scripts, or for all else.
    pub(crate) fn key_for(&self, scripts: bool) -> Key {
        Key::Shared {
            scripts,
            user: self.login.as_ref().map(|login| login.user.clone()),
            password: PasswordHash::of(self.login.as_ref().map(|login| &login.password[..])),
            database: self.database,
            protocol: self.protocol,
        }
    }
}

impl Key {
    pub(crate) fn is_for_scripts(&self) -> bool {
        matches!(self, Self::Shared { scripts: true, .. })
    }
}

/// For logs and INFO: `user=app db=0 resp3`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared { scripts, user, database, protocol, .. } => {
                let user = user.as_ref().map_or("-".to_owned(), |user| user.escape_ascii().to_string());
                let scripts = if *scripts { " scripts" } else { "" };
                write!(f, "user={user} db={database} {protocol}{scripts}")
            }
            Self::Checker => f.write_str("checks logins"),
        }
    }
}
