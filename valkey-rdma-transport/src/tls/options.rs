//! [`ClientTls`] and [`ServerTls`]: which files hold certificates, and how strictly the peer's is verified.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How a client verifies the certificate of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verify {
    /// It must come from a known issuer, be valid today and name the server. The default.
    #[default]
    Full,
    /// It must come from a known issuer and be valid today; it may name another server.
    Ca,
    /// It is not verified, so anybody between the two sides can read and change everything. Each connect logs a warning.
    None,
}

impl FromStr for Verify {
    type Err = &'static str;

    /// `full`, `ca` or `none`. The error says so.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "full" => Ok(Self::Full),
            "ca" => Ok(Self::Ca),
            "none" => Ok(Self::None),
            _ => Err("full, ca or none"),
        }
    }
}

impl fmt::Display for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Ca => "ca",
            Self::None => "none",
        })
    }
}

/// The settings of a client's side. The default verifies the server with the system's root certificates and shows none.
///
/// All files are PEM. They are read for each connection, so a certificate that is replaced is used by the next one. The system's root
/// certificates are read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
    pub(crate) verify: Verify,
    pub(crate) ciphers: Option<String>,
    pub(crate) ciphersuites: Option<String>,
}

impl ClientTls {
    /// Trusts the issuers in this file, and not those of the system. Default: those of the system.
    #[must_use]
    pub fn with_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca = Some(file.into());
        self
    }

    /// Shows this certificate, with those that lead from it to its issuer, if the server asks for one. It needs a
    /// [key](Self::with_key). Default: none.
    #[must_use]
    pub fn with_cert(mut self, file: impl Into<PathBuf>) -> Self {
        self.cert = Some(file.into());
        self
    }

    /// The private key of the [certificate](Self::with_cert): PKCS #8, PKCS #1 or SEC 1, not encrypted.
    #[must_use]
    pub fn with_key(mut self, file: impl Into<PathBuf>) -> Self {
        self.key = Some(file.into());
        self
    }

    /// The name that the server's certificate must have, and that is sent to the server (SNI). Default: the host that the client
    /// connects to.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// How strictly the server's certificate is verified. Default [`Verify::Full`].
    #[must_use]
    pub fn with_verify(mut self, verify: Verify) -> Self {
        self.verify = verify;
        self
    }

    /// The cipher suites that TLS 1.2 may use, by OpenSSL's names with colons between them. Default: all six of rustls.
    #[must_use]
    pub fn with_ciphers(mut self, names: impl Into<String>) -> Self {
        self.ciphers = Some(names.into());
        self
    }

    /// The cipher suites that TLS 1.3 may use, with colons between their names. Default: all three of rustls.
    #[must_use]
    pub fn with_ciphersuites(mut self, names: impl Into<String>) -> Self {
        self.ciphersuites = Some(names.into());
        self
    }

    /// The file of issuers, if one was given.
    #[must_use]
    pub fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// The file of the client's certificate, if one was given.
    #[must_use]
    pub fn cert(&self) -> Option<&Path> {
        self.cert.as_deref()
    }

    /// The file of the client's key, if one was given.
    #[must_use]
    pub fn key(&self) -> Option<&Path> {
        self.key.as_deref()
    }

    /// The name to verify, if it is another than the host.
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// How strictly the server's certificate is verified.
    #[must_use]
    pub fn verify(&self) -> Verify {
        self.verify
    }

    /// The cipher suites for TLS 1.2, if they were given.
    #[must_use]
    pub fn ciphers(&self) -> Option<&str> {
        self.ciphers.as_deref()
    }

    /// The cipher suites for TLS 1.3, if they were given.
    #[must_use]
    pub fn ciphersuites(&self) -> Option<&str> {
        self.ciphersuites.as_deref()
    }
}

/// Whether a server asks its clients for certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientAuth {
    /// It does not.
    No,
    /// It asks, and a client may have none. One that is shown must be valid.
    Optional,
    /// It ends connections without a valid one.
    Required,
}

impl FromStr for ClientAuth {
    type Err = &'static str;

    /// `no`, `optional` or `required`. The error says so.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "no" => Ok(Self::No),
            "optional" => Ok(Self::Optional),
            "required" => Ok(Self::Required),
            _ => Err("no, optional or required"),
        }
    }
}

impl fmt::Display for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "no",
            Self::Optional => "optional",
            Self::Required => "required",
        })
    }
}

/// The settings of a server's side. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client_auth: Option<ClientAuth>,
}

impl ServerTls {
    /// A server that shows the certificate in `cert`, followed there by those that lead from it to its issuer. `key` is its private
    /// key: PKCS #8, PKCS #1 or SEC 1, not encrypted.
    #[must_use]
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { cert: cert.into(), key: key.into(), client_ca: None, client_auth: None }
    }

    /// Verifies the certificates of clients with the issuers in this file. Without [`with_client_auth`](Self::with_client_auth),
    /// clients then need one.
    #[must_use]
    pub fn with_client_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(file.into());
        self
    }

    /// Whether clients are asked for certificates. Default: [`Required`](ClientAuth::Required) with a
    /// [file of issuers](Self::with_client_ca), and [`No`](ClientAuth::No) without. The other two need that file.
    #[must_use]
    pub fn with_client_auth(mut self, auth: ClientAuth) -> Self {
        self.client_auth = Some(auth);
        self
    }

    /// Whether clients are asked for certificates.
    #[must_use]
    pub fn client_auth(&self) -> ClientAuth {
        match (self.client_auth, &self.client_ca) {
            (Some(auth), _) => auth,
            (None, Some(_)) => ClientAuth::Required,
            (None, None) => ClientAuth::No,
        }
    }
}
