//! valkey-benchmark's flags for TLS.

use std::path::PathBuf;

use valkey_rdma_client::Endpoint;
use valkey_rdma_program::error_chain;
use valkey_rdma_transport::tls::{TlsConnector, Verify};

use super::{Instead, ServerUrl};

/// Heading in the help of these flags.
pub(super) const HEADING: &str = "TLS";

/// How connections to the server are encrypted. A URL of the server can say the same with its scheme and its options.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub(crate) struct TlsArgs {
    /// Encrypt all connections, and verify the server; a URL says it with its scheme: valkeys://, rdmas://
    #[arg(help_heading = HEADING, long)]
    tls: bool,

    /// Name that the server's certificate must have, and that is sent to the server [default: its host]
    #[arg(help_heading = HEADING, long, value_name = "HOST")]
    sni: Option<String>,

    /// Issuers that are trusted (PEM) [default: the system's]
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Do not verify the server's certificate: anybody between can then read and change everything
    #[arg(help_heading = HEADING, long)]
    insecure: bool,

    /// Certificate to show to the server (PEM)
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// Private key of that certificate (PEM)
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Cipher suites for TLS 1.2, with colons between OpenSSL's names [default: all six that there are]
    #[arg(help_heading = HEADING, long, value_name = "LIST")]
    tls_ciphers: Option<String>,

    /// Cipher suites for TLS 1.3, with colons between the names [default: all three that there are]
    #[arg(help_heading = HEADING, long, value_name = "LIST")]
    tls_ciphersuites: Option<String>,
}

impl TlsArgs {
    /// The server as these flags say. `url` is what the user gave, if that is a URL: what contradicts it is refused.
    pub(super) fn apply(&self, endpoint: Endpoint, url: Option<&ServerUrl>) -> Result<Endpoint, Instead> {
        let refuse = |reason: String| Err(Instead::Refuse(reason));
        // Each flag that was given, with the option of a URL that means the same.
        let mut given = [
            ("--tls", None, self.tls),
            ("--sni", Some("server_name"), self.sni.is_some()),
            ("--cacert", Some("ca"), self.cacert.is_some()),
            ("--insecure", Some("verify"), self.insecure),
            ("--cert", Some("cert"), self.cert.is_some()),
            ("--key", Some("key"), self.key.is_some()),
            ("--tls-ciphers", Some("ciphers"), self.tls_ciphers.is_some()),
            ("--tls-ciphersuites", Some("ciphersuites"), self.tls_ciphersuites.is_some()),
        ]
        .into_iter()
        .filter(|(.., is_given)| *is_given);
        match (given.clone().next(), url, endpoint.tls()) {
            (Some((flag, ..)), Some(url), None) => {
                let scheme = url.scheme();
                return refuse(format!(
                    "{flag} is for TLS, and the URL's {scheme}:// has none: write {scheme}s://, or leave {flag} out"
                ));
            }
            (Some((flag, ..)), None, _) if !self.tls => {
                return refuse(format!("{flag} is for TLS: give --tls too, or leave {flag} out"));
            }
            (None, _, None) => return Ok(endpoint),
            _ => {}
        }
        let said = |option: Option<&'static str>| option.filter(|name| url.is_some_and(|url| url.says(name)));
        if let Some((flag, option)) = given.find_map(|(flag, option, _)| Some((flag, said(option)?))) {
            return refuse(format!("{flag} contradicts the URL's {option}"));
        }
        let mut tls = endpoint.tls().cloned().unwrap_or_default();
        if let Some(name) = &self.sni {
            tls = tls.with_server_name(name);
        }
        if let Some(file) = &self.cacert {
            tls = tls.with_ca(file);
        }
        if self.insecure {
            tls = tls.with_verify(Verify::None);
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.key) {
            tls = tls.with_cert(cert).with_key(key);
        }
        if let Some(names) = &self.tls_ciphers {
            tls = tls.with_ciphers(names);
        }
        if let Some(names) = &self.tls_ciphersuites {
            tls = tls.with_ciphersuites(names);
        }
        Ok(endpoint.with_tls(tls))
    }
}

/// The options of a URL for TLS.
pub(super) const OPTIONS: [&str; 7] =
    ["ca", "cert", "key", "server_name", "verify", "ciphers", "ciphersuites"];

/// The second server of a comparison with the settings of the first: with TLS, at the same host, where its own URL says nothing.
pub(super) fn as_first(endpoint: Endpoint, url: &ServerUrl, first: &Endpoint) -> Endpoint {
    let says_nothing = !OPTIONS.iter().any(|option| url.says(option));
    match (endpoint.tls(), first.tls()) {
        (Some(_), Some(tls)) if says_nothing && endpoint.host() == first.host() => {
            let tls = tls.clone();
            endpoint.with_tls(tls)
        }
        _ => endpoint,
    }
}

/// Refuses files and names that no connection can use, before anything is measured.
pub(super) fn check(endpoint: &Endpoint) -> Result<(), Instead> {
    let Some(tls) = endpoint.tls() else { return Ok(()) };
    let checked = TlsConnector::new(tls.clone()).check();
    checked.map_err(|error| Instead::Refuse(format!("TLS: {}", error_chain(&error))))
}
