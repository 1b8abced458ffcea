//! [`Authority`]: certificates for tests, as files. Each run makes new ones, which only its own programs trust.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::Folder;

/// An issuer of certificates, with a folder of its own that goes with it.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: Folder,
}

/// The two files of a certificate.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate in PEM.
    pub cert: PathBuf,
    /// Its private key in PEM.
    pub key: PathBuf,
}

impl Authority {
    /// A new issuer called `name`. No other one has its folder.
    ///
    /// # Panics
    /// If it cannot write there.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let folder = Folder::new("authority");
        fs::write(folder.path().join("ca.crt"), issuer.pem()).expect("a file");
        fs::write(folder.path().join("ca.key"), issuer.key().serialize_pem()).expect("a file");
        Self { issuer, folder }
    }

    /// Where its files are: `ca.crt`, `ca.key`, and those that it has issued.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The file with the certificate of the issuer itself.
    pub fn ca(&self) -> PathBuf {
        self.folder().join("ca.crt")
    }

    /// A certificate that is valid today, for the names and addresses in `names`, which may be none.
    ///
    /// # Panics
    /// If a name cannot stand in a certificate, or a file cannot be written.
    pub fn issue(&self, names: &[&str]) -> Pair {
        self.issue_for_days(names, -1, 30)
    }

    /// As [`issue`](Self::issue), valid from one day to another. Today is 0.
    ///
    /// # Panics
    /// As [`issue`](Self::issue).
    pub fn issue_for_days(&self, names: &[&str], from: i64, to: i64) -> Pair {
        self.sign(names, (from, to), IsCa::NoCa)
    }

    /// As [`issue`](Self::issue), and that of an issuer (`CA:TRUE`), as `openssl req -x509` makes it without more words.
    ///
    /// # Panics
    /// As [`issue`](Self::issue).
    pub fn issue_of_issuer(&self, names: &[&str]) -> Pair {
        self.sign(names, (-1, 30), IsCa::Ca(BasicConstraints::Unconstrained))
    }

    fn sign(&self, names: &[&str], (from, to): (i64, i64), is_ca: IsCa) -> Pair {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, *names.first().unwrap_or(&"without a name"));
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into().expect("a name of the DNS")),
            })
            .collect();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.is_ca = is_ca;
        (params.not_before, params.not_after) = (day(from).into(), day(to).into());
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let number = fs::read_dir(self.folder()).expect("its folder").count();
        let at = |end: &str| self.folder().join(format!("{number}.{end}"));
        let pair = Pair { cert: at("crt"), key: at("key") };
        fs::write(&pair.cert, certificate.pem()).expect("a file");
        fs::write(&pair.key, key.serialize_pem()).expect("a file");
        pair
    }
}

fn day(number: i64) -> SystemTime {
    let seconds = Duration::from_secs(number.unsigned_abs() * 86_400);
    if number < 0 { SystemTime::now() - seconds } else { SystemTime::now() + seconds }
}
