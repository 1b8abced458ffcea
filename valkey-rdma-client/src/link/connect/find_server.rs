//! Servers that must be found first, and that may be another one each time: a [`Locator`] says where, and connecting tries its candidates.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::debug;
use valkey_rdma_resp::ServerErrorKind;

use super::{ConnectDeadline, Connector, Login};
use crate::command::Command;
use crate::endpoint::Endpoint;
use crate::error::ConnectCause;
use crate::link::RawConnection;
use crate::stats::Purpose;
use valkey_rdma_transport::sync::lock;

/// Finds the server to connect to.
pub(crate) trait Locator: Send + Sync {
    /// The endpoints where the primary may be, the likeliest first. `all`: also those that few report, which takes longer.
    fn candidates(&self, all: bool) -> Finding<'_, Result<Vec<Endpoint>, ConnectCause>>;

    /// Begins to listen for another primary.
    fn follow(&self);

    /// Called when a connection was made: a server at this address has the role of a primary. Follows it.
    fn found(&self, address: &str);

    /// Completes when the primary is known to be elsewhere than at this address.
    fn moved<'a>(&'a self, from: &'a str) -> Finding<'a, ()>;

    /// Completes when a primary elsewhere becomes known from now on.
    fn next_move<'a>(&'a self, from: &'a str) -> Finding<'a, ()>;
}

pub(crate) type Finding<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

impl Connector {
    /// Connects to the first candidate that is a primary, or, without a login, that can be reached. Tries again until the deadline, because
    /// a failover takes time.
    pub(super) async fn connect_located(
        &self,
        locator: &Arc<dyn Locator>,
        login: Login,
    ) -> Result<RawConnection, ConnectCause> {
        let deadline = ConnectDeadline::of(&self.endpoint);
        let mut failure = None;
        while Instant::now() < deadline.at {
            let attempt = self.try_candidates(locator, failure.is_some(), login);
            match timeout_at(deadline.at, attempt).await {
                Ok(Ok(raw)) => return Ok(raw),
                Ok(Err(cause)) if cause.is_final() => return Err(cause),
                Ok(Err(cause)) => {
                    debug!(%cause, "no primary yet");
                    failure = Some(cause);
                }
                Err(_) => break,
            }
            // The last cause says more than that the time is up.
            let _ = timeout_at(deadline.at, sleep(PAUSE)).await;
        }
        Err(failure.unwrap_or_else(|| deadline.passed(false)))
    }

    async fn try_candidates(
        &self,
        locator: &Arc<dyn Locator>,
        all: bool,
        login: Login,
    ) -> Result<RawConnection, ConnectCause> {
        let mut failure = ConnectCause::NoAddress;
        for endpoint in locator.candidates(all).await? {
            let connector = self.connector_at(&endpoint);
            let connected = connector.connect_or_fall_back(login).await.map_err(|error| error.cause);
            let connected = match login {
                Login::For(_) | Login::Plain(_) => match connected {
                    Ok(raw) => {
                        let primary = connector.only_primary(raw).await;
                        primary.inspect(|_| locator.found(&endpoint.authority()))
                    }
                    Err(cause) => Err(cause),
                },
                Login::LeftToCaller => connected.inspect(|_| locator.follow()),
            };
            failure = match connected {
                Ok(mut raw) => {
                    raw.located = Some(endpoint.authority().into());
                    return Ok(raw);
                }
                Err(cause) => cause,
            };
        }
        Err(failure)
    }

    /// The same connector for the same address, as long as connects are outstanding there: it limits how many.
    fn connector_at(&self, endpoint: &Endpoint) -> Arc<Connector> {
        let address = endpoint.authority();
        let mut connectors = lock(&self.by_address);
        connectors.retain(|known, connector| {
            *known == address
                || Arc::strong_count(connector) > 1
                || connector.device_connects.has_outstanding()
        });
        let connector = connectors
            .entry(address)
            .or_insert_with(|| Arc::new(Connector::new(endpoint.clone(), self.config.clone())));
        connector.clone()
    }

    /// Connects to a server, and asks whether it is a primary. One that refuses to say is believed to be: a dialer leaves the login to its
    /// caller.
    pub(crate) async fn check_primary(&self, endpoint: &Endpoint) -> Result<(), ConnectCause> {
        let connector = self.connector_at(endpoint);
        let asked = match connector.connect_or_fall_back(Login::For(Purpose::Dedicated)).await {
            Ok(raw) => connector.only_primary(raw).await.map(drop),
            Err(error) => Err(error.cause),
        };
        match asked {
            Err(cause) if cause.refuses_user() => Ok(()),
            asked => asked,
        }
    }

    /// Refuses a server with another role: what the Sentinels report may be old. One whose role is not known is believed to be the primary.
    async fn only_primary(&self, mut raw: RawConnection) -> Result<RawConnection, ConnectCause> {
        let role = match raw.role.take() {
            Some(role) => Some(role),
            None => self.ask_role(&mut raw).await?,
        };
        match role {
            Some(role) if role != "master" => {
                Err(ConnectCause::NotPrimary { address: self.endpoint.authority().into(), role: role.into() })
            }
            _ => Ok(raw),
        }
    }

    /// Asks the server for its role, which its reply to HELLO did not say. `None`: the user may not ask.
    async fn ask_role(&self, raw: &mut RawConnection) -> Result<Option<String>, ConnectCause> {
        let (question, mut replies) = ([Command::new("ROLE")], Vec::new());
        let limit = self.endpoint.timeout();
        let asked = timeout(limit, raw.exchange_into(&question, &mut replies));
        match asked.await {
            Ok(Ok(())) => {}
            Ok(Err(cause)) => return Err(ConnectCause::Lost(Arc::new(cause))),
            Err(_) => return Err(ConnectCause::Deadline { limit, connected: true }),
        }
        match replies.pop() {
            Some(Err(error)) if error.kind() == ServerErrorKind::NoPerm => Ok(None),
            Some(Err(error)) => Err(ConnectCause::Rejected(error)),
            Some(Ok(reply)) => {
                let role = reply.as_slice().and_then(|fields| fields.first()?.as_str());
                Ok(Some(role.unwrap_or("none").to_owned()))
            }
            None => Err(ConnectCause::NoAddress),
        }
    }

    /// True if the server of this connection is known to be the primary no more.
    pub(crate) fn has_moved(&self, raw: &RawConnection) -> bool {
        self.whereabouts(raw).is_some_and(|located| located.has_moved())
    }

    /// Completes when the connection should be given up, because its server is not the primary any more. `None`: never.
    pub(crate) fn moved(&self, raw: &RawConnection) -> Option<Finding<'static, ()>> {
        self.whereabouts(raw).map(|located| located.moved())
    }

    /// Where the server of this connection was found. `None`: it is at the endpoint's own address.
    pub(crate) fn whereabouts(&self, raw: &RawConnection) -> Option<Whereabouts> {
        Some(Whereabouts { locator: self.locator()?.clone(), address: raw.located.clone()? })
    }
}

/// Where a server was found, and by what.
pub(crate) struct Whereabouts {
    pub(crate) locator: Arc<dyn Locator>,
    pub(crate) address: Arc<str>,
}

impl Whereabouts {
    /// See [`Locator::moved`].
    pub(crate) fn moved(&self) -> Finding<'static, ()> {
        let (locator, address) = (self.locator.clone(), self.address.clone());
        Box::pin(async move { locator.moved(&address).await })
    }

    /// True if the server there is known to be the primary no more.
    pub(crate) fn has_moved(&self) -> bool {
        self.moved().as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// See [`Locator::next_move`]. It begins when it is first polled.
    pub(crate) fn next_move(&self) -> Finding<'static, ()> {
        let (locator, address) = (self.locator.clone(), self.address.clone());
        Box::pin(async move { locator.next_move(&address).await })
    }
}

/// Between two rounds of questions.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Listener};

    use super::*;
    use crate::config::Config;
    use valkey_rdma_transport::sync::Mutex;

    /// A primary that is wherever the test says.
    struct Said(Mutex<Endpoint>);

    impl Said {
        fn is_at(&self, url: &str) {
            *lock(&self.0) = url.parse().expect("a good URL");
        }
    }

    impl Locator for Said {
        fn candidates(&self, _all: bool) -> Finding<'_, Result<Vec<Endpoint>, ConnectCause>> {
            Box::pin(async { Ok(vec![lock(&self.0).clone()]) })
        }

        fn follow(&self) {}

        fn found(&self, _address: &str) {}

        fn moved<'a>(&'a self, _from: &'a str) -> Finding<'a, ()> {
            Box::pin(std::future::pending())
        }

        fn next_move<'a>(&'a self, from: &'a str) -> Finding<'a, ()> {
            self.moved(from)
        }
    }

    #[tokio::test]
    async fn only_addresses_with_an_outstanding_connect_are_remembered() {
        let endpoint: Endpoint = "emulated://service?timeout=100ms".parse().expect("a good URL");
        let said = Arc::new(Said(Mutex::new(endpoint.clone())));
        let connector = Connector::located(endpoint, Config::default(), said.clone());
        let any = "127.0.0.1:0".parse().expect("an address");
        let frozen = Listener::bind(DeviceKind::Emulated, any, &TransportConfig::default()).await;
        let frozen = frozen.expect("a free port");
        said.is_at(&format!("emulated://{}?timeout=10ms", frozen.local_addr()));
        assert!(connector.dial().await.is_err(), "it does not accept");

        let server = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
        let port = server.local_addr().expect("bound").port();
        for host in 1..=5 {
            said.is_at(&format!("valkey://127.0.0.{host}:{port}"));
            // The connector's own time limit is for the server that does not accept.
            while connector.dial().await.is_err() {}
        }
        let known: Vec<_> = lock(&connector.by_address).keys().cloned().collect();
        assert!(known.contains(&frozen.local_addr().to_string()), "{known:?}");
        assert!(known.len() <= 2, "{known:?}");
    }
}
