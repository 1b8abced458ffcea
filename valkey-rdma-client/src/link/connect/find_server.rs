//! Servers that must be found first, and that may be another one each time: a [`Locator`] says where, and connecting tries its candidates.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tracing::debug;
use valkey_rdma_resp::ServerErrorKind;

use super::{ConnectDeadline, Connector};
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
        purpose: Option<Purpose>,
    ) -> Result<RawConnection, ConnectCause> {
        let deadline = ConnectDeadline::of(&self.endpoint);
        let mut failure = None;
        while Instant::now() < deadline.at {
            match self.try_candidates(locator, failure.is_some(), purpose, &deadline).await {
                Ok(raw) => return Ok(raw),
                Err(cause) if cause.is_final() => return Err(cause),
                // An earlier cause says more than that the time is up.
                Err(_) if failure.is_some() && Instant::now() >= deadline.at => break,
                Err(cause) => {
                    debug!(%cause, "no primary yet");
                    failure = Some(cause);
                }
            }
            let _ = timeout_at(deadline.at, sleep(PAUSE)).await;
        }
        Err(failure.unwrap_or_else(|| deadline.passed(false)))
    }

    async fn try_candidates(
        &self,
        locator: &Arc<dyn Locator>,
        all: bool,
        purpose: Option<Purpose>,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let mut failure = ConnectCause::NoAddress;
        let candidates = timeout_at(deadline.at, locator.candidates(all)).await;
        for endpoint in candidates.map_err(|_| deadline.passed(false))?? {
            let connector = self.connector_at(&endpoint);
            // Each step has the same deadline, so that its own error says what took too long.
            let connected = connector.connect_by(deadline, purpose).await;
            let connected = match purpose {
                Some(_) => match connected {
                    Ok(raw) => {
                        let primary = connector.only_primary(raw, deadline).await;
                        primary.inspect(|_| locator.found(&endpoint.authority()))
                    }
                    Err(cause) => Err(cause),
                },
                None => connected.inspect(|_| locator.follow()),
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
                || connector.bulk_connects.has_outstanding()
        });
        let connector = connectors.entry(address).or_insert_with(|| {
            let connector = Connector::new(endpoint.clone(), self.config.clone());
            Arc::new(Connector { observer: self.observer.clone(), ..connector })
        });
        connector.clone()
    }

    /// Connects to a server, and asks whether it is a primary. One that refuses to say is believed to be: a dialer leaves the login to its
    /// caller. So is one that cannot be asked for want of a password, which says nothing about its role.
    pub(crate) async fn check_primary(&self, endpoint: &Endpoint) -> Result<(), ConnectCause> {
        let connector = self.connector_at(endpoint);
        let deadline = ConnectDeadline::of(endpoint);
        let asked = match connector.connect_by(&deadline, Some(Purpose::Call)).await {
            Ok(raw) => connector.only_primary(raw, &deadline).await.map(drop),
            Err(cause) => Err(cause),
        };
        match asked {
            Err(cause) if cause.refuses_user() || matches!(cause, ConnectCause::Password(_)) => Ok(()),
            asked => asked,
        }
    }

    /// Refuses a server with another role: what the Sentinels report may be old. One whose role is not known is believed to be the primary.
    async fn only_primary(
        &self,
        mut raw: RawConnection,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        match role_of(&mut raw, deadline).await? {
            Some(role) if role != "master" => {
                Err(ConnectCause::NotPrimary { address: self.endpoint.authority().into(), role: role.into() })
            }
            _ => Ok(raw),
        }
    }

    /// True if the server of this connection is known to be the primary no more.
    pub(crate) fn has_moved(&self, raw: &RawConnection) -> bool {
        raw.is_outdated() || self.whereabouts(raw).is_some_and(|located| located.has_moved())
    }

    /// Completes when the connection should be given up, because its server is not the primary any more. `None`: never.
    pub(crate) fn moved(&self, raw: &RawConnection) -> Option<Finding<'static, ()>> {
        self.whereabouts(raw).map(|located| located.moved()).or_else(|| Self::outdates(raw))
    }

    /// Where the server of this connection was found. `None`: it is at the endpoint's own address.
    pub(crate) fn whereabouts(&self, raw: &RawConnection) -> Option<Whereabouts> {
        Some(Whereabouts { locator: self.locator()?.clone(), address: raw.located.clone()? })
    }
}

/// The server's role, by its reply to HELLO or else to ROLE. `None`: the user may not ask.
pub(super) async fn role_of(
    raw: &mut RawConnection,
    deadline: &ConnectDeadline,
) -> Result<Option<String>, ConnectCause> {
    if let Some(role) = raw.role.take() {
        return Ok(Some(role));
    }
    let (question, mut replies) = ([Command::new("ROLE")], Vec::new());
    match timeout_at(deadline.at, raw.exchange_into(&question, &mut replies)).await {
        Ok(Ok(())) => {}
        Ok(Err(cause)) => return Err(ConnectCause::of_login(cause)),
        Err(_) => return Err(deadline.passed(true)),
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
    use std::future::pending;
    use std::io;

    use tokio::net::TcpListener;
    use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Listener};

    use super::*;
    use crate::config::{Config, Credentials};
    use crate::error::PasswordError;
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
            Box::pin(async {
                sleep(Duration::from_millis(1)).await;
                Ok(vec![lock(&self.0).clone()])
            })
        }

        fn follow(&self) {}

        fn found(&self, _address: &str) {}

        fn moved<'a>(&'a self, _from: &'a str) -> Finding<'a, ()> {
            Box::pin(pending())
        }

        fn next_move<'a>(&'a self, from: &'a str) -> Finding<'a, ()> {
            self.moved(from)
        }
    }

    /// Before, the search's own limit came first: "no answer within 3s", though no server had been asked.
    #[tokio::test(start_paused = true)]
    async fn a_slow_provider_of_credentials_is_named_behind_sentinels_too() {
        let endpoint: Endpoint = "valkey://service?timeout=3s".parse().expect("a good URL");
        let never = Config::default().credentials(pending::<Result<Credentials, io::Error>>);
        let connector = Connector::located(endpoint.clone(), never, Arc::new(Said(Mutex::new(endpoint))));
        let error = connector.connect(Purpose::Call).await.expect_err("no password");
        let ConnectCause::Password(reason) = error.cause() else { panic!("{error:?}") };
        assert!(matches!(**reason, PasswordError::SlowProvider { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_asked_without_a_password_is_believed_to_be_the_primary() {
        let endpoint: Endpoint = "valkey://127.0.0.1:1".parse().expect("a good URL");
        let fails = async || Err::<Credentials, _>(io::Error::other("no token"));
        let connector = Connector::new(endpoint.clone(), Config::default().credentials(fails));
        connector.check_primary(&endpoint).await.expect("nothing speaks against it");
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
