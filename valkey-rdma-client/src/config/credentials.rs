//! [`Credentials`], and the program's function that supplies them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A user and a password, as a program [supplies](crate::Config::credentials) them. Debug output does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    password: String,
}

impl Credentials {
    /// An empty name stands for the default user. It has no empty password: both empty mean no login.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }

    /// The user, if not the default user.
    pub(crate) fn user(&self) -> Option<&str> {
        Some(self.user.as_str()).filter(|user| !user.is_empty())
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    /// True if there is nothing to log in with.
    pub(crate) fn is_empty(&self) -> bool {
        self.user.is_empty() && self.password.is_empty()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The program's function that supplies credentials.
#[derive(Clone)]
pub(crate) struct CredentialsProvider(Arc<dyn Fn() -> Supplying + Send + Sync>);

type Supplying = Pin<Box<dyn Future<Output = Result<Credentials, ProviderError>> + Send>>;
type ProviderError = Box<dyn std::error::Error + Send + Sync>;

impl CredentialsProvider {
    pub(crate) fn new<F, E>(provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<ProviderError>,
    {
        Self(Arc::new(move || {
            let supplying = provider();
            Box::pin(async move { supplying.await.map_err(Into::into) })
        }))
    }

    /// Calls it.
    pub(crate) fn supply(&self) -> Supplying {
        (self.0)()
    }
}

impl fmt::Debug for CredentialsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsProvider").finish_non_exhaustive()
    }
}
