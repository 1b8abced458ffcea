//! [`Identity`]: what connections must have in common to be shared.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use valkey_rdma_resp::Protocol;

use crate::upstream::open_error::OpenError;

/// User, database and protocol version of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// `None`: the login of the server's URL.
    pub(crate) login: Option<Arc<Login>>,
    pub(crate) database: u32,
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

/// A user, or the login of the server's URL, and a password. It has no `Debug`, so that no hash is shown.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LoginKey {
    user: Option<Vec<u8>>,
    /// A hash with a salt of this process. Clients share a connection only if they have given the same password. A wrong or an old
    /// password must not reach a connection that logged in with the right one.
    password: u64,
}

impl LoginKey {
    fn of(login: Option<&Login>) -> Self {
        static SALT: OnceLock<RandomState> = OnceLock::new();
        let password = login.map(|login| &login.password[..]);
        Self {
            user: login.map(|login| login.user.clone()),
            password: SALT.get_or_init(RandomState::new).hash_one(password),
        }
    }
}

/// Connections with equal keys are interchangeable. A user that has logged in never shares with clients that have not, even if the
/// name is the same.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Serves clients. Scripts have a connection of their own, so that other commands do not wait behind them.
    Shared { scripts: bool, login: LoginKey, database: u32, protocol: Protocol },
    /// Not logged in: checks logins.
    Checker,
}

impl Identity {
    /// Whether an attempt to connect shows that the client's password has changed since it logged in. A server would have closed its
    /// connection: the client is closed too, and logs in anew on the next one.
    pub(crate) fn is_outdated(&self, error: &OpenError) -> bool {
        error.is_wrong_password() && self.login.is_some()
    }

    pub(crate) fn key(&self) -> Key {
        self.key_for(false)
    }

    /// The key of the connection for scripts, or for all else.
    pub(crate) fn key_for(&self, scripts: bool) -> Key {
        Key::Shared {
            scripts,
            login: LoginKey::of(self.login.as_deref()),
            database: self.database,
            protocol: self.protocol,
        }
    }
}

impl Key {
    /// Whether its connections have the login of the server's URL.
    pub(crate) fn has_default_login(&self) -> bool {
        matches!(self, Self::Shared { login: LoginKey { user: None, .. }, .. })
    }

    /// The database; 0 of a connection that does not log in.
    pub(crate) fn database(&self) -> u32 {
        match self {
            Self::Shared { database, .. } => *database,
            Self::Checker => 0,
        }
    }

    /// What its connections log in with: the key without their database and use.
    pub(crate) fn of_login(&self) -> Self {
        match self.clone() {
            Self::Shared { login, protocol, .. } => {
                Self::Shared { scripts: false, login, database: 0, protocol }
            }
            Self::Checker => Self::Checker,
        }
    }

    pub(crate) fn has_login_of(&self, key: &Self) -> bool {
        match (self, key) {
            (Self::Shared { login: one, .. }, Self::Shared { login: other, .. }) => one == other,
            _ => false,
        }
    }

    pub(crate) fn is_for_scripts(&self) -> bool {
        matches!(self, Self::Shared { scripts: true, .. })
    }
}

/// For logs and INFO: `user=app db=0 resp3`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared { scripts, login, database, protocol, .. } => {
                let user = login.user.as_ref().map_or("-".to_owned(), |user| user.escape_ascii().to_string());
                let scripts = if *scripts { " scripts" } else { "" };
                write!(f, "user={user} db={database} {protocol}{scripts}")
            }
            Self::Checker => f.write_str("checks logins"),
        }
    }
}
