//! [`RouteLogin`]: the login of clients that do not log in themselves, whose password is in a file.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use valkey_rdma_client::{Endpoint, Error};
/// The login of a route, beside the URLs of its servers.
pub(crate) use valkey_rdma_program::Login as RouteLogin;
use valkey_rdma_transport::password_in_file;
use valkey_rdma_transport::tls::TlsConnector;

use crate::error::{GatewayError, shown_url};

/// Reads the URLs of servers and the certificates that they name, and gives them the login of the route.
pub(crate) fn endpoints(urls: &[String], login: Option<&RouteLogin>) -> Result<Vec<Endpoint>, GatewayError> {
    let endpoint = |url: &String| {
        let parsed = url.parse::<Endpoint>().map_err(Error::from);
        let endpoint = parsed.map_err(|source| GatewayError::Server { url: shown_url(url), source })?;
        if let Some(tls) = endpoint.tls() {
            // They are read again for each connection.
            TlsConnector::new(tls.clone()).check()?;
        }
        if endpoint.password_file().is_some() {
            return Err(GatewayError::Config(format!(
                "server \"{endpoint}\" has a password_file in its URL: give it as the route's password_file, which SIGHUP reads again",
            )));
        }
        match login {
            Some(_) if endpoint.password().is_some() => Err(GatewayError::Config(format!(
                "server \"{endpoint}\" has a login in its URL, and there is a password_file: leave out one of them",
            ))),
            Some(login) => Ok(endpoint.with_login(&login.user, &login.password)),
            None => Ok(endpoint),
        }
    };
    urls.iter().map(endpoint).collect()
}

/// Reads a password. A relative path is one of systemd's credentials: it is below `$CREDENTIALS_DIRECTORY`.
pub(crate) fn read_password(file: &Path) -> Result<String, GatewayError> {
    read_below(env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from).as_deref(), file)
}

fn read_below(credentials: Option<&Path>, file: &Path) -> Result<String, GatewayError> {
    let path = match credentials {
        Some(credentials) => credentials.join(file),
        None => file.to_owned(),
    };
    let text =
        if path.is_relative() { Err(io::Error::other(NO_CREDENTIALS)) } else { password_in_file(&path) };
    text.map_err(|source| GatewayError::Password { path, source })
}

const NO_CREDENTIALS: &str = "CREDENTIALS_DIRECTORY is not set, below which relative paths are: set LoadCredential= in the unit of \
    systemd, or give an absolute path";
#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that ends with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = env::temp_dir().join(format!("vrg-password-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, bytes: &[u8]) -> PathBuf {
            let path = self.0.join("password");
            std::fs::write(&path, bytes).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_end_of_the_line_is_not_part_of_a_password() {
        let folder = Folder::new("line");
        for (bytes, password) in [("s3cret", "s3cret"), (" a b \n", " a b "), ("wörd\r\n", "wörd")] {
            let file = folder.file(bytes.as_bytes());
            assert_eq!(read_below(None, &file).unwrap(), password);
        }
    }

    #[test]
    fn a_relative_path_is_a_credential() {
        let folder = Folder::new("credential");
        folder.file(b"s3cret\n");
        assert_eq!(read_below(Some(&folder.0), Path::new("password")).unwrap(), "s3cret");
        let absolute = folder.0.join("password");
        assert_eq!(read_below(Some(Path::new("/nowhere")), &absolute).unwrap(), "s3cret");
        let error = read_below(None, Path::new("password")).unwrap_err().to_string();
        assert!(error.contains("password_file \"password\": CREDENTIALS_DIRECTORY is not set"), "{error}");
    }

    #[test]
    fn what_is_no_password_is_named_with_its_path_and_without_its_text() {
        let folder = Folder::new("none");
        let absent = folder.0.join("absent");
        let error = read_below(None, &absent).unwrap_err().to_string();
        assert_eq!(error, format!("password_file {absent:?}: No such file or directory (os error 2)"));
        let long = "s3cret".repeat(1000);
        for (bytes, part) in [
            (&b""[..], "it is empty"),
            (b"\n", "it is empty"),
            (b"s3cret\nmore\n", "more than one line"),
            (long.as_bytes(), "longer than 4096 bytes"),
            (b"s3cret\xff", "it is not UTF-8"),
        ] {
            let file = folder.file(bytes);
            let error = read_below(None, &file).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("password_file {file:?}: ")) && error.contains(part),
                "{error}"
            );
            assert!(!error.contains("s3cret"), "{error}");
        }
        let error = read_below(None, Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("longer than 4096 bytes"), "{error}");
    }
}
