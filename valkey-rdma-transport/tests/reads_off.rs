//! RDMA READ is out of reach on connections of the Valkey protocol, on the device that `VALKEY_RDMA_TEST_DEVICE` names: a peer
//! that reads is refused by the device, whatever it knows.

#![cfg(feature = "emulated")]

mod device_peer;

use device_peer::{any_port, bounded, device};
use valkey_rdma_proto::wire::{ControlMessage, MESSAGE_LEN};
use valkey_rdma_transport::raw::{Access, DeviceOptions, FailureStatus, QueuePair, RemoteRegion};
use valkey_rdma_transport::{Config, Listener, TransportError};

#[tokio::test]
async fn the_windows_of_a_stream_cannot_be_read() {
    let mut listener = Listener::bind(device(), any_port(), &Config::default()).await.expect("listens");
    let addr = listener.local_addr();
    let server = tokio::spawn(async move { listener.accept().await });

    // A client that can read: it connects as Valkey's do, and asks for reads too.
    let options = DeviceOptions { read_depth: 16, ..DeviceOptions::default() };
    let mut client = QueuePair::open(device(), addr, &options).await.expect("a path");
    let inbox = client.register(MESSAGE_LEN as u32, Access::Local).expect("memory");
    let stolen = client.register(64, Access::Local).expect("memory");
    client.post_recv(1, inbox).expect("posts");
    bounded(client.establish()).await.expect("connects");
    bounded(client.wait_for(1)).await.expect("the server's Register");
    let message = ControlMessage::decode(&client.copy_out(inbox)).expect("a message");
    let ControlMessage::RegisterXferMemory(window) = message else { panic!("{message:?}") };
    assert!(window.len >= 64, "{window:?}");

    // The connection manager grants one read, as some adapters refuse none.
    assert_eq!(client.read_depth(), 1);
    let remote = RemoteRegion { addr: window.addr, rkey: window.key, len: window.len };
    client.post_read(2, stolen, remote).expect("posts");
    let error = bounded(client.wait_for(2)).await.expect_err("refused");
    let status = FailureStatus::RemoteAccess;
    assert!(
        matches!(error, TransportError::WorkRequest { id: 2, status: found } if found == status),
        "{error:?}"
    );
    assert_eq!(client.copy_out(stolen), [0; 64]);
    drop(client);
    // It was never a client of the protocol; how that ends is not the matter here.
    let _ = bounded(server).await.expect("no panic");
}

#[test]
fn no_setting_of_a_stream_turns_reads_on() {
    assert_eq!(Config::default().device_options().read_depth, 0);
}
