//! [`TlsError`]: why there is no TLS connection, and what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::error::SystemError;

/// What a file of certificates is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TlsFile {
    /// The issuers that are trusted.
    Ca,
    /// The certificate that this side shows.
    Cert,
    /// Its private key.
    Key,
}

impl fmt::Display for TlsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ca => "file of issuers",
            Self::Cert => "certificate",
            Self::Key => "private key",
        })
    }
}

/// Why there is no TLS connection, or no settings for one. No text contains a key.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The program was built without the cargo feature.
    #[error("this build has no TLS: rebuild with the cargo feature `tls` (`--features tls`)")]
    NotBuilt,
    /// A file cannot be read.
    #[error("cannot read the {what} {}", path.display())]
    Unreadable {
        /// What it is for.
        what: TlsFile,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: SystemError,
    },
    /// A file has other content than PEM of its kind.
    #[error("the {what} {} cannot be used: {reason}", path.display())]
    BadFile {
        /// What it is for.
        what: TlsFile,
        /// Its path.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error("the private key {} does not belong to the certificate {}: give the two that were made together", key.display(), cert.display())]
    KeyMismatch {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// A client's certificate without a key, or the reverse.
    #[error(
        "a certificate and its private key belong together: cert=FILE needs key=FILE, and key=FILE needs cert=FILE"
    )]
    HalfOfAPair,
    /// A server is to verify its clients and has no issuers to do it with.
    #[error(
        "to verify the certificates of clients, the server needs the file of their issuers: client_ca, in programs --tls-client-ca FILE"
    )]
    NoClientCa,
    /// This machine has no root certificates.
    #[error(
        "this machine has no root certificates: install them (Debian, Ubuntu: `apt install ca-certificates`), or give the server's issuer with ca=FILE"
    )]
    NoRoots,
    /// The host cannot stand in a certificate.
    #[error("\"{name}\" cannot be the name in a certificate: give the server's with server_name=NAME")]
    ServerName {
        /// The name.
        name: String,
    },
    /// A cipher suite that there is not.
    #[error("unknown cipher suite \"{name}\": use {known}, with colons between them")]
    UnknownCipher {
        /// As given.
        name: String,
        /// What there is.
        known: String,
    },
    /// The server's certificate is too old.
    #[error("the server's certificate has expired{}: renew it on the server", days_ago(*.days))]
    Expired {
        /// How many days ago, if that is known.
        days: Option<u64>,
    },
    /// The server's certificate is too new.
    #[error("the server's certificate is not valid yet: compare the clocks of the two machines")]
    NotValidYet,
    /// The server's certificate names other servers.
    #[error(
        "the server's certificate is for {presented}, not for {expected}: connect to that name, or give it with server_name=NAME"
    )]
    WrongName {
        /// The name that was verified.
        expected: String,
        /// Those in the certificate, separated by commas.
        presented: String,
    },
    /// No trusted issuer has signed the server's certificate.
    #[error(
        "the server's certificate comes from an issuer that is not trusted here: give that issuer's certificate with ca=FILE"
    )]
    UnknownIssuer,
    /// The peer's certificate has another fault.
    #[error("the peer's certificate was refused: {reason}")]
    BadCertificate {
        /// rustls's words.
        reason: String,
    },
    /// The server wants a certificate of the client.
    #[error("the server requires a certificate of its clients: give one with cert=FILE and key=FILE")]
    CertificateRequired,
    /// The server has refused the client's certificate.
    #[error(
        "the server refused the client's certificate ({alert}): it must come from an issuer that the server trusts, and be valid today"
    )]
    CertificateRefused {
        /// The alert by its name in RFC 8446.
        alert: String,
    },
    /// The peer does not speak TLS.
    #[error(
        "the peer does not speak TLS on this port: connect to its TLS port (Valkey: tls-port), or without TLS"
    )]
    NotTls,
    /// There is no version or cipher suite that both sides have.
    #[error(
        "the peer has no version or cipher suite of TLS that this side has ({reason}): it needs TLS 1.2 or 1.3, with ECDHE and AES-GCM or ChaCha20"
    )]
    NothingInCommon {
        /// rustls's words, or the alert.
        reason: String,
    },
    /// The peer has ended the connection during the TLS handshake.
    #[error(
        "the peer closed the connection during the TLS handshake: is this its TLS port, and does it accept this client's certificate?"
    )]
    Closed,
    /// A connection past its handshake has ended without the `close_notify` that TLS ends with: the peer was killed, or somebody between has
    /// cut it.
    #[error("the connection was cut: the peer did not announce its end")]
    Cut,
    /// The peer has ended the handshake with an alert.
    #[error("the peer ended the TLS handshake: {alert}{}", after(.alert))]
    Alert {
        /// Its name in RFC 8446.
        alert: String,
    },
    /// The handshake failed otherwise.
    #[error("the TLS handshake failed: {reason}")]
    Handshake {
        /// rustls's words.
        reason: String,
    },
    /// The stream below has failed.
    #[error("the connection failed during the TLS handshake")]
    Io(#[source] SystemError),
}

/// What to do about the alert that servers send for several reasons.
fn after(alert: &str) -> &'static str {
    let ask =
        "; it may require a certificate of its clients (cert=FILE and key=FILE), or other cipher suites";
    if alert == "HandshakeFailure" { ask } else { "" }
}

fn days_ago(days: Option<u64>) -> String {
    match days {
        None => String::new(),
        Some(0) => " today".to_owned(),
        Some(1) => " 1 day ago".to_owned(),
        Some(days) => format!(" {days} days ago"),
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        let kind = match &error {
            TlsError::Io(source) => source.kind(),
            TlsError::Closed | TlsError::Cut => io::ErrorKind::UnexpectedEof,
            TlsError::NotBuilt => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
