//! [`Login`]: a user and a password that no text of the client shows.

use std::fmt;
use std::path::PathBuf;

use super::EndpointError;

/// A user with a password, or with a file that has it; or neither. Without a user, the password is the default user's.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) password_file: Option<PathBuf>,
}

impl Login {
    /// An empty name stands for the default user. It has no empty password: both empty mean no login.
    pub(super) fn new(user: String, password: String) -> Self {
        let user = Some(user).filter(|user| !user.is_empty());
        let password = Some(password).filter(|password| user.is_some() || !password.is_empty());
        Self { user, password, password_file: None }
    }

    /// The password is in this file. An empty name stands for the default user.
    pub(super) fn with_file(user: String, file: PathBuf) -> Self {
        Self { user: Some(user).filter(|user| !user.is_empty()), password: None, password_file: Some(file) }
    }

    /// As the constructors have it, from the parts of a URL, of which some may be missing.
    pub(super) fn settled(self) -> Result<Self, EndpointError> {
        match (self.user, self.password, self.password_file) {
            (_, Some(_), Some(_)) => Err(EndpointError::PasswordTwice),
            (Some(_), None, None) => Err(EndpointError::UserWithoutPassword),
            (user, None, Some(file)) => Ok(Self::with_file(user.unwrap_or_default(), file)),
            (user, password, None) => Ok(Self::new(user.unwrap_or_default(), password.unwrap_or_default())),
        }
    }

    /// Takes the path of a URL's option.
    pub(super) fn read_file(&mut self, path: &str) -> Result<(), &'static str> {
        self.password_file = Some(path).filter(|path| !path.is_empty()).map(PathBuf::from);
        if self.password_file.is_some() { Ok(()) } else { Err("the path of a file that holds the password") }
    }

    /// True if connections log in.
    pub(super) fn is_some(&self) -> bool {
        self.password.is_some() || self.password_file.is_some()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Login");
        shown.field("user", &self.user).field("password_file", &self.password_file).finish_non_exhaustive()
    }
}
