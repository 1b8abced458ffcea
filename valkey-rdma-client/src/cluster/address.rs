//! [`PortRules`]: from the address that a cluster announces to the endpoint to connect to.
//!
//! A cluster announces TCP ports only. In this order: the program's own mapping, then the rule of the URL (`rdma_port=`).

use tokio::time::timeout;

use crate::command::Command;
use crate::config::{Config, CredentialsProvider};
use crate::endpoint::{AddressMap, Endpoint, MappedAddress, NodeAddress, RdmaPort, Transport};
use crate::error::{ClusterError, Error};
use crate::events::ServerEvents;
use crate::link::Connector;
use crate::server::Server;

/// How to find the endpoint of a node.
pub(crate) struct PortRules {
    /// Of the seeds: scheme, login and options.
    pub(super) template: Endpoint,
    pub(super) map: Option<AddressMap>,
    /// Logs in where a node is asked for its port.
    pub(super) credentials: Option<CredentialsProvider>,
}

impl PortRules {
    /// The rule of the URL alone. Nodes that are asked get the login of `config`.
    pub(crate) fn new(template: Endpoint, config: &Config) -> Self {
        Self { template, map: None, credentials: config.credentials.clone() }
    }

    /// True if nodes are reached where they are announced.
    pub(super) fn is_direct(&self) -> bool {
        self.map.is_none() && self.template.rdma_port() == RdmaPort::Same
    }

    /// The endpoint of a node. Asks the node over TCP if the rule says so.
    pub(crate) async fn endpoint(&self, announced: &NodeAddress) -> Result<Endpoint, Error> {
        let at = |address: &NodeAddress, port: u16| {
            let endpoint =
                self.template.clone().with_rdma_port(RdmaPort::Same).with_address(&*address.host, port);
            if self.template.transport() != Transport::Tcp && port != address.port {
                endpoint.with_tcp_port(address.port)
            } else {
                endpoint
            }
        };
        match self.map.as_ref().and_then(|map| map(announced)) {
            Some(MappedAddress::At(address)) => return Ok(at(&address, address.port)),
            Some(MappedAddress::Tcp(address)) => {
                return Ok(self.template.over_tcp(address.host, address.port));
            }
            None => {}
        }
        if self.template.transport() == Transport::Tcp {
            return Ok(at(announced, announced.port));
        }
        let rule = self.template.rdma_port();
        if let Some(port) = rule.of(announced.port) {
            return Ok(at(announced, port));
        }
        let unknown = |reason: String| ClusterError::NoRdmaPort { address: announced.to_string(), reason };
        if rule != RdmaPort::Discover {
            return Err(unknown(format!("{} {rule} exceeds 65535", announced.port)).into());
        }
        match self.discover(announced).await? {
            Some(port) => Ok(at(announced, port)),
            None if self.template.fallback() => Ok(self.template.over_tcp(&*announced.host, announced.port)),
            None => Err(unknown("INFO server lists no RDMA listener".to_owned()).into()),
        }
    }

    /// Asks the node over TCP for the port of its RDMA listener.
    async fn discover(&self, announced: &NodeAddress) -> Result<Option<u16>, Error> {
        let endpoint = self.template.over_tcp(&*announced.host, announced.port);
        let limit = endpoint.timeout();
        let mut config = Config::default().reconnect(None).command_timeout(limit);
        config.credentials.clone_from(&self.credentials);
        let ask = async {
            let client = Server::start(Connector::new(endpoint, config), None, ServerEvents::alone()).await?;
            client.execute(Command::from_args(["INFO", "server"])).await
        };
        let info = timeout(limit, ask).await.map_err(|_| ClusterError::NoRdmaPort {
            address: announced.to_string(),
            reason: format!("no answer to INFO over TCP within {limit:?}"),
        })??;
        Ok(info.as_str().and_then(rdma_listener))
    }
}

/// The port of the RDMA listener in the text of INFO: `listener3:name=rdma,bind=10.0.0.7,port=6379`.
///
/// Source: valkey `src/connection.c`, `getListensInfoString`.
fn rdma_listener(info: &str) -> Option<u16> {
    let listeners = info.lines().filter(|line| line.starts_with("listener"));
    let mut fields =
        listeners.filter_map(|line| line.split_once(':')).map(|(_, fields)| fields.trim().split(','));
    let mut rdma = fields.find(|fields| fields.clone().any(|field| field == "name=rdma"))?;
    rdma.find_map(|field| field.strip_prefix("port=")?.parse().ok().filter(|port| *port != 0))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn rules(url: &str) -> PortRules {
        PortRules::new(url.parse().expect("a URL"), &Config::default())
    }

    async fn port(url: &str, announced: u16) -> Result<u16, Error> {
        rules(url).endpoint(&NodeAddress::new("10.0.0.9", announced)).await.map(|found| found.port())
    }

    #[tokio::test]
    async fn the_rule_of_the_url_gives_the_rdma_port_and_tcp_keeps_the_announced_one() {
        assert_eq!(port("rdma://h:1", 7000).await.expect("same"), 7000);
        assert_eq!(port("rdma://h:1?rdma_port=+100", 7000).await.expect("sum"), 7100);
        assert_eq!(port("rdma://h:1?rdma_port=5", 7000).await.expect("fixed"), 5);
        let error = port("rdma://h:1?rdma_port=+60000", 7000).await.expect_err("too large");
        assert!(error.to_string().contains("7000 +60000 exceeds 65535"), "{error}");

        let url = "rdma://h:1?rdma_port=+100&fallback=tcp";
        let endpoint = rules(url).endpoint(&NodeAddress::new("10.0.0.9", 7000)).await.expect("a rule");
        assert_eq!(endpoint.port_on(Transport::Rdma), 7100);
        assert_eq!(endpoint.port_on(Transport::Tcp), 7000);
    }

    #[tokio::test]
    async fn the_programs_mapping_comes_first() {
        let mut rules = rules("rdma://:secret@h:1?rdma_port=5&rx_size=65536");
        rules.map = Some(Arc::new(|announced| match announced.port {
            1 => Some(MappedAddress::At(NodeAddress::new("fabric", 11))),
            2 => Some(MappedAddress::Tcp(NodeAddress::new("plain", 12))),
            _ => None,
        }));
        let mut found = Vec::new();
        for port in 1..=3 {
            let endpoint = rules.endpoint(&NodeAddress::new("h", port)).await.expect("mapped");
            endpoint.check().expect("valid");
            found.push((endpoint.transport(), endpoint.host().to_owned(), endpoint.port()));
            assert_eq!(endpoint.password(), Some("secret"));
        }
        let at = |transport, host: &str, port| (transport, host.to_owned(), port);
        assert_eq!(
            found,
            [at(Transport::Rdma, "fabric", 11), at(Transport::Tcp, "plain", 12), at(Transport::Rdma, "h", 5)]
        );
    }

    /// The nodes of a cluster announce such addresses without the interface.
    #[tokio::test]
    async fn a_link_local_node_is_on_the_interface_of_the_seed_also_over_tcp() {
        let mut rules = rules("rdma://[fe80::1%25eth0]:1");
        rules.map = Some(Arc::new(|announced| match announced.port {
            1 => Some(MappedAddress::At(announced.clone())),
            _ => Some(MappedAddress::Tcp(announced.clone())),
        }));
        for port in [1, 2] {
            let endpoint = rules.endpoint(&NodeAddress::new("fe80::2", port)).await.expect("mapped");
            assert_eq!(endpoint.host(), "fe80::2%eth0");
        }
    }

    #[test]
    fn the_rdma_listener_is_found_among_others() {
        let info = "# Server\r\nlistener0:name=tcp,bind=*,bind=-::*,port=6379\r\n\
                    listener3:name=rdma,bind=10.0.0.7,port=6380\r\ntcp_port:6379\r\n";
        assert_eq!(rdma_listener(info), Some(6380));
        assert_eq!(rdma_listener("listener0:name=tcp,bind=*,port=6379\r\n"), None);
        assert_eq!(rdma_listener("listener0:name=rdma,port=nonsense\r\nlistener"), None);
    }
}
