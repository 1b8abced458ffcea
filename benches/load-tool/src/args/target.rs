//! The servers that the flags name.

use valkey_rdma_client::{Endpoint, Polling, Protocol, RdmaPort, Transport};
use valkey_rdma_program::shown;

use super::{Args, Instead, Password, ServerUrl};
use crate::generator::Target;

impl Args {
    /// The server to measure.
    pub(crate) fn target(&self) -> Result<Target, Instead> {
        let endpoint = match &self.url {
            Some(url) => {
                let mut endpoint = self.log_in_by_environment(from_url("--url", url)?);
                if !says(url, "protocol") {
                    endpoint = endpoint.with_protocol(self.protocol());
                } else if self.resp3 && endpoint.protocol() != Protocol::Resp3 {
                    return Err(Instead::Refuse("-3 contradicts the URL's protocol".to_owned()));
                }
                endpoint
            }
            None if shown(&self.host) != self.host => {
                return Err(Instead::Refuse(format!(
                    "-h is a host, not {}: give URLs to -u",
                    shown(&self.host)
                )));
            }
            None => self.endpoint(),
        };
        if endpoint.is_cluster() {
            return Err(Instead::Refuse(
                "--url: give one node of the cluster, without +cluster, and --cluster".to_owned(),
            ));
        }
        if endpoint.rdma_port() != RdmaPort::Same && !self.cluster {
            return Err(Instead::Refuse(
                "--url: rdma_port is for --cluster: give the server's RDMA port in the URL".to_owned(),
            ));
        }
        let mut target = self.finish(endpoint)?;
        target.socket = self.socket.clone();
        target.cluster = self.cluster;
        Ok(target)
    }

    /// The server to compare it with. What its URL does not say is as for the first one, so that the same is measured;
    /// a login goes to the same host only.
    pub(crate) fn other_target(&self) -> Result<Option<Target>, Instead> {
        let Some(url) = &self.compare else { return Ok(None) };
        let (mut endpoint, one) = (from_url("--compare", url)?, self.target()?.endpoint);
        if !says(url, "protocol") {
            endpoint = endpoint.with_protocol(one.protocol());
        }
        if !names_database(url) {
            endpoint = endpoint.with_database(one.database());
        }
        if endpoint.user().is_none() && endpoint.password().is_none() && endpoint.host() == one.host() {
            endpoint = match (one.user(), one.password()) {
                (Some(user), Some(password)) => endpoint.with_login(user, password),
                (None, Some(password)) => endpoint.with_password(password),
                (_, None) => endpoint,
            };
        }
        if endpoint.transport() != Transport::Tcp {
            if let Some(bytes) = self.rx_size.filter(|_| endpoint.rx_size().is_none()) {
                endpoint = endpoint.with_rx_size(bytes);
            }
            if self.poll.is_some() && !says(url, "poll") {
                endpoint = endpoint.with_polling(one.polling());
            }
        }
        if endpoint.protocol() != one.protocol() || endpoint.database() != one.database() {
            return Err(Instead::Refuse(format!(
                "--compare: its URL says {} and database {}, and the other server is asked for {} and database {}: \
                 two servers are compared with the same protocol and database",
                endpoint.protocol(),
                endpoint.database(),
                one.protocol(),
                one.database(),
            )));
        }
        let mut target = Target::new(endpoint);
        target.tracking = self.enable_tracking;
        Ok(Some(target))
    }

    /// A URL without a password gets that of the environment.
    fn log_in_by_environment(&self, endpoint: Endpoint) -> Endpoint {
        if endpoint.password().is_some() {
            return endpoint;
        }
        let Some(password) = Password::from_environment(|name| std::env::var(name).ok()) else {
            return endpoint;
        };
        match endpoint.user().map(str::to_owned) {
            Some(user) => endpoint.with_login(&user, password.as_str()),
            None => endpoint.with_password(password.as_str()),
        }
    }

    fn finish(&self, mut endpoint: Endpoint) -> Result<Target, Instead> {
        let refuse = |reason: &str| Err(Instead::Refuse(reason.to_owned()));
        if let Some(bytes) = self.rx_size {
            if endpoint.transport() == Transport::Tcp {
                return refuse("--rx-size sets the RDMA receive window, but this server is reached over TCP");
            }
            if endpoint.rx_size().is_some() {
                return refuse("--rx-size contradicts the URL's rx_size");
            }
            endpoint = endpoint.with_rx_size(bytes);
        }
        if let Some(mode) = &self.poll {
            if endpoint.transport() == Transport::Tcp {
                return refuse(
                    "--poll sets how RDMA completions are awaited, but this server is reached over TCP",
                );
            }
            if self.url.as_ref().is_some_and(|url| says(url, "poll")) {
                return refuse("--poll contradicts the URL's poll");
            }
            let mode = mode.parse::<Polling>();
            endpoint =
                endpoint.with_polling(mode.map_err(|error| Instead::Refuse(format!("--poll: {error}")))?);
        }
        if self.pool && endpoint.transport() == Transport::Tcp {
            return refuse("--pool registers memory for RDMA, but this server is reached over TCP");
        }
        let mut target = Target::new(endpoint);
        target.tracking = self.enable_tracking;
        Ok(target)
    }

    fn endpoint(&self) -> Endpoint {
        let transport = match self.transport {
            super::Transport::Rdma => Transport::Rdma,
            super::Transport::Tcp => Transport::Tcp,
            super::Transport::Emulated => Transport::Emulated,
        };
        let endpoint = Endpoint::new(transport, self.host.as_str(), self.port);
        let endpoint = match (&self.user, &self.password) {
            (Some(user), Some(password)) => endpoint.with_login(user, password.as_str()),
            (None, Some(password)) => endpoint.with_password(password.as_str()),
            (_, None) => endpoint,
        };
        endpoint.with_database(self.dbnum).with_protocol(self.protocol())
    }

    fn protocol(&self) -> Protocol {
        if self.resp3 { Protocol::Resp3 } else { Protocol::Resp2 }
    }
}

/// Whether a URL has this option.
fn says(url: &ServerUrl, option: &str) -> bool {
    let query = url.as_str().split_once('?').map_or("", |(_, query)| query);
    query.split('&').any(|said| said.split('=').next() == Some(option))
}

/// Whether a URL has a path, which is the number of a database.
fn names_database(url: &ServerUrl) -> bool {
    let place = url.as_str().split(['?', '#']).next().unwrap_or_default();
    let place = place.split_once("://").map_or(place, |(_, place)| place);
    place.split_once('/').is_some_and(|(_, database)| !database.is_empty())
}

fn from_url(flag: &str, url: &ServerUrl) -> Result<Endpoint, Instead> {
    let scheme = url.as_str().split("://").next().unwrap_or_default();
    if matches!(scheme, "valkeys" | "rediss") {
        return Err(Instead::Refuse(format!("{flag}: {scheme}:// is TLS: {}", super::REFUSED[5].1)));
    }
    let endpoint =
        url.as_str().parse::<Endpoint>().map_err(|error| Instead::Refuse(format!("{flag}: {error}")))?;
    match unmeasurable(&endpoint) {
        Some(reason) => Err(Instead::Refuse(format!("{flag}: {reason}"))),
        None => Ok(endpoint),
    }
}

/// Why a server is not measured as its URL says.
fn unmeasurable(endpoint: &Endpoint) -> Option<&'static str> {
    if endpoint.sentinels().is_some() {
        return Some("Sentinels name another server after a failover: give the URL of the server to measure");
    }
    endpoint.fallback().then_some(
        "with fallback=tcp, figures of TCP could pass for those of RDMA: leave it out, and measure valkey:// apart",
    )
}
