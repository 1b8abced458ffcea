//! [`Identity`]: what connections must have in common to be shared.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use valkey_rdma_resp::Protocol;

use crate::open_error::OpenError;

/// User, database and protocol version of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// `None`: the login of the server's URL.
    pub(crate) login: Option<Arc<Login>>,
    /// Of clients without a login: see [`Admission`](crate::admission::Admission).
    pub(crate) generation: u64,
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

/// A user, or the login of the server's URL, and a password.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LoginKey {
    user: Option<Vec<u8>>,
    password: PasswordHash,
    /// 0 with a user.
    generation: u64,
}

impl LoginKey {
    fn of(login: Option<&Login>, generation: u64) -> Self {
        Self {
            user: login.map(|login| login.user.clone()),
            password: PasswordHash::of(login.map(|login| &login.password[..])),
            generation: if login.is_none() { generation } else { 0 },
        }
    }
}

/// Connections with equal keys are interchangeable. A user that has logged in never shares with clients that have not, even if the
/// name is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Serves clients. Scripts have a connection of their own, so that other commands do not wait behind them.
    Shared {
        scripts: bool,
        login: LoginKey,
        /// The login that selects the database, if it is another one.
        selected_as: Option<LoginKey>,
        database: u32,
        protocol: Protocol,
    },
    /// Not logged in: checks logins.
    Checker,
}

impl Identity {
    /// Whether another login must select the database, before the one that is used.
    pub(crate) fn selects_first(&self) -> bool {
        self.database != 0 && self.selected_as != self.login
    }

    /// Whether an attempt to connect shows that the client's password has changed since it logged in. A server would have closed its
    /// connection: the client is closed too, and logs in anew on the next one.
    pub(crate) fn is_outdated(&self, error: &OpenError) -> bool {
        // A database may be selected with an earlier login, which says nothing of this one.
        error.is_wrong_password() && self.login.is_some() && !self.selects_first()
    }

    pub(crate) fn key(&self) -> Key {
        self.key_for(false)
    }

    /// The key of the connection for scripts, or for all else.
    pub(crate) fn key_for(&self, scripts: bool) -> Key {
        let selected_as = self.selects_first().then_some(self.selected_as.as_deref());
        Key::Shared {
            scripts,
            login: LoginKey::of(self.login.as_deref(), self.generation),
            selected_as: selected_as.map(|login| LoginKey::of(login, self.generation)),
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

    /// Whether its clients are of this generation of those that have not logged in.
    pub(crate) fn is_without_login(&self, of: u64) -> bool {
        matches!(self, Self::Shared { login: LoginKey { user: None, generation, .. }, .. } if *generation == of)
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
                write!(f, "user={user} db={database} {protocol}{scripts}")?;
                match login.generation {
                    0 => Ok(()),
                    generation => write!(f, " generation={generation}"),
                }
            }
            Self::Checker => f.write_str("checks logins"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_selected_the_database_counts_if_it_is_another_login() {
        let login = |user: &str| Some(Arc::new(Login { user: user.into(), password: b"pw".to_vec() }));
        let key = |database: u32, selected_as: Option<Arc<Login>>| {
            let (login, generation, protocol) = (login("bob"), 0, Protocol::Resp2);
            Identity { login, generation, database, selected_as, protocol }.key()
        };
        assert_ne!(key(9, login("alice")), key(9, login("bob")), "bob may not be allowed to select it");
        assert_ne!(key(9, None), key(9, login("alice")));
        assert_eq!(key(9, login("bob")), key(9, login("bob")));
        assert_eq!(key(0, login("alice")), key(0, None), "no login selects it");
    }
}
