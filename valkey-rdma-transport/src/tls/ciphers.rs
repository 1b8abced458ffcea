//! Cipher suites by the names that OpenSSL and valkey-cli use.

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::ALL_CIPHER_SUITES;

use super::error::TlsError;

/// The suites that both lists allow; a list that is not given allows all of its version.
pub(crate) fn chosen(
    tls12: Option<&str>,
    tls13: Option<&str>,
) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let mut suites = named(tls13, true)?;
    suites.extend(named(tls12, false)?);
    Ok(suites)
}

fn named(list: Option<&str>, is_tls13: bool) -> Result<Vec<SupportedCipherSuite>, TlsError> {
    let all = || ALL_CIPHER_SUITES.iter().filter(move |suite| suite.tls13().is_some() == is_tls13).copied();
    let Some(list) = list else { return Ok(all().collect()) };
    let suite = |name: &str| {
        let unknown = || {
            let known: Vec<_> = all().map(openssl_name).collect();
            TlsError::UnknownCipher { name: name.to_owned(), known: known.join(", ") }
        };
        all().find(|&suite| openssl_name(suite) == name || iana_name(suite) == name).ok_or_else(unknown)
    };
    list.split(':').map(suite).collect()
}

/// The name that IANA lists: `TLS_AES_128_GCM_SHA256`.
pub(crate) fn iana_name(suite: SupportedCipherSuite) -> &'static str {
    let name = suite.suite().as_str().unwrap_or("unknown");
    IANA.iter().find(|(rustls, _)| *rustls == name).map_or(name, |(_, iana)| iana)
}

/// OpenSSL's name: `ECDHE-RSA-AES128-GCM-SHA256`, and for TLS 1.3 that of IANA.
fn openssl_name(suite: SupportedCipherSuite) -> String {
    let name = iana_name(suite);
    match name.strip_prefix("TLS_ECDHE_") {
        None => name.to_owned(),
        Some(rest) => {
            let rest = rest.replace("_WITH", "").replace("AES_", "AES").replace('_', "-");
            // OpenSSL leaves the hash of these out.
            let rest =
                rest.strip_suffix("POLY1305-SHA256").map_or(rest.clone(), |rest| format!("{rest}POLY1305"));
            format!("ECDHE-{rest}")
        }
    }
}

/// rustls's names of the suites of TLS 1.3, which are not those of IANA.
const IANA: [(&str, &str); 3] = [
    ("TLS13_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    ("TLS13_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ("TLS13_CHACHA20_POLY1305_SHA256", "TLS_CHACHA20_POLY1305_SHA256"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_the_names_of_openssl() {
        let names: Vec<_> = ALL_CIPHER_SUITES.iter().map(|suite| openssl_name(*suite)).collect();
        let expected = [
            "TLS_AES_256_GCM_SHA384",
            "TLS_AES_128_GCM_SHA256",
            "TLS_CHACHA20_POLY1305_SHA256",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "ECDHE-RSA-AES256-GCM-SHA384",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-CHACHA20-POLY1305",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_list_limits_its_own_version_only() {
        let suites = chosen(Some("ECDHE-RSA-AES128-GCM-SHA256"), None).expect("a known suite");
        assert_eq!(suites.len(), 4);
        let suites =
            chosen(None, Some("TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256")).expect("known suites");
        assert_eq!(suites.len(), 8);
        let error = chosen(Some("HIGH:!aNULL"), None).expect_err("a class of OpenSSL").to_string();
        assert!(error.contains("\"HIGH\"") && error.contains("ECDHE-RSA-AES128-GCM-SHA256"), "{error}");
    }
}
