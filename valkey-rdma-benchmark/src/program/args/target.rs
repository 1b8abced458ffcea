//! The servers that the flags name.

use valkey_rdma_client::{Endpoint, Protocol, RdmaPort, Transport};
use valkey_rdma_program::shown;
use valkey_rdma_transport::tls::Verify;

use super::{Args, Instead, Password, ServerUrl, tls};
use crate::drive::{Choice, Target};

impl Args {
    /// The server to measure.
    pub(crate) fn target(&self) -> Result<Target, Instead> {
        let endpoint = match &self.url {
            Some(url) => {
                let mut endpoint = self.log_in_by_environment(from_url("--url", url)?);
                if !url.says("protocol") {
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
        let endpoint = self.tls.apply(endpoint, self.url.as_ref())?;
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
        tls::check(&endpoint).map_err(|instead| match instead {
            Instead::Refuse(reason) => Instead::Refuse(self.in_flags(reason)),
            other => other,
        })?;
        Args::check_library(self.through.as_ref(), &endpoint)?;
        let mut target = self.finish(endpoint)?;
        target.socket = self.socket.clone();
        target.cluster = self.cluster;
        Ok(target)
    }

    /// The servers whose certificate is not verified, as reports name them.
    pub(crate) fn unverified(&self) -> Result<Vec<String>, Instead> {
        let targets = [Some(self.target()?), self.other_target()?].into_iter().flatten();
        let is_unverified =
            |target: &Target| target.endpoint.tls().is_some_and(|tls| tls.verify() == Verify::None);
        Ok(targets.filter(is_unverified).map(|target| target.to_string()).collect())
    }

    /// The server to compare it with. What its URL does not say is as for the first one, so that the same is measured;
    /// a login goes to the same host only.
    pub(crate) fn other_target(&self) -> Result<Option<Target>, Instead> {
        let Some(url) = &self.compare else { return Ok(None) };
        let (mut endpoint, one) = (from_url("--compare", url)?, self.target()?.endpoint);
        if !url.says("protocol") {
            endpoint = endpoint.with_protocol(one.protocol());
        }
        if !url.names_database() {
            endpoint = endpoint.with_database(one.database());
        }
        if endpoint.user().is_none() && !endpoint.has_login() && endpoint.host() == one.host() {
            endpoint = endpoint.with_login_of(&one);
        }
        endpoint = tls::as_first(endpoint, url, &one);
        tls::check(&endpoint)?;
        if uses_device(&endpoint) {
            if let Some(bytes) = self.rx_size.filter(|_| endpoint.rx_size().is_none()) {
                endpoint = endpoint.with_rx_size(bytes);
            }
            if self.poll.is_some() && !url.says("poll") {
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
        let through = self.compare_with.as_ref().map_or(&self.through, |other| &other.through);
        Args::check_library(through.as_ref(), &endpoint)?;
        let mut target = Target::new(endpoint);
        target.tracking = self.enable_tracking;
        Ok(Some(target))
    }

    fn check_library(library: Option<&Choice>, endpoint: &Endpoint) -> Result<(), Instead> {
        match library.and_then(|library| library.refuses(endpoint)) {
            Some(reason) => Err(Instead::Refuse(reason)),
            None => Ok(()),
        }
    }

    /// A URL without a login gets that of the environment.
    fn log_in_by_environment(&self, endpoint: Endpoint) -> Endpoint {
        if endpoint.has_login() {
            return endpoint;
        }
        let Some(password) = Password::from_environment() else {
            return endpoint;
        };
        let user = endpoint.user().unwrap_or_default().to_owned();
        endpoint.with_login(user, password.as_str())
    }

    fn finish(&self, mut endpoint: Endpoint) -> Result<Target, Instead> {
        let refuse = |reason: &str| Err(Instead::Refuse(reason.to_owned()));
        let over = endpoint.transport();
        if let Some(bytes) = self.rx_size {
            if !uses_device(&endpoint) {
                return refuse(&format!(
                    "--rx-size sets the RDMA receive window, but this server is reached over {over}"
                ));
            }
            if endpoint.rx_size().is_some() {
                return refuse("--rx-size contradicts the URL's rx_size");
            }
            endpoint = endpoint.with_rx_size(bytes);
        }
        if let Some(mode) = self.poll {
            if !uses_device(&endpoint) {
                return refuse(&format!(
                    "--poll sets how RDMA completions are awaited, but this server is reached over {over}"
                ));
            }
            if self.url.as_ref().is_some_and(|url| url.says("poll")) {
                return refuse("--poll contradicts the URL's poll");
            }
            endpoint = endpoint.with_polling(mode);
        }
        if let Some(prefix) = &self.direct_prefix {
            endpoint = endpoint.with_direct_prefix(prefix);
        }
        if self.pool && !uses_device(&endpoint) {
            return refuse(&format!(
                "--pool registers memory for RDMA, but this server is reached over {over}"
            ));
        }
        if self.pool && endpoint.tls().is_some() {
            return refuse(
                "--pool sends values without a copy, and TLS encrypts each byte into one: leave --pool out",
            );
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
        let mut endpoint = Endpoint::new(transport, self.host.as_str(), self.port);
        if let Some(password) = &self.password {
            endpoint = endpoint.with_login(self.user.clone().unwrap_or_default(), password.as_str());
        }
        endpoint.with_database(self.dbnum).with_protocol(self.protocol())
    }

    fn protocol(&self) -> Protocol {
        if self.resp3 { Protocol::Resp3 } else { Protocol::Resp2 }
    }
}

/// Whether windows, completions and pinned memory are of use: over RDMA and the emulated device.
fn uses_device(endpoint: &Endpoint) -> bool {
    matches!(endpoint.transport(), Transport::Rdma | Transport::Emulated)
}

fn from_url(flag: &str, url: &ServerUrl) -> Result<Endpoint, Instead> {
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
