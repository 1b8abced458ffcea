//! [`TlsConnector`]: the client's side of a TLS connection.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};

use super::error::{TlsError, TlsFile};
use super::files::PemFile;
use super::options::{ClientTls, Verify};
use super::verify::Lenient;
use super::{ciphers, failure};
use crate::any_stream::{AnyStream, TlsStream};
use crate::sync::{Mutex, lock};

/// Makes TLS connections to servers. Cheap to clone; clones share the sessions that later connections continue.
#[derive(Clone)]
pub struct TlsConnector {
    inner: Arc<Inner>,
}

struct Inner {
    settings: ClientTls,
    /// What the files held when they were last read, and what was made of it.
    last: Mutex<Option<(Files, Arc<ClientConfig>)>>,
}

/// The files of one connection.
#[derive(PartialEq, Eq)]
struct Files {
    ca: Option<PemFile>,
    /// Certificate and key.
    shown: Option<(PemFile, PemFile)>,
}

impl TlsConnector {
    /// With these settings. Reads no file yet.
    #[must_use]
    pub fn new(settings: ClientTls) -> Self {
        Self { inner: Arc::new(Inner { settings, last: Mutex::new(None) }) }
    }

    /// Reads the files, and says what is wrong with them or with the server's name.
    ///
    /// # Errors
    /// Each of [`TlsError`] that names a file or a setting.
    pub fn check(&self) -> Result<(), TlsError> {
        self.inner.settings.server_name.as_deref().map(server_name).transpose()?;
        self.config().map(drop)
    }

    /// Makes a TLS connection over a connected stream, to a server that is called `host` unless the settings have a name. Reads the
    /// files first; that blocks the thread for as long as the file system takes.
    ///
    /// # Errors
    /// [`TlsError`]. Nothing but the handshake was sent.
    ///
    /// # Cancel safety
    /// Dropping the future closes the stream. It has no limit of time of its own.
    pub async fn connect(&self, host: &str, stream: AnyStream) -> Result<AnyStream, TlsError> {
        let config = self.config()?;
        let name = self.inner.settings.server_name.as_deref().unwrap_or(host);
        let name = server_name(name)?;
        if self.inner.settings.verify == Verify::None {
            tracing::warn!(
                server = host,
                "the server's certificate is not verified (verify=none): anybody between may read and change everything"
            );
        }
        let stream = TlsStream::connect(config, name, stream).await.map_err(failure::explained)?;
        Ok(AnyStream::Tls(Box::new(stream)))
    }

    /// The settings with what the files hold now. While that stays the same, so does the result, and its sessions.
    fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let files = self.files()?;
        let mut last = lock(&self.inner.last);
        if let Some((before, config)) = &*last
            && *before == files
        {
            return Ok(config.clone());
        }
        let config = Arc::new(self.made_of(&files)?);
        *last = Some((files, config.clone()));
        Ok(config)
    }

    fn files(&self) -> Result<Files, TlsError> {
        let settings = &self.inner.settings;
        let ca = settings.ca.as_deref().map(|path| PemFile::read(TlsFile::Ca, path)).transpose()?;
        let shown = match (&settings.cert, &settings.key) {
            (Some(cert), Some(key)) => {
                Some((PemFile::read(TlsFile::Cert, cert)?, PemFile::read(TlsFile::Key, key)?))
            }
            (None, None) => None,
            _ => return Err(TlsError::HalfOfAPair),
        };
        Ok(Files { ca, shown })
    }

    fn made_of(&self, files: &Files) -> Result<ClientConfig, TlsError> {
        let settings = &self.inner.settings;
        let cipher_suites = ciphers::chosen(settings.ciphers.as_deref(), settings.ciphersuites.as_deref())?;
        let provider = Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() });
        let roots = match (&files.ca, settings.verify) {
            (Some(ca), _) => Arc::new(issuers(ca)?),
            (None, Verify::None) => Arc::new(RootCertStore::empty()),
            (None, _) => system_roots()?,
        };
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::NothingInCommon { reason: error.to_string() })?;
        let builder = match settings.verify {
            Verify::Full => builder.with_root_certificates(roots),
            lenient => {
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
                let issuers = match lenient {
                    Verify::None => None,
                    _ => Some(
                        verifier
                            .build()
                            .map_err(|error| TlsError::Handshake { reason: error.to_string() })?,
                    ),
                };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Lenient { issuers, provider }))
            }
        };
        match &files.shown {
            None => Ok(builder.with_no_client_auth()),
            Some((cert, key)) => builder
                .with_client_auth_cert(cert.certificates()?, key.key()?)
                .map_err(|error| pair_error(&error, cert, key)),
        }
    }
}

/// The error of a certificate and a key that rustls does not take.
pub(super) fn pair_error(error: &rustls::Error, cert: &PemFile, key: &PemFile) -> TlsError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch { cert: cert.path(), key: key.path() },
        rustls::Error::InvalidCertificate(_) => cert.bad(error.to_string()),
        // Of a key, only that it is of no known kind or length: the text may not quote it.
        _ => key.bad(format!("it is not a key that ring can use: {USABLE_KEYS}")),
    }
}

const USABLE_KEYS: &str = "RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384, or Ed25519";

/// The issuers in a file.
pub(super) fn issuers(file: &PemFile) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in file.certificates()? {
        roots
            .add(certificate)
            .map_err(|error| file.bad(format!("a certificate in it is damaged ({error})")))?;
    }
    Ok(roots)
}

/// The system's root certificates, read once. What cannot be read is left out, as other programs do.
fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    if let Some(roots) = ROOTS.get() {
        return Ok(roots.clone());
    }
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        return Err(TlsError::NoRoots);
    }
    Ok(ROOTS.get_or_init(|| Arc::new(roots)).clone())
}

/// The name that a certificate is compared with. An address has no zone there.
fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let without_zone = host.split('%').next().unwrap_or_default();
    match without_zone.parse::<IpAddr>() {
        Ok(address) => Ok(ServerName::IpAddress(address.into())),
        Err(_) => {
            ServerName::try_from(host.to_owned()).map_err(|_| TlsError::ServerName { name: host.to_owned() })
        }
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsConnector").field(&self.inner.settings).finish()
    }
}
