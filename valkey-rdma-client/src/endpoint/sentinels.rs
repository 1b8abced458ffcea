//! [`Sentinels`]: the servers that know where the primary is, from a URL such as `rdma+sentinel://s1,s2:26380/mymaster`.

use std::fmt;
use std::path::PathBuf;

use super::url::{authority, canonical};
use super::{Endpoint, EndpointError, Login, Transport};

/// Sentinels, and the name of the service whose primary they report.
///
/// ```
/// use valkey_rdma_client::Endpoint;
///
/// let url = "rdma+sentinel://app:secret@s1,s2:26380/mymaster/2?sentinel_password=watch";
/// let endpoint: Endpoint = url.parse()?;
/// let sentinels = endpoint.sentinels().expect("the scheme says so");
/// assert_eq!(sentinels.service(), "mymaster");
/// assert_eq!(sentinels.to_string(), "s1:26379,s2:26380");
/// assert_eq!((endpoint.user(), endpoint.database()), (Some("app"), 2));
/// # Ok::<(), valkey_rdma_client::EndpointError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentinels {
    service: String,
    pub(super) addresses: Vec<(String, u16)>,
    /// Of the Sentinels. They have other users than the servers.
    pub(super) login: Login,
    /// They are asked without TLS, although the servers have it.
    pub(super) plain: bool,
}

impl Sentinels {
    /// The default port of a Sentinel.
    pub const DEFAULT_PORT: u16 = 26379;

    /// Sentinels without a login, which know the service by this name.
    #[must_use]
    pub fn new(
        service: impl Into<String>,
        addresses: impl IntoIterator<Item = (impl Into<String>, u16)>,
    ) -> Self {
        let addresses = addresses.into_iter().map(|(host, port)| (canonical(host.into()), port)).collect();
        Self { service: service.into(), addresses, login: Login::default(), plain: false }
    }

    /// Sets user and password for the Sentinels. They are not those of the servers. An empty name stands for the default user. It has no
    /// empty password: both empty mean no login.
    #[must_use]
    pub fn with_login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login = Login::new(user.into(), password.into());
        self
    }

    /// Sets the password of the Sentinels' default user. An empty one means no login.
    #[must_use]
    pub fn with_password(self, password: impl Into<String>) -> Self {
        self.with_login("", password)
    }

    /// Sets the Sentinels' user and the file that holds its password, as [`Endpoint::with_password_file`] does for the servers.
    #[must_use]
    pub fn with_password_file(mut self, user: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.login = Login::with_file(user.into(), path.into());
        self
    }

    /// Asks the Sentinels without TLS, although the endpoint [has TLS](Endpoint::with_tls). Who can change what they say leads the client to
    /// any server that has a certificate of a trusted issuer. For an endpoint without TLS, connecting is an error.
    #[must_use]
    pub fn without_tls(mut self) -> Self {
        self.plain = true;
        self
    }

    /// The name of the service.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Checks what no URL can say: the service, and each address.
    pub(super) fn check(&self) -> Result<(), EndpointError> {
        if self.service.is_empty() {
            return Err(EndpointError::MissingService);
        }
        if self.addresses.is_empty() || self.addresses.iter().any(|(host, _)| host.is_empty()) {
            return Err(EndpointError::MissingHost);
        }
        match self.addresses.iter().any(|(_, port)| *port == 0) {
            true => Err(EndpointError::PortZero),
            false => Ok(()),
        }
    }

    /// The endpoint of each Sentinel, over TCP: they have no other transport. They are asked over TLS if the servers are, unless
    /// the endpoint says [otherwise](Self::without_tls).
    pub(crate) fn endpoints(&self, template: &Endpoint) -> Vec<Endpoint> {
        let endpoint = |(host, port): &(String, u16)| {
            let mut endpoint = Endpoint::new(Transport::Tcp, host, *port)
                .with_protocol(template.protocol())
                .with_timeout(template.timeout());
            endpoint.login.clone_from(&self.login);
            endpoint.tls = template.tls.clone().filter(|_| !self.plain);
            endpoint
        };
        self.addresses.iter().map(endpoint).collect()
    }
}

/// The addresses.
impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<_> = self.addresses.iter().map(|(host, port)| authority(host, *port)).collect();
        f.write_str(&addresses.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Endpoint, EndpointError> {
        url.parse()
    }

    #[test]
    fn a_sentinel_url_names_sentinels_service_and_login() {
        let endpoint = parse(
            "emulated+sentinel://u:p%40@a,[::1],b:7/my%20one/3?timeout=2s&sentinel_user=w&sentinel_password=%26",
        );
        let endpoint = endpoint.expect("a good URL");
        let sentinels = endpoint.sentinels().expect("sentinels");
        assert_eq!(sentinels.to_string(), "a:26379,[::1]:26379,b:7");
        assert_eq!(sentinels.service(), "my one");
        assert_eq!((endpoint.transport(), endpoint.database()), (Transport::Emulated, 3));
        assert_eq!((endpoint.user(), endpoint.password()), (Some("u"), Some("p@")));
        let asked = &sentinels.endpoints(&endpoint)[2];
        assert_eq!((asked.host(), asked.port(), asked.transport()), ("b", 7, Transport::Tcp));
        assert_eq!((asked.user(), asked.password()), (Some("w"), Some("&")));
        assert_eq!(endpoint.to_string(), "emulated+sentinel://u:***@a:26379,[::1]:26379,b:7/my one/3");
        assert!(!format!("{endpoint:?}").contains("p@"));
    }

    #[test]
    fn bad_sentinel_urls_are_refused() {
        for (url, expected) in [
            ("rdma+sentinel://a", "names no service"),
            ("rdma+sentinel://a/", "names no service"),
            ("rdma+sentinel://a//3", "names no service"),
            ("rdma+sentinel://a,/m", "names no host"),
            ("rdma+sentinel://a:0/m", "port 0"),
            ("rdma+sentinel://a/m/x", "bad database"),
            ("rdma+sentinel://a/m?nonsense=1", "unknown URL option"),
            ("rdma+sentinel://a/m?sentinel_user=x", "no password"),
            ("rdma+sentinel://a/m?sentinel_password=%secret", "%25"),
            ("http+sentinel://a/m", "unknown URL scheme"),
            ("rdma+sentinel://a/m#x", "%23"),
            ("rdma+sentinel://a/m/3?timeout=1s#x", "%23"),
            ("rdma+sentinel://u:12/secret@a:26379", "%2F"),
            ("rdma+sentinel://u:12/secret@a:26379/m", "%2F"),
            ("rdma+sentinel://u:12?secret@a:26379/m", "%3F"),
            ("rdma+sentinel://a/m?sentinel_password=p@secret", "%40"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(expected), "{url}: {error}");
            assert!(!error.contains("secret"), "{url}: {error}");
        }
    }
}
