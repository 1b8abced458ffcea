//! One Sentinel, and the question where the primary is.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_resp::ServerErrorKind;

use crate::command::Command;
use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::endpoint::NodeAddress;
use crate::error::{ConnectCause, ConnectError};
use crate::link::{Connector, RawConnection, Redialer};
use crate::stats::Purpose;

/// One Sentinel.
pub(super) struct Sentinel {
    connector: Connector,
    limit: Duration,
}

/// What a Sentinel says.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Primary(NodeAddress),
    /// It does not know the service, or no primary of it.
    Unknown,
    /// It did not answer, or not with an address.
    Failed(String),
}

impl Sentinel {
    pub(super) fn new(mut endpoint: Endpoint) -> Self {
        // One that is dead must leave time for the others, and for the server.
        let limit = endpoint.timeout() / 2;
        endpoint = endpoint.with_timeout(limit);
        Self { connector: Connector::new(endpoint, Config::default()), limit }
    }

    pub(super) fn address(&self) -> String {
        self.connector.endpoint.authority()
    }

    /// How its connections behave.
    pub(super) fn config(&self) -> &Config {
        &self.connector.config
    }

    /// Makes the connection that listens again.
    pub(super) fn redialer(&self) -> Redialer {
        let Connector { config, server_is_back, .. } = &self.connector;
        Redialer::new(config.reconnect.unwrap_or_default(), config, server_is_back.subscribe())
    }

    pub(super) async fn connect(&self) -> Result<RawConnection, ConnectError> {
        self.connector.connect(Purpose::Subscriber).await
    }

    /// Where the primary is.
    pub(super) async fn ask(&self, service: &str) -> Answer {
        let question = Command::from_args(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", service]);
        let ask = async {
            let mut raw = self.connect().await.map_err(|error| why(&error))?;
            let peer = self.connector.endpoint.authority();
            let mut replies = Vec::new();
            let exchanged = raw.exchange_into(&[question], &mut replies).await;
            exchanged.map_err(|cause| ConnectCause::Lost(Arc::new(cause)).to_string())?;
            match replies.pop() {
                Some(Ok(reply)) => match reply.convert::<Option<(String, u16)>>() {
                    Ok(None) => Ok(Answer::Unknown),
                    Ok(Some((host, port))) if !host.is_empty() && port != 0 => {
                        Ok(Answer::Primary(NodeAddress::new(host, port)))
                    }
                    Ok(Some(_)) => Err(format!("{peer} reports no address")),
                    Err(error) => Err(format!("{peer} reports no address: {error}")),
                },
                Some(Err(error)) => Err(format!("{peer} says \"{error}\"; is it a Sentinel?")),
                None => Err(format!("{peer} did not answer")),
            }
        };
        let late =
            || Err(format!("{} did not answer within {:?}", self.connector.endpoint.authority(), self.limit));
        timeout(self.limit, ask).await.unwrap_or_else(|_| late()).unwrap_or_else(Answer::Failed)
    }
}

/// Why a Sentinel cannot be asked. Its login is not that of the servers, which the URL has before the host.
fn why(error: &ConnectError) -> String {
    use ServerErrorKind::{NoAuth, WrongPass};
    match error.cause() {
        ConnectCause::Rejected(refusal) if matches!(refusal.kind(), NoAuth | WrongPass) => {
            format!(
                "a Sentinel said \"{refusal}\"; give the Sentinels' own login as sentinel_user= and sentinel_password= in the URL"
            )
        }
        _ => format!("{error:#}"),
    }
}
