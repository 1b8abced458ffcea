//! Certificates of a server, as a report shows them.

use std::time::SystemTime;

use valkey_rdma_program::Certificate;

use crate::report::Finding;

/// What the certificates in `chain` say, in DER: those of the server, and those that lead from it to its issuer.
pub(super) fn findings(chain: &[Vec<u8>], now: SystemTime) -> Vec<Finding> {
    let Some((first, others)) = chain.split_first() else {
        return vec![Finding::warning("subject", "the server has shown no certificate")];
    };
    let mut found = match Certificate::read(first, now) {
        Ok(certificate) => of_server(&certificate),
        Err(reason) => vec![Finding::warning("subject", reason)],
    };
    let ends_soon = |certificate: &Certificate<'_>| {
        let finding = end(certificate);
        let of = format!("{}, of the issuer between: {}", finding.value, certificate.subject());
        certificate.ends_soon().then_some(Finding { value: of, ..finding })
    };
    found.extend(others.iter().filter_map(|der| ends_soon(&Certificate::read(der, now).ok()?)));
    found
}

fn of_server(certificate: &Certificate<'_>) -> Vec<Finding> {
    let mut found = vec![
        Finding::ok("subject", certificate.subject()),
        Finding::ok("names", certificate.names()),
        Finding::ok("issuer", certificate.issuer()),
    ];
    if let Some(begins) = certificate.begins() {
        found.push(
            Finding::warning("begins", begins).remedy("compare the clocks of the two machines: `date -u`"),
        );
    }
    found.push(end(certificate));
    found
}

/// When it ends.
fn end(certificate: &Certificate<'_>) -> Finding {
    if !certificate.ends_soon() {
        return Finding::ok("ends", certificate.ends());
    }
    Finding::warning("ends", certificate.ends()).remedy("renew it, and let the server read the new one:").remedy(
        "Valkey: `CONFIG SET tls-cert-file FILE tls-key-file FILE`; valkey-rdma-gateway: SIGHUP, or `systemctl reload`",
    )
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    use super::*;
    use crate::report::Verdict;

    /// A certificate for `store` and `10.0.0.7`, of January 2026, that its own key has signed.
    fn certificate() -> Vec<u8> {
        let names = ["store".to_owned(), "10.0.0.7".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, "a\u{1b}[31mb");
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 2, 1));
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    /// 01:00 of a day of January 2026, the first of which is 0.
    fn day(number: u64) -> SystemTime {
        const JANUARY: u64 = 1_767_225_600;
        UNIX_EPOCH + Duration::from_secs(JANUARY + number * 86_400 + 3600)
    }

    fn finding(chain: &[Vec<u8>], now: SystemTime, id: &str) -> Finding {
        let found = findings(chain, now);
        found
            .iter()
            .find(|finding| finding.id == id)
            .unwrap_or_else(|| panic!("no {id} in {found:?}"))
            .clone()
    }

    #[test]
    fn the_days_until_the_end_are_counted_and_few_are_a_warning() {
        let chain = [certificate()];
        for (number, verdict, value) in [
            (0, Verdict::Ok, "2026-02-01, in 30 days"),
            (16, Verdict::Ok, "2026-02-01, in 14 days"),
            (17, Verdict::Warning, "2026-02-01, in 13 days"),
            (29, Verdict::Warning, "2026-02-01, in 1 day"),
            (30, Verdict::Warning, "2026-02-01, in 0 days"),
            (33, Verdict::Warning, "2026-02-01, 2 days ago"),
        ] {
            let ends = finding(&chain, day(number), "ends");
            assert_eq!((ends.verdict, ends.value.as_str()), (verdict, value));
        }
        let early = day(0) - Duration::from_secs(86_400 * 3);
        let begins = finding(&chain, early, "begins");
        assert_eq!((begins.verdict, begins.value.as_str()), (Verdict::Warning, "2026-01-01, in 2 days"));
    }

    #[test]
    fn a_certificate_is_shown_with_its_names_and_its_issuer() {
        let chain = [certificate()];
        let value = |id| finding(&chain, day(0), id).value;
        assert_eq!(value("names"), "store, 10.0.0.7");
        assert_eq!(value("subject"), "CN=a\\u{1b}[31mb", "it cannot change the terminal");
        assert_eq!(value("issuer"), "CN=a\\u{1b}[31mb: itself");
    }

    #[test]
    fn damaged_certificates_are_a_warning() {
        let whole = certificate();
        for len in 0..whole.len() {
            let found = findings(&[whole[..len].to_vec()], day(0));
            assert!(found[0].value.contains("cannot be read"), "{len}: {found:?}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            assert!(!findings(&[damaged], day(0)).is_empty());
        }
        assert_eq!(findings(&[], day(0))[0].verdict, Verdict::Warning);
    }

    #[test]
    fn the_end_of_a_certificate_between_is_a_warning_too() {
        let found = findings(&[certificate(), certificate()], day(20));
        let last = found.last().expect("a finding");
        assert!(
            last.value.contains("of the issuer between: ") && last.verdict == Verdict::Warning,
            "{found:?}"
        );
        assert_eq!(findings(&[certificate(), certificate()], day(0)).len(), 4);
    }
}
