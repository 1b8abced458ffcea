//! [`Login`]: user and password, for a server that asks for them.

use std::borrow::Cow;
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

/// The URL without user and password, for messages and reports. It need not be a valid URL: all before the last `@` may be
/// secret, and so may be options if one of them is a password, as that of Sentinels is.
pub fn without_login(url: &str) -> Cow<'_, str> {
    let (place, options) = url.split_once('?').unwrap_or((url, ""));
    let url = if options.contains("password") { place } else { url };
    let Some((login, rest)) = url.rsplit_once('@') else { return url.into() };
    match login.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://{rest}").into(),
        None => rest.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_login_is_left_in_a_url() {
        for (url, expected) in [
            ("rdma://host:1?device=a", "rdma://host:1?device=a"),
            ("rdma://:secret@host:1", "rdma://host:1"),
            ("rdma://user:s@cret@host", "rdma://host"),
            ("user:secret@host", "host"),
            ("rdma://user:secret@", "rdma://"),
            ("rdma://user:s?cret@host", "rdma://host"),
            ("rdma+sentinel://user:secret@host/m?sentinel_password=s@cret", "rdma+sentinel://host/m"),
        ] {
            assert_eq!(without_login(url), expected);
        }
    }

    #[test]
    fn debug_output_has_no_password() {
        let login = Login::new(Some("user".to_owned()), "secret".to_owned());
        assert_eq!(format!("{login:?}"), r#"Login { user: Some("user"), .. }"#);
    }
}
