//! Names of devices, and addresses of listeners.

use std::net::SocketAddr;

use valkey_rdma_transport::device::{self, DeviceOptions};
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::{DeviceKind, TransportError};

use super::ANY;
use super::device_peer::{self, Peer, options};

#[tokio::test]
async fn without_a_name_the_link_within_the_process_is_taken_where_there_is_one() {
    let mut plain = device::listen(DeviceKind::Emulated, ANY, &options()).await.expect("listens");
    let named = |name: &str| DeviceOptions { device: Some(name.to_owned()), ..options() };
    for (name, taken) in [(None, "inprocess"), (Some("inprocess"), "inprocess"), (Some("tcp"), "tcp")] {
        let options = name.map_or_else(options, named);
        let open = device::open(DeviceKind::Emulated, plain.local_addr(), &options).await;
        let mut active = Peer::new(open.expect("opens"));
        active.endpoint.establish().expect("asks");
        let passive = device_peer::accept(plain.as_mut()).await;
        assert_eq!(
            (active.endpoint.device().name, passive.endpoint.device().name),
            (taken.into(), taken.into())
        );
    }
    // A listener on TCP alone is found over TCP.
    let tcp = device::listen(DeviceKind::Emulated, ANY, &named("tcp")).await.expect("listens");
    let open = device::open(DeviceKind::Emulated, tcp.local_addr(), &options()).await.expect("opens");
    assert_eq!(open.device().name, "tcp");
}

#[tokio::test]
async fn an_unknown_name_is_refused_with_the_known_ones() {
    let gone = Device::new(Link::Any).name().to_owned();
    for name in ["rxe0", "unix:", "", &gone] {
        let options = DeviceOptions { device: Some(name.to_owned()), ..options() };
        let Err(error) = device::listen(DeviceKind::Emulated, ANY, &options).await else {
            panic!("listens on {name:?}");
        };
        assert!(matches!(&error, TransportError::UnknownLink { name: found } if found == name), "{error:?}");
        assert!(error.to_string().contains("use `inprocess`, `tcp`, `unix:DIR`"), "{error}");
    }
}

#[tokio::test]
async fn a_listener_takes_its_tcp_port_from_everybody() {
    let listener = device::listen(DeviceKind::Emulated, ANY, &options()).await.expect("listens");
    let error = std::net::TcpListener::bind(listener.local_addr()).expect_err("taken");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(listener);
    let taken = std::net::TcpListener::bind(ANY).expect("a free port");
    let addr = taken.local_addr().expect("an address");
    let error = device::listen(DeviceKind::Emulated, addr, &options()).await.err().expect("taken");
    let TransportError::Listen { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_listener_on_all_addresses_of_one_family_leaves_the_other_alone() {
    let any = SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), 0);
    let listener = device::listen(DeviceKind::Emulated, any, &options()).await.expect("listens");
    let port = listener.local_addr().port();
    std::net::TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, port)).expect("free in the other family");
}

#[tokio::test]
async fn a_port_that_was_released_is_not_the_next_one_taken() {
    let directory = format!("unix:{}/released", env!("CARGO_TARGET_TMPDIR"));
    let options = DeviceOptions { device: Some(directory), ..options() };
    let first = device::listen(DeviceKind::Emulated, ANY, &options).await.expect("listens").local_addr();
    let second = device::listen(DeviceKind::Emulated, ANY, &options).await.expect("listens").local_addr();
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_unix_socket_left_behind_is_replaced_and_a_live_one_is_not() {
    let directory = format!("{}/left-behind", env!("CARGO_TARGET_TMPDIR"));
    let options = DeviceOptions { device: Some(format!("unix:{directory}")), ..options() };
    let listener = device::listen(DeviceKind::Emulated, ANY, &options).await.expect("listens");
    let addr = listener.local_addr();
    let path = format!("{directory}/{}", addr.port());
    let second = device::listen(DeviceKind::Emulated, addr, &options).await;
    assert!(matches!(second, Err(TransportError::Listen { .. })));
    drop(listener);
    assert!(!std::fs::exists(&path).expect("a directory"), "the name goes with the listener");
    // As a killed process leaves it: the socket is closed, its name is there.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
    let again = device::listen(DeviceKind::Emulated, addr, &options).await.expect("listens");
    assert_eq!(again.local_addr(), addr);
}
