//! [`Login`]: a user and a password that no text of the client shows.

use std::fmt;

use super::EndpointError;

/// User and password, or neither. Without a user, the password is the default user's.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl Login {
    /// An empty name stands for the default user. It has no empty password: both empty mean no login.
    pub(super) fn new(user: String, password: String) -> Self {
        let user = Some(user).filter(|user| !user.is_empty());
        let password = Some(password).filter(|password| user.is_some() || !password.is_empty());
        Self { user, password }
    }

    /// As [`new`](Self::new) has it, from two options of a URL, of which one may be missing.
    pub(super) fn settled(self) -> Result<Self, EndpointError> {
        match (self.user, self.password) {
            (Some(_), None) => Err(EndpointError::UserWithoutPassword),
            (user, password) => Ok(Self::new(user.unwrap_or_default(), password.unwrap_or_default())),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}
