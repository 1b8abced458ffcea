//! A shortage of descriptors ends with what it came from. A binary of its own, because it limits the whole process.

#![cfg(feature = "emulated")]

use std::fs::File;
use std::future::poll_fn;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tcp::device_peer::{bounded, options};
use valkey_rdma_transport::device::{self, DeviceOptions};
use valkey_rdma_transport::{DeviceKind, TransportError};

#[path = "."]
mod tcp {
    #[path = "device_peer/mod.rs"]
    pub(crate) mod device_peer;
}

const CLIENTS: usize = 32;

/// Descriptors that the process may have while it is short of them.
const FEW: u64 = 128;

#[tokio::test]
async fn a_listener_short_of_descriptors_says_so_and_delivers_what_it_has() {
    let options = DeviceOptions { device: Some("tcp".to_owned()), ..options() };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut listener = device::listen(DeviceKind::Emulated, any, &options).await.expect("listens");
    let mut hello = [0; 32];
    hello[0] = 1;
    hello[8..16].copy_from_slice(b"VRDMAEMU");
    hello[23] = 2;
    let clients = (0..CLIENTS).map(|_| {
        let mut client = TcpStream::connect(listener.local_addr()).expect("connects");
        client.write_all(&hello).expect("asks");
        client
    });
    let clients: Vec<_> = clients.collect();
    let limit = getrlimit(Resource::Nofile);
    // All that the process may have, and then two less.
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW), ..limit }).expect("a lower limit");
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len().checked_sub(2).expect("at least two were free"));
    let (mut requests, mut shortages) = (Vec::new(), 0);
    while shortages == 0 || requests.is_empty() {
        match bounded(poll_fn(|cx| listener.poll_request(cx))).await {
            Ok(request) => requests.push(request),
            Err(TransportError::Descriptors { call: "accept", limit, .. }) => {
                assert_eq!(limit, Some(FEW));
                shortages += 1;
                assert!(shortages < 10_000, "nothing is delivered any more");
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    setrlimit(Resource::Nofile, limit).expect("the limit as it was");
    while requests.len() < CLIENTS {
        requests.push(bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request"));
    }
    drop((clients, taken));
}
