//! [`ServerTlsArgs`]: which certificate the listeners of a program show, and which certificates they ask for.

use std::path::PathBuf;

use valkey_rdma_transport::tls::{ClientAuth, ServerTls};

/// The flags for the listeners with TLS.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServerTlsArgs {
    /// Certificate of the listeners with TLS (PEM), followed in the file by those that lead from it to its issuer. SIGHUP reads it
    /// again, with the files of the next two
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// Private key of that certificate (PEM, not encrypted)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Issuers of the clients' certificates (PEM). Clients then need a certificate, unless --tls-client-auth says otherwise
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,

    /// Whether clients need a certificate of the issuers in --tls-client-ca. Default: required with that file, no without
    #[arg(long, value_name = "no|optional|required", requires = "tls_cert")]
    pub tls_client_auth: Option<ClientAuth>,
}

impl ServerTlsArgs {
    /// The settings of the listeners. `None`: the flags give no certificate.
    #[must_use]
    pub fn settings(&self) -> Option<ServerTls> {
        let mut settings = ServerTls::new(self.tls_cert.as_ref()?, self.tls_key.as_ref()?);
        if let Some(file) = &self.tls_client_ca {
            settings = settings.with_client_ca(file);
        }
        if let Some(auth) = self.tls_client_auth {
            settings = settings.with_client_auth(auth);
        }
        Some(settings)
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;
    use crate::refusal;

    fn read(line: &str) -> Result<ServerTlsArgs, String> {
        let command = ServerTlsArgs::augment_args(Command::new("program"));
        let words = std::iter::once("program").chain(line.split_whitespace());
        let matches = command.try_get_matches_from(words).map_err(|error| refusal(&error))?;
        ServerTlsArgs::from_arg_matches(&matches).map_err(|error| refusal(&error))
    }

    #[test]
    fn flags_become_settings() {
        let settings = |line: &str| read(line).expect("flags").settings();
        assert_eq!(settings(""), None);
        let plain = ServerTls::new("a.crt", "a.key");
        assert_eq!(settings("--tls-cert a.crt --tls-key a.key"), Some(plain.clone()));
        let asking = plain.with_client_ca("ca.crt").with_client_auth(ClientAuth::Optional);
        let line = "--tls-cert a.crt --tls-key a.key --tls-client-ca ca.crt --tls-client-auth optional";
        assert_eq!(settings(line), Some(asking));
    }

    #[test]
    fn half_of_the_settings_is_refused() {
        for (line, said) in [
            ("--tls-cert a.crt", "--tls-key <FILE>"),
            ("--tls-key a.key", "--tls-cert <FILE>"),
            ("--tls-client-ca ca.crt", "--tls-cert <FILE>"),
            ("--tls-client-auth required", "--tls-cert <FILE>"),
            ("--tls-client-auth perhaps --tls-cert a.crt --tls-key a.key", "no, optional or required"),
        ] {
            let reason = read(line).expect_err(line);
            assert!(reason.contains(said), "{line}: {reason}");
        }
    }
}
