//! What there is to say about a device.

use super::super::mtu;
use super::super::probes::{Probes, Trial, Tried};
use super::super::{Container, Root, libraries};
use super::kind::provider;
use super::{Device, Interface, Kind, Port, is_link_local};
use crate::report::{Finding, Section};

impl Device {
    /// All findings about the device.
    pub(in super::super) fn section(&self, root: &Root, probes: &Probes, container: Container) -> Section {
        let mut section = Section::about("device", &self.name);
        section.push(self.driver_finding());
        section.push(self.transport_finding());
        section.findings.extend(self.provider_finding(root));
        for port in &self.ports {
            section.push(self.port_finding(port));
        }
        let trial = self.trial(probes);
        let active = trial.and_then(|trial| trial.outcome.as_ref().ok()?.mtu);
        // Without a link, the port's finding says all there is to say.
        let linked = self.ports.iter().any(Port::is_active) || self.kind == Kind::InfiniBand;
        for interface in self.interfaces.iter().filter(|interface| linked && interface.is_visible()) {
            section.push(self.interface_finding(interface));
            if let (Kind::RoceV2 | Kind::RoceV1, Some(mtu)) = (self.kind, interface.mtu) {
                section.push(mtu::finding(&interface.name, mtu, active));
            }
        }
        for port in &self.ports {
            section.findings.extend(gid_findings(port));
        }
        if self.has_hidden_interface() {
            section.push(
                Finding::problem("interface", "its network interface is not in this network namespace")
                    .remedy(if container.is_one() {
                        container.start()
                    } else {
                        "run in the namespace that has it: `ip netns`"
                    }),
            );
        }
        section.findings.extend(self.numa_finding(root));
        if let Some(Trial { address, outcome }) = trial {
            section.push(match outcome {
                Ok(Tried { took, .. }) => Finding::ok(
                    "trial",
                    format!(
                        "a connection to itself at {address} carried bytes, in {:.1} ms",
                        took.as_secs_f64() * 1e3
                    ),
                ),
                Err(error) => {
                    Finding::problem("trial", format!("no connection to itself at {address}: {error}"))
                        .remedy("mend the other problems of this report first, then try again")
                }
            });
        }
        section
    }

    fn driver_finding(&self) -> Finding {
        let mut words = vec![match self.driver.as_deref() {
            Some("rdma_rxe") => "rdma_rxe (software: for tests, slower than TCP)".to_owned(),
            Some("siw") => "siw (software)".to_owned(),
            Some(driver) => driver.to_owned(),
            None => "of unknown name".to_owned(),
        }];
        words.extend(self.firmware.as_ref().map(|version| format!("firmware {version}")));
        words.extend(self.board.as_ref().map(|board| format!("board {board}")));
        words.extend(self.pci.as_ref().map(|address| format!("PCI {address}")));
        Finding::ok("driver", words.join(", "))
    }

    fn transport_finding(&self) -> Finding {
        match self.kind {
            Kind::InfiniBand => Finding::ok("transport", "InfiniBand"),
            Kind::RoceV2 => Finding::ok("transport", "RoCE v2"),
            Kind::RoceV1 => Finding::problem("transport", "RoCE v1 only; connections use v2")
                .remedy("choose version 2 in the adapter's firmware or driver, or update them"),
            Kind::Erdma => Finding::warning("transport", "eRDMA (Alibaba Cloud): not tested with Valkey")
                .remedy("`valkey-rdma-doctor listen` and `check` show which operations work between two such machines"),
            Kind::Datagrams => {
                Finding::problem("transport", "no reliable connections (RC), which Valkey's protocol needs")
                    .remedy("use TCP from this machine: `valkey://` instead of `rdma://`")
            }
            Kind::Iwarp => self.iwarp_finding(),
        }
    }

    fn iwarp_finding(&self) -> Finding {
        let finding = Finding::problem(
            "transport",
            "iWARP: not supported; it has no WRITE with immediate, of which Valkey's protocol is made",
        );
        match (self.driver.as_deref(), self.pci.as_deref()) {
            (Some("siw"), _) => {
                let interface = self.interfaces.first().map_or("NETDEV", |interface| &interface.name);
                finding
                    .remedy(format!(
                        "use soft-RoCE instead: `rdma link delete {}`, `modprobe rdma_rxe`,",
                        self.name
                    ))
                    .remedy(format!("`rdma link add rxe0 type rxe netdev {interface}`"))
            }
            (Some("ice"), Some(pci)) => finding
                .remedy("this adapter can do RoCE v2 instead:")
                .remedy(format!(
                    "`devlink dev param set pci/{pci} name enable_iwarp value false cmode runtime`,"
                ))
                .remedy(format!(
                    "`devlink dev param set pci/{pci} name enable_roce value true cmode runtime`"
                )),
            _ => finding.remedy("use TCP from this machine: `valkey://` instead of `rdma://`"),
        }
    }

    /// The driver in user space, if it is not installed.
    pub(super) fn missing_provider(&self, root: &Root) -> Option<&'static str> {
        let needed = provider(self.driver.as_deref()?)?;
        let installed = libraries::providers(root);
        (!installed.is_empty() && !installed.iter().any(|name| name == needed)).then_some(needed)
    }

    fn provider_finding(&self, root: &Root) -> Option<Finding> {
        let value = format!("libibverbs has no driver `{}` for this device", self.missing_provider(root)?);
        Some(Finding::problem("provider", value).remedy(
            "`apt install ibverbs-providers`, `dnf install libibverbs`, or the adapter vendor's packages",
        ))
    }

    fn port_finding(&self, port: &Port) -> Finding {
        let id = format!("port {}", port.number);
        let words = [Some(&port.state), port.physical.as_ref(), port.rate.as_ref(), port.link_layer.as_ref()];
        let value = words.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
        if port.is_active() {
            return Finding::ok(id, value);
        }
        let finding = Finding::problem(id, value);
        match (port.is_ethernet(), self.interface_of(port)) {
            (true, Some(name)) => finding
                .remedy(format!("`ip link set {name} up`"))
                .remedy(format!("if it stays: cable, transceiver, switch port (`ethtool {name}`)")),
            (true, None) => finding.remedy("bring its network interface up: `ip link`; cable; switch port"),
            (false, _) if port.state == "INIT" => finding
                .remedy(
                    "the link is up, but no subnet manager has configured it: start one, once in the network",
                )
                .remedy("(in the switch, or `apt install opensm` on one host)"),
            (false, _) => finding.remedy("cable, transceiver, switch port (`ibstat`)"),
        }
    }

    /// The name of a port's network interface. Of an adapter's interfaces without GIDs, the port is not known.
    fn interface_of<'a>(&'a self, port: &'a Port) -> Option<&'a str> {
        let named = port.gids.iter().find_map(|gid| gid.interface.as_deref());
        let only = || match (&self.ports[..], &self.interfaces[..]) {
            ([_], [interface, ..]) => Some(interface.name.as_str()),
            _ => None,
        };
        named.or_else(only)
    }

    fn interface_finding(&self, interface: &Interface) -> Finding {
        let name = &interface.name;
        let addresses: Vec<String> = interface.addresses.iter().map(ToString::to_string).collect();
        let state = interface.state.as_deref().unwrap_or("unknown");
        if interface.is_down() {
            return Finding::problem("interface", format!("{name}: down"))
                .remedy(format!("`ip link set {name} up`"));
        }
        // Drivers without carrier detection report `unknown`, and work.
        let state = Some(state).filter(|state| *state != "unknown");
        let words: Vec<&str> =
            std::iter::once(name.as_str()).chain(state).chain(addresses.iter().map(String::as_str)).collect();
        if self.address().is_some() || interface.addresses.iter().any(|ip| !is_link_local(*ip)) {
            return Finding::ok("interface", words.join(", "));
        }
        Finding::problem("interface", format!("{name}: no IP address; RDMA finds its peer by one"))
            .remedy(format!("`ip address add ADDRESS/24 dev {name}`"))
    }

    /// RoCE entries exist, and none names an interface of this namespace.
    fn has_hidden_interface(&self) -> bool {
        let roce = self.ports.iter().any(|port| port.is_ethernet() && !port.gids.is_empty());
        roce && !self.interfaces.iter().any(Interface::is_visible)
    }

    fn numa_finding(&self, root: &Root) -> Option<Finding> {
        let nodes = root.names("/sys/devices/system/node");
        let nodes = nodes.iter().filter(|name| name.starts_with("node")).count();
        let (node, true) = (self.numa_node?, nodes > 1) else { return None };
        let cpus = self.local_cpus.as_deref().unwrap_or("unknown");
        Some(Finding::note("numa", format!("node {node} of {nodes}; its CPUs are {cpus}")).remedy(format!(
            "for the lowest latency: `numactl --cpunodebind={node} --membind={node} PROGRAM`"
        )))
    }
}

/// The entries that addresses use, one line each; then what else is in the table.
fn gid_findings(port: &Port) -> Vec<Finding> {
    let mut findings: Vec<Finding> = port
        .routable()
        .map(|gid| {
            let interface = gid.interface.as_deref().unwrap_or("no interface");
            Finding::ok(format!("gid {}", gid.index), format!("{} on {interface}, RoCE v2", gid.ip))
        })
        .collect();
    let others = port.gids.len() - findings.len();
    if port.is_ethernet() && others > 0 {
        let value = format!("{others} more of {} entries: link-local or RoCE v1, not used", port.entries);
        findings.push(Finding::note("gids", value));
    }
    findings
}
