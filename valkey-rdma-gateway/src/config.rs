//! [`Config`]: what a gateway listens to and connects to; from the command line or a file.

mod beside;
pub(crate) mod limits;
pub(crate) mod login;
pub(crate) mod route;
mod syntax;
pub(crate) mod tls;

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use valkey_rdma_client::Endpoint;
use valkey_rdma_transport::tls::TlsAcceptor;

use crate::cluster;
use crate::config::beside::{conflict, need};
use crate::config::limits::Limits;
use crate::config::login::{RouteLogin, read_password};
use crate::config::route::Share;
use crate::config::tls::RouteTls;
use crate::error::{GatewayError, shown_url};
use crate::front::listen::Listen;
use crate::observe::metrics::Services;
use crate::upstream::server::Server;

/// The configuration of a gateway. As a file:
///
/// ```toml
/// metrics = "127.0.0.1:9121"
///
/// [limits]
/// clients = 5000
///
/// [[route]]
/// listen = ["unix:/run/valkey-rdma-gateway/valkey.sock", "tcp:127.0.0.1:6379"]
/// server = "rdma://10.0.0.7:6379?fallback=tcp"
/// user = "app"
/// password_file = "/etc/valkey-rdma-gateway.password"
/// share = "auto"
///
/// [[route]]
/// listen = ["rdmas:10.0.0.9:6380", "tls:10.0.0.9:6380"]
/// server = ["rdma://10.0.0.1:6379", "rdma://10.0.0.2:6379"]
/// cluster = true
///
/// [route.tls]
/// cert = "/etc/valkey-rdma-gateway.crt"
/// key = "/etc/valkey-rdma-gateway.key"
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Config {
    /// Listeners, and the server behind them.
    #[serde(rename = "route")]
    pub routes: Vec<RouteConfig>,
    /// Where to serve `/metrics` and `/health` over HTTP.
    #[serde(default, deserialize_with = "address")]
    pub metrics: Option<SocketAddr>,
    /// Limits.
    #[serde(default)]
    pub limits: Limits,
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    valkey_rdma_transport::address::parse(&text).map(Some).map_err(D::Error::custom)
}

/// Listeners, and the server behind them.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Where local clients connect: an address, or a list of them.
    #[serde(deserialize_with = "syntax::addresses")]
    pub listen: Vec<Listen>,
    /// URL of the server. Of a [cluster](Self::cluster): of one or several of its nodes.
    #[serde(rename = "server", deserialize_with = "syntax::one_or_several")]
    pub servers: Vec<String>,
    /// True: the whole cluster that the servers belong to, as one endpoint. Commands go to the nodes of their keys. Default: false.
    #[serde(default)]
    pub cluster: bool,
    /// User of clients that do not log in themselves. Default: the server's default user. Needs a [password](Self::password_file).
    #[serde(default)]
    pub user: Option<String>,
    /// File with the password of clients that do not log in themselves, in place of a login in the URL. One line; its end is not
    /// part of the password. A relative path is below `$CREDENTIALS_DIRECTORY`, where systemd puts what `LoadCredential=` names.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Whether clients share connections.
    #[serde(default)]
    pub share: Share,
    /// The certificates of its encrypted listeners, which need them.
    #[serde(default)]
    pub tls: Option<RouteTls>,
    /// Whether listeners `rdma:` offer direct transfers: clients get and set large values in registered memory, by GET and SET at the
    /// server. Default: true. Not with [`Share::Never`].
    #[serde(default = "yes")]
    pub direct: bool,
    /// What the commands of direct transfers begin with, before `.GET` and `.SET`. Default: `BLOB`.
    #[serde(default = "blob")]
    pub direct_prefix: String,
}

fn yes() -> bool {
    true
}

fn blob() -> String {
    "BLOB".to_owned()
}

/// Without the passwords and the options in the URLs.
impl fmt::Debug for RouteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(|url| shown_url(url)).collect();
        let mut shown = f.debug_struct("RouteConfig");
        shown.field("listen", &self.listen).field("servers", &servers).field("cluster", &self.cluster);
        shown.field("user", &self.user).field("password_file", &self.password_file);
        shown.field("share", &self.share).field("tls", &self.tls);
        shown.field("direct", &self.direct).field("direct_prefix", &self.direct_prefix).finish()
    }
}

impl RouteConfig {
    /// A route with one server, and defaults for everything else.
    #[must_use]
    pub fn new(listen: Vec<Listen>, server: impl Into<String>) -> Self {
        Self {
            listen,
            servers: vec![server.into()],
            cluster: false,
            user: None,
            password_file: None,
            share: Share::default(),
            tls: None,
            direct: yes(),
            direct_prefix: blob(),
        }
    }

    /// The prefix of the commands of direct transfers, if its listeners offer these. Without sharing, commands are not read.
    pub(crate) fn direct_prefix(&self) -> Option<Arc<str>> {
        (self.direct && self.share != Share::Never).then(|| self.direct_prefix.as_str().into())
    }

    /// The login beside the URL, if there is one. Reads the file with its password.
    pub(crate) fn login(&self) -> Result<Option<RouteLogin>, GatewayError> {
        match (self.user.clone(), &self.password_file) {
            (user, Some(file)) => {
                Ok(Some(RouteLogin { user: user.unwrap_or_default(), password: read_password(file)? }))
            }
            (None, None) => Ok(None),
            (Some(user), None) => {
                Err(GatewayError::Config(format!("user = \"{user}\" needs a password_file")))
            }
        }
    }

    /// Reads the certificates of its encrypted listeners, if it has any.
    pub(crate) fn acceptor(&self) -> Result<Option<TlsAcceptor>, GatewayError> {
        match (self.listen.iter().find(|listen| listen.is_encrypted()), &self.tls) {
            (Some(_), Some(tls)) => Ok(Some(tls.acceptor()?)),
            (None, None) => Ok(None),
            (Some(listen), None) => Err(GatewayError::Config(format!("{listen} {NEEDS_CERTIFICATE}"))),
            (None, Some(_)) => Err(GatewayError::Config(UNUSED_CERTIFICATE.to_owned())),
        }
    }

    /// Reads the files with its password and its certificates.
    fn check(&self, limits: &Limits) -> Result<(), GatewayError> {
        let login = self.login()?;
        let check =
            |urls: &[String]| Server::new(urls, self.cluster, login.as_ref(), limits, &Services::default());
        for (number, url) in (1..).zip(&self.servers) {
            check(slice::from_ref(url)).map_err(|mistake| match (mistake, self.servers.len()) {
                // What may be shown of an invalid URL does not say which it is.
                (GatewayError::Server { url, source }, count @ 2..) => {
                    GatewayError::Server { url: format!("{url}, number {number} of {count}"), source }
                }
                (mistake, _) => mistake,
            })?;
        }
        if self.servers.is_empty() {
            check(&[])?;
        }
        if self.cluster {
            cluster::seeds(&self.servers, login.as_ref())?;
        }
        let contradiction = match (self.cluster, self.share) {
            (true, Share::Never) => {
                Some("share = \"never\" passes bytes on unseen, and a cluster needs each command's keys")
            }
            (false, _) if self.servers.len() > 1 => {
                Some("several servers are the nodes of a cluster: --cluster, or cluster = true of the file")
            }
            (false, _) if self.servers.iter().any(|url| is_of_cluster(url)) => {
                Some("the URL is that of a cluster: --cluster, or cluster = true of the file")
            }
            _ if !is_prefix(&self.direct_prefix) => {
                Some("direct_prefix has 1 to 32 printable ASCII characters and no blank, such as BLOB")
            }
            _ if self.listen.is_empty() => {
                Some("listen = []: it needs an address to listen on, or leave out the route")
            }
            _ => None,
        };
        let mistake =
            contradiction.map(str::to_owned).or_else(|| self.listen.iter().find_map(Listen::mistake));
        mistake.map_or(Ok(()), |text| Err(GatewayError::Config(text)))?;
        self.acceptor().map(drop)
    }
}

const NEEDS_CERTIFICATE: &str =
    "needs a certificate: --tls-cert and --tls-key, or [route.tls] with cert and key in the file";
const UNUSED_CERTIFICATE: &str = "there is a certificate and no listener that uses it: listen on tls:ADDR:PORT or rdmas:ADDR:PORT, or leave it out";

/// True if a name of a command may begin so.
fn is_prefix(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// True for a URL such as `rdma+cluster://host`. Without `cluster`, one of its nodes would be the server.
fn is_of_cluster(url: &str) -> bool {
    url.parse().is_ok_and(|endpoint: Endpoint| endpoint.is_cluster())
}

impl Config {
    /// A configuration with one route and default limits.
    #[must_use]
    pub fn new(route: RouteConfig) -> Self {
        Self { routes: vec![route], metrics: None, limits: Limits::default() }
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`GatewayError::Read`], or what [`parse`](Self::parse) returns.
    pub fn read(path: &Path) -> Result<Self, GatewayError> {
        let text = fs::read_to_string(path);
        Self::parse(&text.map_err(|source| GatewayError::Read { path: path.to_owned(), source })?)
    }

    /// Parses and checks the text of a file.
    ///
    /// # Errors
    /// [`GatewayError::Config`] with the place, or what [`check`](Self::check) returns.
    pub fn parse(text: &str) -> Result<Self, GatewayError> {
        let config = syntax::parse(text)?;
        config.check()?;
        Ok(config)
    }

    /// Checks everything that can be checked without listening or connecting. Reads the files with passwords and certificates.
    ///
    /// # Errors
    /// [`GatewayError::Config`], [`GatewayError::Server`], [`GatewayError::Password`] or [`GatewayError::Tls`] with the first mistake, in
    /// [`GatewayError::Route`] if there are several routes.
    pub fn check(&self) -> Result<(), GatewayError> {
        self.limits.check().map_err(GatewayError::Config)?;
        let mut seen: Vec<Listen> = self.metrics.map(Listen::Tcp).into_iter().collect();
        for (number, route) in (1..).zip(&self.routes) {
            let mut check = || {
                route.check(&self.limits)?;
                for listen in &route.listen {
                    if let Some(mistake) = seen.iter().find_map(|seen| conflict(seen, listen)) {
                        return Err(GatewayError::Config(mistake));
                    }
                    seen.push(listen.clone());
                }
                Ok(())
            };
            check().map_err(|mistake| match self.routes.len() {
                1 => mistake,
                _ => GatewayError::Route { number, source: mistake.into() },
            })?;
        }
        match self.routes.is_empty() {
            true => Err(GatewayError::Config("it needs a [[route]] with an address to listen on".to_owned())),
            false => Ok(()),
        }
    }

    /// When the certificates of encrypted listeners end: `the certificate /etc/server.crt ends 2027-02-27, in 90 days`.
    #[must_use]
    pub fn ends(&self) -> Vec<String> {
        self.routes.iter().filter_map(|route| route.tls.as_ref()?.end()).collect()
    }

    /// What listeners of RDMA without TLS say of direct transfers: `rdma:10.0.0.9:6380 offers direct transfers by BLOB.GET and BLOB.SET`.
    #[must_use]
    pub fn direct(&self) -> Vec<String> {
        let listeners =
            self.routes.iter().flat_map(|route| route.listen.iter().map(move |listen| (route, listen)));
        let rdma = listeners.filter(|(_, listen)| listen.may_offer_direct());
        rdma.map(|(route, listen)| match route.direct_prefix() {
            Some(prefix) => format!("{listen} offers direct transfers by {prefix}.GET and {prefix}.SET"),
            None => format!("{listen} offers no direct transfers"),
        })
        .collect()
    }

    /// Settings that fail at the start unless something, such as systemd, prepares for them; and why clients refuse the certificates of
    /// encrypted listeners, or will within 14 days.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let sockets = self.routes.iter().flat_map(|route| &route.listen);
        let folder = |listen: &Listen| match listen {
            Listen::Unix(path) => path.parent().map(Path::to_owned),
            _ => None,
        };
        let missing = sockets.clone().filter_map(|listen| {
            let folder = folder(listen).filter(|folder| *folder != *"" && !folder.is_dir())?;
            let folder = folder.display();
            Some(format!("{listen}: there is no directory {folder}; the gateway starts only if RuntimeDirectory= of its unit, or you, make it"))
        });
        let metrics = self.metrics.map(Listen::Tcp);
        let addresses: Vec<&Listen> = sockets.chain(&metrics).collect();
        let pairs = addresses.iter().enumerate();
        let pairs = pairs.flat_map(|(at, one)| addresses[..at].iter().map(move |other| (*other, *one)));
        let needs = pairs.filter_map(|(one, other)| need(one, other));
        let certificates =
            self.routes.iter().filter_map(|route| route.tls.as_ref()).flat_map(RouteTls::doubts);
        missing.chain(needs).chain(certificates).collect()
    }
}

#[cfg(test)]
mod tests;
