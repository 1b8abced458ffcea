//! What a report says of a TLS connection, and of one that failed.

use std::time::SystemTime;

use valkey_rdma_client::{ConnectCause, Endpoint};
use valkey_rdma_transport::tls::{ClientTls, TlsError, TlsInfo, Verify};

use super::certificate;
use crate::report::{Finding, Section};

/// The step of a connection that has TLS.
pub(super) fn step(info: &TlsInfo, took: &str) -> Finding {
    let value = format!("{info} in {took}");
    match info.version {
        "TLS 1.2" => Finding::warning("tls", format!("{value}: version 1.3 is safer, and connects faster"))
            .remedy("let the server speak it too: in valkey.conf `tls-protocols \"TLSv1.2 TLSv1.3\"`, which is the default"),
        _ => Finding::ok("tls", value),
    }
}

/// What to do about a failed TLS connection, beyond what its own text says.
pub(super) fn remedies(cause: &ConnectCause) -> &'static [&'static str] {
    let ConnectCause::Tls(fault) = cause else { return &[] };
    match **fault {
        TlsError::WrongName { .. } => {
            &["or give the server a certificate that has this name too (subjectAltName)"]
        }
        TlsError::UnknownIssuer => &[
            "if ca=FILE has the first issuer already: the server must also send the certificates between,",
            "in the file of its certificate (Valkey: tls-cert-file), after its own",
        ],
        // What TLS 1.2 says of both.
        TlsError::Alert { ref alert } if alert == "HandshakeFailure" => &[
            "does the server require a certificate of its clients (Valkey: tls-auth-clients)? give one with cert=FILE and key=FILE;",
            "or do its tls-ciphers leave out ECDHE with AES-GCM and ChaCha20?",
        ],
        _ => &[],
    }
}

/// The certificates that a server has shown.
pub(super) fn shown(endpoint: &Endpoint, info: &TlsInfo) -> Section {
    let mut section = Section::new("certificate");
    section.findings = certificate::findings(&info.peer_certificates, SystemTime::now());
    match endpoint.tls().map(ClientTls::verify) {
        Some(Verify::None) => section.push(
            Finding::warning(
                "verified",
                "nothing (verify=none): anybody between can read and change everything",
            )
            .remedy("give the server's issuer with ca=FILE, and leave verify=none out"),
        ),
        Some(Verify::Ca) => section.push(
            Finding::warning("verified", "issuer and dates, not the name (verify=ca): another server of this issuer is taken for it")
                .remedy("leave verify=ca out, and give the name in the certificate with server_name=NAME if it is not the host"),
        ),
        _ => section.push(Finding::ok("verified", "issuer, dates and name")),
    }
    section
}
