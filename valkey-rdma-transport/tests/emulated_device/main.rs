//! What the emulated device adds to the contract, on each of its links: receivers that are not ready, queues that
//! overflow, delays, faults, names and addresses, and peers that are none.

#![cfg(feature = "emulated")]

use std::future::poll_fn;
use std::net::SocketAddr;

use device_peer::{MESSAGE, Peer, RECEIVES, bounded, options};
use valkey_rdma_proto::work::{Outcome, WrId};
use valkey_rdma_transport::DeviceKind;
use valkey_rdma_transport::device::{self, CmEvent, DeviceListener, DeviceOptions};
use valkey_rdma_transport::emulated::{Device, Link};

mod delays;
#[path = "../device_peer/mod.rs"]
mod device_peer;
mod faults;
mod names;
mod queues;
mod receivers;
mod rejects;
mod strangers;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn links() -> [Link; 3] {
    let directory = format!("{}/emulated", env!("CARGO_TARGET_TMPDIR"));
    [Link::InProcess, Link::Tcp, Link::Unix(directory.into())]
}

fn on(device: &Device) -> DeviceOptions {
    DeviceOptions { device: Some(device.name().to_owned()), ..options() }
}

/// A connected pair with a device each.
struct Pair {
    active: Peer,
    passive: Peer,
    near: Device,
    far: Device,
}

async fn accept_on(listener: &mut dyn DeviceListener, options: &DeviceOptions) -> Peer {
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    Peer::new(request.accept(options).expect("an endpoint"))
}

async fn pair(link: &Link, prepare: impl FnOnce(&Device, &Device)) -> Pair {
    let (near, far) = (Device::new(link.clone()), Device::new(link.clone()));
    prepare(&near, &far);
    let mut listener = device::listen(DeviceKind::Emulated, ANY, &on(&far)).await.expect("listens");
    let open = device::open(DeviceKind::Emulated, listener.local_addr(), &on(&near)).await;
    let mut active = Peer::new(open.expect("opens"));
    active.endpoint.establish().expect("asks");
    let mut passive = accept_on(listener.as_mut(), &on(&far)).await;
    passive.endpoint.establish().expect("accepts");
    assert_eq!(active.cm_event().await, CmEvent::Established);
    assert_eq!(passive.cm_event().await, CmEvent::Established);
    Pair { active, passive, near, far }
}

/// Uses up the receives that the passive side has posted.
async fn use_up_receives(pair: &mut Pair) {
    for sequence in 0..RECEIVES {
        pair.active.send(sequence.into(), &[0; MESSAGE as usize]);
        assert_eq!(pair.active.outcome(WrId::send(sequence.into())).await, Outcome::Sent);
        assert!(matches!(pair.passive.completion().await.outcome, Outcome::Received { .. }));
    }
}
