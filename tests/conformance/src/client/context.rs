//! The scripted server of a case, and the client that is run against it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use valkey_rdma_mock::faults::Faults;
use valkey_rdma_mock::{Mock, Server, TransportConfig};
use valkey_rdma_program::error_chain;
use valkey_rdma_transport::{DeviceKind, FeatureSet, Listener, device};

use super::subject::{Ended, Subject};
use super::witness::Witnesses;
use crate::peer::{Finding, Transcript};

/// A client under test, and where the scripted servers listen for it.
pub struct Context {
    pub(super) device: DeviceKind,
    pub(super) bind: IpAddr,
    pub(super) subject: Subject,
    pub(super) patience: Duration,
    pub(super) transcript: Transcript,
    /// The client fails without faults too, so its failure with faults shows nothing.
    pub(super) unserved: bool,
    /// Why the client could not be started.
    pub(super) not_started: Option<String>,
}

impl Context {
    /// The client must end with success, and keep the rules.
    pub(super) async fn served(&mut self, faults: Option<&str>, window: u32) -> Result<(), Finding> {
        let config = TransportConfig::default().rx_size(window);
        self.served_by(faults, &config).await
    }

    /// As [`served`](Self::served), by a server that sends no keepalives.
    pub(super) async fn served_without_keepalives(&mut self, window: u32) -> Result<(), Finding> {
        let config = TransportConfig::default().rx_size(window).keepalive(None);
        self.served_by(None, &config).await
    }

    async fn served_by(&mut self, faults: Option<&str>, config: &TransportConfig) -> Result<(), Finding> {
        let (ended, broken) = self.run(faults, config).await?;
        match (ended, broken) {
            (Ended::Well, None) => Ok(()),
            (Ended::Well, Some(rule)) => Err(Finding::failed(rule)),
            (ended, None) => Err(Finding::failed(ended.to_string())),
            (ended, Some(rule)) => Err(Finding::failed(format!("{rule}; {ended}"))),
        }
    }

    /// The client must report an error, and keep the rules until then.
    pub(super) async fn fails(&mut self, faults: &str, window: u32) -> Result<(), Finding> {
        if self.unserved {
            return Err(Finding::not_run("the client fails without faults too"));
        }
        let config = TransportConfig::default().rx_size(window);
        match self.run(Some(faults), &config).await? {
            (Ended::Error(_), None) => Ok(()),
            (_, Some(rule)) => Err(Finding::failed(rule)),
            (ended, None) => Err(Finding::failed(ended.to_string())),
        }
    }

    /// The client must end, with success or with an error.
    pub(super) async fn ends(&mut self, faults: &str, window: u32) -> Result<(), Finding> {
        let config = TransportConfig::default().rx_size(window);
        match self.run(Some(faults), &config).await? {
            (Ended::Error(_) | Ended::Well, None) => Ok(()),
            (_, Some(rule)) => Err(Finding::failed(rule)),
            (ended, None) => Err(Finding::failed(ended.to_string())),
        }
    }

    /// Runs the client against a server with these faults. Returns how it ended, and the first rule it broke.
    async fn run(
        &mut self,
        faults: Option<&str>,
        config: &TransportConfig,
    ) -> Result<(Ended, Option<String>), Finding> {
        let addr = SocketAddr::new(self.bind, 0);
        // As a server that offers direct transfers. Clients that do not ask for them notice nothing.
        let options = config.clone().offers(FeatureSet::DIRECT).device_options();
        let honest = device::listen(self.device, addr, &options).await?;
        let addr = honest.local_addr();
        let witnesses = Witnesses::new(self.transcript.clone());
        let mut device = witnesses.listener(honest);
        let faults: Option<Faults> = match faults {
            None => None,
            Some(text) => Some(text.parse().map_err(|error| Finding::not_run(format!("{error}")))?),
        };
        if let Some(faults) = &faults {
            device = faults.listener(device);
        }
        let listener = Listener::over(device, config);
        let server = Server::builder(Mock::new())
            .direct(true)
            .listener(listener)
            .start()
            .await
            .map_err(|error| Finding::not_run(format!("no server: {}", error_chain(&error))))?;
        let ended = self.subject.run(self.device, addr, self.patience).await;
        drop(server);
        if let Ended::NotStarted(why) = &ended {
            self.not_started = Some(why.clone());
            return Err(Finding::failed(why.clone()));
        }
        if witnesses.connections() == 0 && faults.as_ref().is_none_or(|faults| faults.happened() == 0) {
            return Err(Finding::failed(format!("the client did not connect; {ended}")));
        }
        if faults.as_ref().is_some_and(|faults| faults.happened() == 0) {
            return match (ended, witnesses.broken()) {
                (Ended::Well, _) => {
                    Err(Finding::not_run("the client sent too little for the fault to happen"))
                }
                (Ended::Error(text), None) => {
                    Err(Finding::not_run(format!("the client failed before the fault could happen: {text}")))
                }
                other => Ok(other),
            };
        }
        Ok((ended, witnesses.broken()))
    }
}
