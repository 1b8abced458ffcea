//! [`RouteTls`]: which files hold the certificates of a route's listeners.

use std::env;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use valkey_rdma_program::Certificate;
use valkey_rdma_transport::tls::{ClientAuth, ServerTls, TlsAcceptor, TlsError};

/// The certificates of the encrypted listeners of a route: the table `[route.tls]`. All files are PEM, and are read at the start and at
/// each reload. A relative path is below `$CREDENTIALS_DIRECTORY` if systemd sets that, and otherwise below the working directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteTls {
    /// The certificate that clients see, followed by those that lead from it to its issuer.
    pub cert: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
    /// The issuers of the clients' certificates. Default: none.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// Whether clients need a certificate. Default: required if there are [issuers](Self::client_ca), otherwise no.
    #[serde(default, deserialize_with = "client_auth")]
    pub client_auth: Option<ClientAuth>,
}

fn client_auth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ClientAuth>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|expected| D::Error::custom(format!("\"{text}\" is not {expected}")))
}

impl RouteTls {
    /// Reads the files.
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let below = env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from).unwrap_or_default();
        TlsAcceptor::new(self.settings(&below))
    }

    /// When the certificate of the listeners ends.
    pub(crate) fn end(&self) -> Option<String> {
        let chain = self.acceptor().and_then(|acceptor| acceptor.certificates()).ok()?;
        let certificate = Certificate::read(chain.first()?, SystemTime::now()).ok()?;
        Some(format!("the certificate {} ends {}", self.cert.display(), certificate.ends()))
    }

    /// Why clients refuse the certificates of the listeners, or soon will. The gateway starts with such ones too: their clients decide.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let chain = self.acceptor().and_then(|acceptor| acceptor.certificates()).unwrap_or_default();
        let now = SystemTime::now();
        let doubts = chain.iter().enumerate().flat_map(|(at, der)| match Certificate::read(der, now) {
            Ok(certificate) => doubts(&certificate, at == 0),
            Err(reason) => vec![reason],
        });
        doubts.map(|doubt| format!("{}: {doubt}", self.cert.display())).collect()
    }

    fn settings(&self, below: &Path) -> ServerTls {
        let mut settings = ServerTls::new(below.join(&self.cert), below.join(&self.key));
        if let Some(issuers) = &self.client_ca {
            settings = settings.with_client_ca(below.join(issuers));
        }
        match self.client_auth {
            Some(auth) => settings.with_client_auth(auth),
            None => settings,
        }
    }
}

/// Why clients refuse one of a file. The first is the server's; those behind it lead to its issuer.
fn doubts(certificate: &Certificate<'_>, is_first: bool) -> Vec<String> {
    let of = match is_first {
        true => "the certificate".to_owned(),
        false => format!("the issuer's certificate behind it, {},", certificate.subject()),
    };
    let ends = certificate.ends();
    let mut doubts = Vec::new();
    if certificate.has_ended() {
        doubts.push(format!("{of} has ended, {ends}: clients refuse it; renew it"));
    } else if certificate.ends_soon() {
        doubts.push(format!("{of} ends soon, {ends}: renew it, and send SIGHUP"));
    }
    if let Some(begins) = certificate.begins() {
        doubts.push(format!(
            "{of} is not valid yet, it begins {begins}: compare the clock with that of its issuer"
        ));
    }
    if is_first && certificate.is_of_issuer() {
        doubts.push(format!(
            "{of} is that of an issuer (CA:TRUE): clients refuse it; sign one with CA:FALSE for the gateway"
        ));
    }
    if is_first && !certificate.has_names() {
        doubts.push(format!(
            "{of} has no name (subjectAltName): clients refuse it; make it anew with DNS: and IP: names"
        ));
    }
    doubts
}
