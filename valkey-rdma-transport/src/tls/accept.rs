//! [`TlsAcceptor`]: the server's side of a TLS connection.

use std::fmt;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;

use super::connect::{issuers, pair_error};
use super::error::{TlsError, TlsFile};
use super::failure;
use super::files::PemFile;
use super::options::{ClientAuth, ServerTls};
use crate::any_stream::{AnyStream, TlsStream};
use crate::sync::{RwLock, read, write};

/// Makes TLS connections with clients. Cheap to clone; [`reload`](Self::reload) affects all clones.
#[derive(Clone)]
pub struct TlsAcceptor {
    inner: Arc<Inner>,
}

struct Inner {
    settings: ServerTls,
    config: RwLock<Arc<ServerConfig>>,
}

impl TlsAcceptor {
    /// Reads the files.
    ///
    /// # Errors
    /// Each of [`TlsError`] that names a file or a setting.
    pub fn new(settings: ServerTls) -> Result<Self, TlsError> {
        let config = RwLock::new(Arc::new(config(&settings)?));
        Ok(Self { inner: Arc::new(Inner { settings, config }) })
    }

    /// Reads the files again, for the connections that follow; those that exist go on.
    ///
    /// # Errors
    /// As [`new`](Self::new): then the certificates of before stay in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(config(&self.inner.settings)?);
        *write(&self.inner.config) = config;
        Ok(())
    }

    /// Reads what clients will see: the server's certificate in DER, and those that lead from it to its issuer.
    ///
    /// # Errors
    /// [`TlsError::Unreadable`] and [`TlsError::BadFile`].
    pub fn certificates(&self) -> Result<Vec<Vec<u8>>, TlsError> {
        let file = PemFile::read(TlsFile::Cert, &self.inner.settings.cert)?;
        Ok(file.certificates()?.iter().map(|certificate| certificate.to_vec()).collect())
    }

    /// Makes a TLS connection over an accepted stream.
    ///
    /// # Errors
    /// [`TlsError`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream. It has no limit of time of its own.
    pub async fn accept(&self, stream: AnyStream) -> Result<AnyStream, TlsError> {
        let config = read(&self.inner.config).clone();
        let stream = TlsStream::accept(config, stream).await.map_err(failure::explained_to_server)?;
        Ok(AnyStream::Tls(Box::new(stream)))
    }
}

fn config(settings: &ServerTls) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::NothingInCommon { reason: error.to_string() })?;
    let builder = match (settings.client_auth(), &settings.client_ca) {
        (ClientAuth::No, _) => builder.with_no_client_auth(),
        (_, None) => return Err(TlsError::NoClientCa),
        (auth, Some(path)) => {
            let file = PemFile::read(TlsFile::Ca, path)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(issuers(&file)?), provider);
            let verifier =
                if auth == ClientAuth::Optional { verifier.allow_unauthenticated() } else { verifier };
            let verifier = verifier.build().map_err(|error| file.bad(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let cert = PemFile::read(TlsFile::Cert, &settings.cert)?;
    let key = PemFile::read(TlsFile::Key, &settings.key)?;
    builder
        .with_single_cert(cert.certificates()?, key.key()?)
        .map_err(|error| pair_error(&error, &cert, &key))
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsAcceptor").field(&self.inner.settings).finish()
    }
}
