//! The servers that the flags name.

use valkey_rdma_client::{Endpoint, Polling, Protocol, Transport};

use super::{Args, Instead, ServerUrl};
use crate::generator::Target;

impl Args {
    /// The server to measure.
    ///
    /// # Errors
    /// [`Instead::Refuse`] if its URL makes no sense, or contradicts another flag.
    pub fn target(&self) -> Result<Target, Instead> {
        let endpoint = match &self.url {
            Some(url) => from_url("--url", url)?,
            None => self.endpoint(),
        };
        let mut target = self.finish(endpoint)?;
        target.socket = self.socket.clone();
        Ok(target)
    }

    /// The server to compare it with.
    ///
    /// # Errors
    /// As [`target`](Self::target).
    pub fn other_target(&self) -> Result<Option<Target>, Instead> {
        let Some(url) = &self.compare else { return Ok(None) };
        let mut target = Target::new(from_url("--compare", url)?);
        target.tracking = self.enable_tracking;
        Ok(Some(target))
    }

    fn finish(&self, mut endpoint: Endpoint) -> Result<Target, Instead> {
        let refuse = |reason: &str| Err(Instead::Refuse(reason.to_owned()));
        if let Some(bytes) = self.rx_size {
            if endpoint.transport() == Transport::Tcp {
                return refuse(
                    "--rx-size is the size of an RDMA window, and this server is reached over TCP",
                );
            }
            if endpoint.rx_size().is_some() {
                return refuse("--rx-size contradicts the URL's rx_size");
            }
            endpoint.set_rx_size(bytes);
        }
        if let Some(mode) = &self.poll {
            if endpoint.transport() == Transport::Tcp {
                return refuse("--poll is about RDMA completions, and this server is reached over TCP");
            }
            if self.url.as_ref().is_some_and(|url| url.as_str().contains("poll=")) {
                return refuse("--poll contradicts the URL's poll");
            }
            let mode = mode.parse::<Polling>();
            endpoint.set_polling(mode.map_err(|error| Instead::Refuse(format!("--poll: {error}")))?);
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
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => drop(endpoint.set_login(user, password.as_str())),
            (None, Some(password)) => drop(endpoint.set_password(password.as_str())),
            (_, None) => {}
        }
        endpoint.set_database(self.dbnum);
        endpoint.set_protocol(if self.resp3 { Protocol::Resp3 } else { Protocol::Resp2 });
        endpoint
    }
}

fn from_url(flag: &str, url: &ServerUrl) -> Result<Endpoint, Instead> {
    let scheme = url.as_str().split("://").next().unwrap_or_default();
    if matches!(scheme, "valkeys" | "rediss") {
        return Err(Instead::Refuse(format!("{flag}: {scheme}:// is TLS: {}", super::REFUSED[6].1)));
    }
    url.as_str().parse::<Endpoint>().map_err(|error| Instead::Refuse(format!("{flag}: {error}")))
}
