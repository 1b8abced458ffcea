//! [`Login`]: user and password, for a server that asks for them.

use std::fmt;

use crate::peer::request;

/// User and password for a server. Debug output and transcripts do not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    user: Option<String>,
    password: String,
}

impl Login {
    /// The password of `user`. `None`: the default user's.
    pub fn new(user: Option<String>, password: String) -> Self {
        Self { user, password }
    }

    /// The command AUTH as bytes.
    pub(super) fn command(&self) -> Vec<u8> {
        match &self.user {
            Some(user) => request(&[b"AUTH", user.as_bytes(), self.password.as_bytes()]),
            None => request(&[b"AUTH", self.password.as_bytes()]),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_has_no_password() {
        let login = Login::new(Some("user".to_owned()), "secret".to_owned());
        assert_eq!(format!("{login:?}"), r#"Login { user: Some("user"), .. }"#);
    }
}
