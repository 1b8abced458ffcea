//! [`PasswordError`]: why there is no password to log in with.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Why the client has no password to log in with. Its text never has what a file holds.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordError {
    /// The file cannot be read, or holds something else than a password.
    #[error("password_file {path:?}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Arc<io::Error>,
    },
    /// The program's [provider](crate::Config::credentials) has failed.
    #[error("the program's provider of credentials failed: {0}")]
    Provider(Arc<dyn std::error::Error + Send + Sync>),
    /// The program's provider took too long.
    #[error(
        "the program's provider of credentials took longer than {limit:?}; it should keep what it has fetched, or raise the timeout"
    )]
    SlowProvider {
        /// The endpoint's timeout.
        limit: Duration,
    },
}
