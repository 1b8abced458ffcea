//! Trying things on this machine: loading libraries, connecting devices to themselves, resolving names.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use valkey_rdma_program::error_chain;
use valkey_rdma_transport::device::{self, DeviceOptions};
use valkey_rdma_transport::{Config, DeviceKind, Listener, Stream, TransportError, address};

use crate::machine::{HostProbe, Probes, Root, Route, Trial, Tried, addresses_to_try};

/// How long a trial may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tries everything on this machine: loads the libraries, connects each usable device to itself, and looks for the way
/// to `host`. Leaves nothing behind.
pub async fn this_machine(root: &Root, host: Option<&str>) -> Probes {
    let load_error = load_libraries().await.err();
    let interfaces = interfaces();
    let mut trials = Vec::new();
    if load_error.is_none() {
        for address in addresses_to_try(root, &interfaces) {
            let outcome = timeout(PATIENCE, connect_to_itself(address)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(format!("not within {PATIENCE:?}")));
            trials.push(Trial { address, outcome });
        }
    }
    let host = match host {
        Some(name) => Some(way_to(name).await),
        None => None,
    };
    Probes { load_error, interfaces, trials, host }
}

/// Loads rdma-core's libraries into this process.
async fn load_libraries() -> Result<(), String> {
    // Libraries come first. What fails after them is found by other means.
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    match device::listen(DeviceKind::Verbs, any, &DeviceOptions::default()).await {
        Err(error) => why_not_loaded(&error).map_or(Ok(()), Err),
        Ok(_) => Ok(()),
    }
}

/// Why a library is not loaded, if that is the error. What to install is left to the remedy of the finding.
fn why_not_loaded(error: &TransportError) -> Option<String> {
    match error {
        TransportError::Library { library, source } => {
            let reason = source.to_string();
            Some(if reason.contains(library) { reason } else { format!("{library}: {reason}") })
        }
        TransportError::LibrarySymbol { .. } | TransportError::NotBuilt { .. } => Some(error_chain(error)),
        _ => None,
    }
}

/// Connects the device at an address to itself, as large as a client's connection is, and exchanges some bytes.
async fn connect_to_itself(address: IpAddr) -> Result<Tried, String> {
    let started = Instant::now();
    // The pinned memory of one client is what is tried; its peer takes as little as it can.
    let small = Config::default().rx_size(4096).rx_buffers(1).send_buffer(4096);
    let mut listener = Listener::bind(DeviceKind::Verbs, SocketAddr::new(address, 0), &small)
        .await
        .map_err(|error| error_chain(&error))?;
    let config = Config::default();
    let connecting = Stream::connect(DeviceKind::Verbs, listener.local_addr(), &config);
    // If one end fails, the other would wait for ever.
    let (mut stream, mut peer) =
        tokio::try_join!(connecting, listener.accept()).map_err(|error| error_chain(&error))?;
    let info = stream.info();
    let mut bytes = [0; MESSAGE.len()];
    let exchange = async {
        stream.write_all(MESSAGE).await?;
        peer.read_exact(&mut bytes).await?;
        peer.write_all(&bytes).await?;
        stream.read_exact(&mut bytes).await
    };
    exchange.await.map_err(|error| error_chain(&error))?;
    if &bytes != MESSAGE {
        return Err("the bytes that came back differ".to_owned());
    }
    Ok(Tried { device: info.device.name, mtu: info.device.mtu, took: started.elapsed() })
}

const MESSAGE: &[u8; 11] = b"how are you";

/// The addresses of this machine's network interfaces.
fn interfaces() -> Vec<(String, IpAddr)> {
    let Ok(all) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    let addresses = all.filter_map(|interface| {
        let address = interface.address?;
        let ip: IpAddr = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => v4.ip().into(),
            (_, Some(v6)) => v6.ip().into(),
            _ => return None,
        };
        Some((interface.interface_name, ip))
    });
    addresses.collect()
}

/// Resolves a host's name, and looks for the way to each of its addresses.
async fn way_to(name: &str) -> HostProbe {
    let started = Instant::now();
    let found = address::resolve(name, 0).await;
    let took = started.elapsed();
    let routes = found.map(|addresses| routes(addresses, source_towards));
    HostProbe { name: name.to_owned(), took, routes: routes.map_err(|error| error_chain(&error)) }
}

/// The way to each of the addresses, by the source that `towards` finds. A link-local address is looked for on its interface.
fn routes(
    mut addresses: Vec<SocketAddr>,
    mut towards: impl FnMut(SocketAddr) -> Result<IpAddr, String>,
) -> Vec<Route> {
    addresses.sort();
    addresses.dedup();
    addresses.into_iter().map(|to| Route { to: to.ip(), from: towards(to) }).collect()
}

/// The address from which packets to `to` leave this machine. Sends none.
fn source_towards(mut to: SocketAddr) -> Result<IpAddr, String> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    // Connecting a datagram socket looks up the route, and no more. The port does not matter.
    to.set_port(9);
    let found = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    found.map(|addr| addr.ip()).map_err(|error| error_chain(&error))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV6;

    use super::*;

    #[test]
    fn the_way_to_a_link_local_address_is_looked_for_on_its_interface() {
        let ip = "fe80::1".parse().unwrap();
        let on = |interface| SocketAddr::from(SocketAddrV6::new(ip, 0, 0, interface));
        let mut asked = Vec::new();
        let found = routes(vec![on(7), on(3), on(7)], |to| {
            asked.push(to);
            Ok(to.ip())
        });
        assert_eq!(asked, [on(3), on(7)]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_missing_library_is_named_once_and_alone() {
        for reason in
            ["libibverbs.so.1: cannot open shared object file: No such file or directory", "not an ELF file"]
        {
            let source = std::io::Error::other(reason).into();
            let why =
                why_not_loaded(&TransportError::Library { library: "libibverbs.so.1", source }).unwrap();
            assert_eq!(why.matches("libibverbs").count(), 1, "{why}");
            assert!(why.contains(reason) && !why.contains("librdmacm"), "{why}");
        }
    }
}
