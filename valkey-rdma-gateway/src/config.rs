//! [`Config`]: what a gateway listens to and connects to; from the command line or a file.

mod circle;
mod syntax;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::slice;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use valkey_rdma_client::Endpoint;

use crate::cluster;
use crate::error::{GatewayError, shown_url};
use crate::limits::Limits;
use crate::listen::Listen;
use crate::login::{RouteLogin, read_password};
use crate::route::Share;
use crate::server::Server;
use crate::services::Services;

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
/// listen = ["unix:/run/valkey-rdma-gateway/cluster.sock"]
/// server = ["rdma://10.0.0.1:6379", "rdma://10.0.0.2:6379"]
/// cluster = true
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
    /// Where local clients connect.
    #[serde(deserialize_with = "addresses")]
    pub listen: Vec<Listen>,
    /// URL of the server. Of a [cluster](Self::cluster): of one or several of its nodes.
    #[serde(rename = "server", deserialize_with = "one_or_several")]
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
}

/// A string, or a list of strings.
fn one_or_several<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "server: a URL, or a list of URLs")]
    enum Urls {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Urls::deserialize(value)? {
        Urls::One(url) => vec![url],
        Urls::Several(urls) => urls,
    })
}

/// Addresses to listen on. The error names all that are none.
fn addresses<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<Listen>, D::Error> {
    let parsed: Vec<_> =
        Vec::<String>::deserialize(value)?.iter().map(|text| text.parse::<Listen>()).collect();
    let wrong: Vec<_> = parsed.iter().filter_map(|one| one.as_ref().err()).map(ToString::to_string).collect();
    match wrong.is_empty() {
        true => Ok(parsed.into_iter().flatten().collect()),
        false => Err(D::Error::custom(wrong.join("; "))),
    }
}

/// Without the passwords and the options in the URLs.
impl fmt::Debug for RouteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<_> = self.servers.iter().map(|url| shown_url(url)).collect();
        let mut shown = f.debug_struct("RouteConfig");
        shown.field("listen", &self.listen).field("servers", &servers).field("cluster", &self.cluster);
        shown.field("user", &self.user).field("password_file", &self.password_file);
        shown.field("share", &self.share).finish()
    }
}

impl RouteConfig {
    /// The login beside the URL, if there is one. Reads the file with its password.
    pub(crate) fn login(&self) -> Result<Option<RouteLogin>, GatewayError> {
        match (self.user.clone(), &self.password_file) {
            (user, Some(file)) => Ok(Some(RouteLogin { user, password: read_password(file)? })),
            (None, None) => Ok(None),
            (Some(user), None) => {
                Err(GatewayError::Config(format!("user = \"{user}\" needs a password_file")))
            }
        }
    }

    /// What is wrong with it, addresses apart. Reads the file with its password.
    fn mistakes(&self, limits: &Limits) -> Vec<GatewayError> {
        let (login, refused) = match self.login() {
            Ok(login) => (login, None),
            Err(error) => (None, Some(error)),
        };
        let refused_by = |urls: &[String]| {
            Server::new(urls, self.cluster, login.as_ref(), limits, &Services::default()).err()
        };
        // What is wrong with several is said once.
        let mut wrong = BTreeMap::new();
        for (at, url) in self.servers.iter().enumerate() {
            if let Some(mut mistake) = refused_by(slice::from_ref(url)) {
                // What may be shown of an invalid URL does not say which it is.
                if let (GatewayError::Server { url, .. }, 2..) = (&mut mistake, self.servers.len()) {
                    *url = format!("{url}, number {} of {}", at + 1, self.servers.len());
                }
                wrong.entry(mistake.to_string()).or_insert((at, mistake));
            }
        }
        let mut wrong: Vec<_> = wrong.into_values().collect();
        wrong.sort_by_key(|(at, _)| *at);
        let mut wrong: Vec<_> = wrong.into_iter().map(|(_, mistake)| mistake).collect();
        if self.servers.is_empty() {
            wrong.extend(refused_by(&[]));
        } else if wrong.is_empty() && self.cluster {
            wrong.extend(cluster::seeds(&self.servers, login.as_ref()).err());
        }
        let contradiction = match (self.cluster, self.share) {
            (true, Share::Never) => {
                Some("share = \"never\" passes bytes on unseen, and a cluster needs each command's keys")
            }
            (false, _) if self.servers.len() > 1 => {
                Some("several servers are the nodes of a cluster: cluster = true")
            }
            (false, _) if self.servers.iter().any(|url| is_of_cluster(url)) => {
                Some("the URL is that of a cluster: --cluster, or cluster = true of the file")
            }
            _ => None,
        };
        let contradiction = contradiction.map(|text| GatewayError::Config(text.to_owned()));
        refused.into_iter().chain(wrong).chain(contradiction).collect()
    }
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

    /// Checks everything that can be checked without listening or connecting. Reads the files with passwords.
    ///
    /// # Errors
    /// [`GatewayError::Config`], [`GatewayError::Server`] or [`GatewayError::Password`] with what is wrong, in [`GatewayError::Route`]
    /// if there are several routes, and all of them in [`GatewayError::Several`].
    pub fn check(&self) -> Result<(), GatewayError> {
        let mut mistakes: Vec<_> = self.limits.mistakes().into_iter().map(GatewayError::Config).collect();
        // A limit that is reported already is not reported by each route.
        let limits = if mistakes.is_empty() { self.limits.clone() } else { Limits::default() };
        let metrics = self.metrics.map(Listen::Tcp);
        let mut seen: Vec<&Listen> = metrics.iter().collect();
        for (number, route) in (1..).zip(&self.routes) {
            let mut found = route.mistakes(&limits);
            if route.listen.is_empty() {
                let missing = "listen = []: it needs an address to listen on, or leave out the route";
                found.push(GatewayError::Config(missing.to_owned()));
            }
            if let Some(listen) = circle::circle(&self.routes, number - 1) {
                let text = format!("its server is its own listener {listen}: commands would go in a circle");
                found.push(GatewayError::Config(text));
            }
            found.extend(route.listen.iter().filter_map(Listen::mistake).map(GatewayError::Config));
            for listen in &route.listen {
                let any_port = matches!(listen, Listen::Tcp(addr) | Listen::Rdma(addr) | Listen::Emulated(addr) if addr.port() == 0);
                if seen.contains(&listen) && !any_port {
                    found.push(GatewayError::Config(format!("{listen} is there twice")));
                }
                seen.push(listen);
            }
            mistakes.extend(found.into_iter().map(|mistake| match self.routes.len() {
                1 => mistake,
                _ => GatewayError::Route { number, source: mistake.into() },
            }));
        }
        if self.routes.is_empty() {
            let missing = "it needs a [[route]] with an address to listen on";
            mistakes.push(GatewayError::Config(missing.to_owned()));
        }
        GatewayError::of(mistakes)
    }

    /// Settings that fail at the start unless something, such as systemd, prepares for them.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let sockets = self.routes.iter().flat_map(|route| &route.listen);
        let folder = |listen: &Listen| match listen {
            Listen::Unix(path) => path.parent().map(Path::to_owned),
            _ => None,
        };
        let missing = sockets.filter_map(|listen| {
            let folder = folder(listen).filter(|folder| *folder != *"" && !folder.is_dir())?;
            let folder = folder.display();
            Some(format!("{listen}: there is no directory {folder}; the gateway starts only if RuntimeDirectory= of its unit, or you, make it"))
        });
        missing.collect()
    }
}

#[cfg(test)]
mod tests;
