//! The primary of a service, found and followed by Sentinel.

mod ask;
mod follow;
mod votes;

use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{debug, info};

use crate::cluster::PortRules;
use crate::config::Config;
use crate::endpoint::{Endpoint, Sentinels};
use crate::error::ConnectCause;
use crate::link::{Connector, Finding, Locator};
use crate::server::Server;
use ask::Sentinel;

impl Server {
    /// What makes the connections of a client: to the endpoint, or to the primary that its Sentinels report.
    pub(crate) fn connector_for(endpoint: Endpoint, config: Config) -> Connector {
        match endpoint.sentinels() {
            None => Connector::new(endpoint, config).following_name(),
            Some(sentinels) => {
                let service = Arc::new(Service::new(sentinels, &endpoint, &config));
                Connector::located(endpoint, config, Arc::new(Follower { service, tasks: OnceLock::new() }))
            }
        }
    }
}

/// A service, and who knows its primary.
struct Service {
    name: String,
    sentinels: Vec<Arc<Sentinel>>,
    rules: PortRules,
    /// Asks servers whether they are the primary.
    inquirer: Connector,
    /// The address of the primary, as it is connected to. Empty until one was found.
    primary: watch::Sender<Arc<str>>,
}

impl Service {
    fn new(sentinels: &Sentinels, endpoint: &Endpoint, config: &Config) -> Self {
        let asked =
            sentinels.endpoints(endpoint).into_iter().map(|endpoint| Arc::new(Sentinel::new(endpoint)));
        let template = endpoint.clone().without_sentinels();
        Self {
            name: sentinels.service().to_owned(),
            sentinels: asked.collect(),
            inquirer: Connector::new(template.clone(), config.clone()),
            rules: PortRules::new(template, config),
            primary: watch::Sender::new("".into()),
        }
    }

    /// Where the primary may be, by the votes of most Sentinels, or of all.
    async fn candidates(&self, all: bool) -> Result<Vec<Endpoint>, ConnectCause> {
        let mut candidates = Vec::new();
        let mut failure = None;
        for address in votes::collect(&self.name, &self.sentinels, all).await? {
            match self.rules.endpoint(&address).await {
                Ok(endpoint) => candidates.push(endpoint),
                Err(error) => failure = Some((address, error)),
            }
        }
        match failure {
            Some((address, error)) if candidates.is_empty() => Err(ConnectCause::NoPrimaryPort {
                address: address.to_string().into(),
                reason: format!("{error:#}").into(),
            }),
            _ => Ok(candidates),
        }
    }

    /// Asks all Sentinels after one has reported a switch. If most report another server, and that says that it is a primary,
    /// connections to the old one are given up. Right after a failover most Sentinels may still report the old primary.
    async fn switched(&self) {
        let Ok(candidates) = self.candidates(false).await else { return };
        let Some(first) = candidates.first() else { return };
        let address = first.authority();
        if **self.primary.borrow() == *address {
            return;
        }
        match self.inquirer.check_primary(first).await {
            Ok(()) => self.set_primary(&address),
            Err(cause) => debug!(service = self.name, %address, %cause, "no switch to this server"),
        }
    }

    fn set_primary(&self, address: &str) {
        self.primary.send_if_modified(|primary| {
            let differs = **primary != *address;
            if differs {
                info!(service = self.name, from = %primary, to = %address, "the primary");
                *primary = address.into();
            }
            differs
        });
    }
}

/// A service, and the tasks that listen to its Sentinels. They end when it is dropped.
struct Follower {
    service: Arc<Service>,
    tasks: OnceLock<JoinSet<()>>,
}

impl Locator for Follower {
    fn candidates(&self, all: bool) -> Finding<'_, Result<Vec<Endpoint>, ConnectCause>> {
        Box::pin(self.service.candidates(all))
    }

    fn found(&self, address: &str) {
        self.service.set_primary(address);
        self.follow();
    }

    fn follow(&self) {
        self.tasks.get_or_init(|| {
            let mut tasks = JoinSet::new();
            for sentinel in &self.service.sentinels {
                let service: Weak<Service> = Arc::downgrade(&self.service);
                tasks.spawn(follow::follow(sentinel.clone(), service));
            }
            tasks
        });
    }

    fn moved<'a>(&'a self, from: &'a str) -> Finding<'a, ()> {
        let mut primary = self.service.primary.subscribe();
        Box::pin(async move {
            // The sender lives as long as `self`.
            let _ = primary.wait_for(|primary| **primary != *from).await;
        })
    }

    fn next_move<'a>(&'a self, from: &'a str) -> Finding<'a, ()> {
        let mut primary = self.service.primary.subscribe();
        Box::pin(
            async move { while primary.changed().await.is_ok() && **primary.borrow_and_update() == *from {} },
        )
    }
}
