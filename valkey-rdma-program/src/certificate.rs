//! [`Certificate`]: what the user of a server's certificate asks for: its names, the days that are left, and whether clients accept it.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

/// Days before the end of a certificate from which on it ends soon.
const SOON: i64 = 14;
const SECONDS_PER_DAY: i64 = 86_400;
/// Characters of a name that are shown. A hostile server may send far longer ones.
const LONGEST: usize = 200;

/// A certificate at one moment. Its texts have no characters that would move a terminal's cursor.
pub struct Certificate<'a> {
    parsed: X509Certificate<'a>,
    /// Seconds since 1970.
    now: i64,
}

impl<'a> Certificate<'a> {
    /// Reads one in DER.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(der: &'a [u8], now: SystemTime) -> Result<Self, String> {
        let read = X509Certificate::from_der(der).map_err(X509Error::from);
        let (_, parsed) = read.map_err(|error| format!("the certificate cannot be read: {error}"))?;
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
        Ok(Self { parsed, now })
    }

    /// Whose it is.
    #[must_use]
    pub fn subject(&self) -> String {
        name(self.parsed.subject())
    }

    /// Who has signed it.
    #[must_use]
    pub fn issuer(&self) -> String {
        let issuer = name(self.parsed.issuer());
        let is_own = self.parsed.subject().as_raw() == self.parsed.issuer().as_raw();
        if is_own { format!("{issuer}: itself") } else { issuer }
    }

    /// The names and addresses that it is for.
    #[must_use]
    pub fn names(&self) -> String {
        let Ok(Some(all)) = self.parsed.subject_alternative_name() else {
            return "none: clients that verify the name refuse it".to_owned();
        };
        let one = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
            _ => None,
        };
        printable(&all.value.general_names.iter().filter_map(one).collect::<Vec<_>>().join(", "))
    }

    /// Whether it has names. Clients that verify the name refuse one without.
    #[must_use]
    pub fn has_names(&self) -> bool {
        matches!(self.parsed.subject_alternative_name(), Ok(Some(_)))
    }

    /// Whether it is that of an issuer (`CA:TRUE`). Clients refuse it as a server's.
    #[must_use]
    pub fn is_of_issuer(&self) -> bool {
        self.parsed.is_ca()
    }

    /// When it begins, such as `2026-02-01, in 3 days`. `None` if it has begun.
    #[must_use]
    pub fn begins(&self) -> Option<String> {
        let begin = self.parsed.validity().not_before;
        let until = begin.timestamp().saturating_sub(self.now);
        (until > 0).then(|| format!("{}, in {}", date(begin), count(until / SECONDS_PER_DAY)))
    }

    /// When it ends, such as `2026-02-01, in 30 days`, or `2 days ago`.
    #[must_use]
    pub fn ends(&self) -> String {
        let days = count(self.left().unsigned_abs().cast_signed() / SECONDS_PER_DAY);
        let when = if self.has_ended() { format!("{days} ago") } else { format!("in {days}") };
        format!("{}, {when}", date(self.parsed.validity().not_after))
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.left() < 0
    }

    /// Whether it has ended, or ends in less than 14 days.
    #[must_use]
    pub fn ends_soon(&self) -> bool {
        self.left() < SOON * SECONDS_PER_DAY
    }

    /// Seconds until its end.
    fn left(&self) -> i64 {
        self.parsed.validity().not_after.timestamp().saturating_sub(self.now)
    }
}

fn count(days: i64) -> String {
    if days == 1 { "1 day".to_owned() } else { format!("{days} days") }
}

fn date(time: ASN1Time) -> String {
    time.to_datetime().date().to_string()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => Some(v4.into()),
        Err(_) => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

fn name(name: &impl ToString) -> String {
    match printable(&name.to_string()) {
        empty if empty.is_empty() => "no name".to_owned(),
        name => name,
    }
}

fn printable(text: &str) -> String {
    text.chars().take(LONGEST).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_and_cannot_move_the_cursor() {
        assert_eq!(printable(&"x".repeat(5000)).len(), LONGEST);
        assert_eq!(printable("a\u{1b}[31m"), "a\\u{1b}[31m");
    }
}
