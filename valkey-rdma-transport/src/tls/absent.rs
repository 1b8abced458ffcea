//! What stands in for TLS in a build without it.

use super::{ClientTls, ServerTls, TlsError};
use crate::any_stream::AnyStream;

/// The client's side of TLS. This build has none.
#[derive(Clone, Debug)]
pub struct TlsConnector(());

impl TlsConnector {
    /// With these settings.
    #[must_use]
    pub fn new(_: ClientTls) -> Self {
        Self(())
    }

    /// # Errors
    /// [`TlsError::NotBuilt`].
    pub fn check(&self) -> Result<(), TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// # Errors
    /// [`TlsError::NotBuilt`].
    #[expect(clippy::unused_async, reason = "as in a build with TLS")]
    pub async fn connect(&self, _: &str, _: AnyStream) -> Result<AnyStream, TlsError> {
        Err(TlsError::NotBuilt)
    }
}

/// The server's side of TLS. This build has none, and no value of this type.
#[derive(Clone, Debug)]
pub enum TlsAcceptor {}

impl TlsAcceptor {
    /// # Errors
    /// [`TlsError::NotBuilt`].
    pub fn new(_: ServerTls) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// # Errors
    /// None: there is no value of this type.
    pub fn reload(&self) -> Result<(), TlsError> {
        match *self {}
    }

    /// # Errors
    /// None: there is no value of this type.
    pub fn certificates(&self) -> Result<Vec<Vec<u8>>, TlsError> {
        match *self {}
    }

    /// # Errors
    /// None: there is no value of this type.
    #[expect(clippy::unused_async, reason = "as in a build with TLS")]
    pub async fn accept(&self, _: AnyStream) -> Result<AnyStream, TlsError> {
        match *self {}
    }
}
