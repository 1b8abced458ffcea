//! PEM files: what they hold, and what is wrong with them.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::{TlsError, TlsFile};

/// The content of a file, and what it is for.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PemFile {
    what: TlsFile,
    path: Box<Path>,
    content: Vec<u8>,
}

impl PemFile {
    /// Reads a file.
    pub(super) fn read(what: TlsFile, path: &Path) -> Result<Self, TlsError> {
        let failed =
            |source: io::Error| TlsError::Unreadable { what, path: path.into(), source: source.into() };
        // A pipe could keep the caller for ever, and is empty when it is read again.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("it is not a file")));
        }
        let mut content = Vec::new();
        fs::File::open(path).map_err(failed)?.take(LONGEST + 1).read_to_end(&mut content).map_err(failed)?;
        let file = Self { what, path: path.into(), content };
        if file.content.len() as u64 > LONGEST {
            return Err(file.bad(format!("it has more than {LONGEST} bytes")));
        }
        Ok(file)
    }

    /// The certificates in it, at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.content).collect();
        match found.map_err(|error| self.bad(format!("its PEM is damaged ({error})")))? {
            none if none.is_empty() => {
                Err(self.bad(format!("it has no certificate in PEM{}", self.instead())))
            }
            found => Ok(found),
        }
    }

    /// The first private key in it.
    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.content).map_err(|error| match error {
            // That of `openssl ec` begins with lines that are not Base64, as if it were damaged.
            _ if self.contains("ENCRYPTED PRIVATE KEY") || self.contains("Proc-Type: 4,ENCRYPTED") => {
                self.bad(ENCRYPTED.to_owned())
            }
            PemError::NoItemsFound => self.bad(format!("it has no private key in PEM{}", self.instead())),
            // The error's own text may quote a line of the file.
            _ => self.bad("its PEM is damaged".to_owned()),
        })
    }

    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        self.path.clone().into()
    }

    /// The error of this file.
    pub(super) fn bad(&self, reason: String) -> TlsError {
        TlsError::BadFile { what: self.what, path: self.path(), reason }
    }

    /// What it seems to hold instead.
    fn instead(&self) -> &'static str {
        match () {
            () if self.content.is_empty() => ": it is empty",
            () if self.contains("PRIVATE KEY-----") => ", but a private key",
            () if self.contains("BEGIN CERTIFICATE-----") => ", but a certificate",
            // The start of a sequence in DER.
            () if self.content.starts_with(&[0x30]) => {
                ": it may be DER, which `openssl x509 -inform DER` or `openssl pkey -inform DER` converts"
            }
            () => "",
        }
    }

    fn contains(&self, text: &str) -> bool {
        self.content.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

const ENCRYPTED: &str =
    "it is encrypted, which is not supported: decrypt it with `openssl pkey -in FILE -out NEW`";
/// Much more than the roots of a system, and little enough to read at each connect.
const LONGEST: u64 = 16 << 20;
