//! [`Connector::credentials`]: what a connection logs in with, which may be another password for the next one.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::time::timeout_at;
use valkey_rdma_transport::password_in_file;

use super::connect::{ConnectDeadline, ConnectStep, Connector};
use crate::config::Credentials;
use crate::error::{ConnectCause, PasswordError};

impl Connector {
    /// Reads what a connection logs in with: from the program's provider, or else from the endpoint or the file that it names.
    pub(super) async fn credentials(
        &self,
        deadline: &ConnectDeadline,
    ) -> Result<Option<Credentials>, ConnectCause> {
        let supplied = match (&self.config.credentials, self.endpoint.password_file()) {
            (Some(provider), _) => match timeout_at(deadline.at, provider.supply()).await {
                Ok(supplied) => supplied.map_err(|error| PasswordError::Provider(error.into())),
                Err(_) => Err(PasswordError::SlowProvider { limit: deadline.limit() }),
            },
            (None, Some(file)) => read_password_file(file).map(|password| self.of_user(&password)),
            (None, None) => Ok(self.of_user(self.endpoint.password().unwrap_or_default())),
        };
        let supplied = supplied.map_err(|error| ConnectCause::Password(Arc::new(error)));
        if let Err(cause) = &supplied {
            // Without it there is no connection, so this is the only step.
            self.begin(ConnectStep::LogIn, None, deadline).ended(Err(cause));
        }
        Ok(Some(supplied?).filter(|credentials| !credentials.is_empty()))
    }

    /// Other credentials, after the server has refused these. `None`: there are none.
    pub(super) async fn other_credentials(
        &self,
        refused: Option<&Credentials>,
        deadline: &ConnectDeadline,
    ) -> Option<Credentials> {
        if self.config.credentials.is_none() && self.endpoint.password_file().is_none() {
            return None;
        }
        // An error now says less than the server's refusal.
        self.credentials(deadline).await.ok()?.filter(|credentials| Some(credentials) != refused)
    }

    fn of_user(&self, password: &str) -> Credentials {
        Credentials::new(self.endpoint.user().unwrap_or_default(), password)
    }
}

/// The password in a regular file. For our Python package.
#[doc(hidden)]
pub fn read_password_file(file: &Path) -> Result<String, PasswordError> {
    // A pipe could keep the caller for ever, and is empty when it is read again.
    let is_file = fs::metadata(file).map(|found| found.is_file());
    let read = is_file.and_then(|is_file| match is_file {
        true => password_in_file(file),
        false => Err(io::Error::other("it is not a regular file")),
    });
    read.map_err(|reason| PasswordError::File { path: file.into(), reason: Arc::new(reason) })
}
