use std::future::poll_fn;

use super::*;
use crate::device::{DeviceLimits, PassiveEndpoint as _};
use crate::verbs::listener::VerbsListener;

const MOST: DeviceLimits = DeviceLimits { queue_depth: 100, completion_depth: 150, completion_vectors: 2 };

fn refused(options: EndpointOptions) -> String {
    check_limits("rxe0", &options, &MOST).expect_err("beyond the device").to_string()
}

fn modest() -> EndpointOptions {
    EndpointOptions { send_depth: 75, receive_depth: 75, completion_vector: 1, ..EndpointOptions::default() }
}

#[test]
fn what_the_device_cannot_is_refused_with_its_limit() {
    check_limits("rxe0", &modest(), &MOST).expect("within the limits");
    for (options, parts) in [
        (EndpointOptions { send_depth: 101, receive_depth: 1, ..modest() }, ["send queue", "101", "100"]),
        (EndpointOptions { send_depth: 1, receive_depth: 101, ..modest() }, ["receive queue", "101", "100"]),
        (EndpointOptions { send_depth: 76, ..modest() }, ["completion queue", "151", "150"]),
        (EndpointOptions { completion_vector: 2, ..modest() }, ["completion vector 2", "it has 2", "rxe0"]),
    ] {
        let text = refused(options);
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
    }
}

/// The queue pair's own attributes, which no other test can see.
#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn a_sender_that_finds_no_receive_tries_again_soon_and_without_end() {
    let ip = std::env::var("VALKEY_RDMA_TEST_ADDR")
        .expect("VALKEY_RDMA_TEST_ADDR is the address of an RDMA device");
    let any_port = SocketAddr::new(ip.parse().expect("an IP address"), 0);
    let options = EndpointOptions::default();
    let mut listener = VerbsListener::bind(any_port, &options).expect("listens");
    let id = Identifier::resolve(listener.local_addr(), &options).await.expect("a path");
    let mut active = VerbsEndpoint::new(id, &options).expect("an endpoint");
    active.establish().expect("asks");
    let id = poll_fn(|cx| listener.poll_identifier(cx)).await.expect("a request");
    let mut passive = VerbsEndpoint::new(id, &options).expect("an endpoint");
    passive.establish().expect("accepts");
    for side in [&mut active, &mut passive] {
        assert_eq!(poll_fn(|cx| side.poll_cm_event(cx)).await.expect("an event"), CmEvent::Established);
        assert_eq!(side.queue_pair.receiver_not_ready(), (12, 7));
    }
}
