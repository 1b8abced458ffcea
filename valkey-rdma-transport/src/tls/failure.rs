//! What rustls reports, as a [`TlsError`] that says what to do.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::error::TlsError;

/// The error of a handshake, or of a TLS connection's read or write.
pub(crate) fn explained(error: io::Error) -> TlsError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(tls) => of_rustls(tls),
        None if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            TlsError::Closed
        }
        None => TlsError::Io(error.into()),
    }
}

/// As [`explained`], for a server: what fails is the certificate of the client, or the client does not accept the server's.
pub(crate) fn explained_to_server(error: io::Error) -> TlsError {
    let of_client = |reason: &str| TlsError::BadCertificate { reason: format!("the client's {reason}") };
    match explained(error) {
        TlsError::Expired { .. } => of_client("has expired: renew it on the client"),
        TlsError::NotValidYet => of_client("is not valid yet: compare the clocks of the two machines"),
        TlsError::UnknownIssuer => of_client("comes from an issuer that client_ca does not have"),
        TlsError::CertificateRefused { alert } => TlsError::Alert {
            alert: format!("{alert}, so the client does not accept this server's certificate"),
        },
        other => other,
    }
}

/// As [`explained`], for a connection that is past its handshake: only what rustls reports gets other words.
pub(crate) fn explained_later(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(tls) => of_rustls(tls).into(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => TlsError::Cut.into(),
        None => error,
    }
}

fn of_rustls(error: &Error) -> TlsError {
    match error {
        Error::InvalidCertificate(fault) => of_certificate(fault),
        Error::AlertReceived(alert) => of_alert(*alert),
        // The first bytes of another protocol.
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge,
        ) => TlsError::NotTls,
        Error::PeerIncompatible(fault) => TlsError::NothingInCommon { reason: format!("{fault:?}") },
        Error::NoCertificatesPresented => {
            TlsError::BadCertificate { reason: "the peer has shown none".to_owned() }
        }
        other => TlsError::Handshake { reason: other.to_string() },
    }
}

fn of_certificate(fault: &CertificateError) -> TlsError {
    match fault {
        CertificateError::Expired => TlsError::Expired { days: None },
        CertificateError::ExpiredContext { time, not_after } => {
            TlsError::Expired { days: Some(time.as_secs().saturating_sub(not_after.as_secs()) / 86_400) }
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => TlsError::NotValidYet,
        CertificateError::UnknownIssuer => TlsError::UnknownIssuer,
        // An issuer that was made anew keeps its name, and has another key.
        CertificateError::BadSignature => TlsError::BadCertificate {
            reason: "the issuer of that name that is trusted here has not signed it: give its present certificate with ca=FILE"
                .to_owned(),
        },
        CertificateError::NotValidForNameContext { expected, presented } if presented.is_empty() => {
            let expected = expected.to_str();
            let reason = format!("it has no name: give the server one for {expected} (subjectAltName), or use verify=ca");
            TlsError::BadCertificate { reason }
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            TlsError::WrongName { expected: expected.to_str().into_owned(), presented: names(presented) }
        }
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => TlsError::BadCertificate {
            reason: "it is that of an issuer (CA:TRUE), and not one of a server: sign one for the server with it, or make it anew with basicConstraints CA:FALSE".to_owned(),
        },
        other => TlsError::BadCertificate { reason: other.to_string() },
    }
}

/// The names in a certificate, without what rustls writes around them.
fn names(presented: &[String]) -> String {
    let plain = |name: &String| match name.split_once('(') {
        Some(("DnsName" | "IpAddress", rest)) => rest.trim_end_matches(')').trim_matches('"').to_owned(),
        _ => name.clone(),
    };
    presented.iter().map(plain).collect::<Vec<_>>().join(", ")
}

fn of_alert(alert: AlertDescription) -> TlsError {
    let name = alert.as_str().unwrap_or("unknown alert").to_owned();
    match alert {
        AlertDescription::CertificateRequired => TlsError::CertificateRequired,
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied => TlsError::CertificateRefused { alert: name },
        AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity => {
            TlsError::NothingInCommon { reason: name }
        }
        // OpenSSL says so with TLS 1.2 where it says more with TLS 1.3.
        AlertDescription::HandshakeFailure => TlsError::Alert {
            alert: format!(
                "{name}: it requires a certificate (cert=FILE with key=FILE), or has no cipher suite that this side has"
            ),
        },
        _ => TlsError::Alert { alert: name },
    }
}
