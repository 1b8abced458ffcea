use std::future::poll_fn;
use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::device::DeviceLimits;

const MOST: DeviceLimits =
    DeviceLimits { queue_depth: 100, completion_depth: 150, completion_vectors: 2, read_depth: 16 };

fn refused(options: DeviceOptions) -> String {
    MOST.fit("rxe0", &options).expect_err("beyond the device").to_string()
}

fn modest() -> DeviceOptions {
    DeviceOptions { send_depth: 75, receive_depth: 75, completion_vector: 1, ..DeviceOptions::default() }
}

#[test]
fn what_the_device_cannot_is_refused_with_its_limit() {
    MOST.fit("rxe0", &modest()).expect("within the limits");
    for (options, parts) in [
        (DeviceOptions { send_depth: 101, receive_depth: 1, ..modest() }, ["send queue", "101", "100"]),
        (DeviceOptions { send_depth: 1, receive_depth: 101, ..modest() }, ["receive queue", "101", "100"]),
        (DeviceOptions { send_depth: 76, ..modest() }, ["completion queue", "151", "150"]),
        (DeviceOptions { completion_vector: 2, ..modest() }, ["completion vector 2", "it has 2", "rxe0"]),
    ] {
        let text = refused(options);
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn queues_that_adapt_are_as_deep_as_the_device_allows() {
    let most = DeviceLimits { queue_depth: 100, ..MOST };
    for (send, receive, completions, fitted) in [
        (1024, 1024, 150, (75, 75)),
        (1024, 10, 150, (100, 10)),
        (10, 1024, 150, (10, 75)),
        (1024, 1024, 1000, (100, 100)),
        (16, 16, 32, (16, 16)),
    ] {
        let most = DeviceLimits { completion_depth: completions, ..most };
        let asked = DeviceOptions {
            send_depth: send,
            receive_depth: receive,
            adapts: true,
            ..DeviceOptions::default()
        };
        let got = most.fit("rxe0", &asked).expect("adapts");
        assert_eq!((got.send_depth, got.receive_depth), fitted, "{send} {receive} {completions}");
    }
}

/// The address of the RDMA device, with no port.
fn any_port() -> SocketAddr {
    let ip = std::env::var("VALKEY_RDMA_TEST_ADDR")
        .expect("VALKEY_RDMA_TEST_ADDR is the address of an RDMA device");
    SocketAddr::new(ip.parse().expect("an IP address"), 0)
}

/// A connected pair made with these options: the active side, the passive side.
async fn pair(options: &DeviceOptions) -> [VerbsConnection; 2] {
    sys::load().expect("RDMA libraries");
    let mut listener = VerbsListener::bind(any_port(), options).expect("listens");
    let id = CmId::resolve(listener.local_addr(), options).await.expect("a path");
    let mut active = VerbsConnection::new(id, options).expect("a connection");
    active.establish().expect("asks");
    let request = poll_fn(|cx| listener.poll_connect_request(cx)).await.expect("a request");
    let id = request.adopt().expect("an identifier");
    let mut passive = VerbsConnection::of_request(id, options).expect("a connection");
    passive.establish().expect("accepts");
    for side in [&mut active, &mut passive] {
        assert_eq!(poll_fn(|cx| side.poll_cm_event(cx)).await.expect("an event"), CmEvent::Established);
    }
    [active, passive]
}

/// What the queue pair does about messages that are not taken, which no other test can see.
fn attributes(side: &VerbsConnection) -> sys::ibv_qp_attr {
    use sys::ibv_qp_attr_mask as mask;
    let mask =
        mask::IBV_QP_MIN_RNR_TIMER | mask::IBV_QP_RNR_RETRY | mask::IBV_QP_TIMEOUT | mask::IBV_QP_RETRY_CNT;
    side.queue_pair.query(mask).expect("an answer").expect("a driver that can say")
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn a_sender_that_finds_no_receive_tries_again_soon_and_without_end() {
    for side in pair(&DeviceOptions::default()).await {
        let attr = attributes(&side);
        assert_eq!((attr.min_rnr_timer, attr.rnr_retry, attr.retry_cnt), (12, 7, 6));
    }
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn ack_timeout_and_retry_count_are_what_was_asked_for() {
    let config = Config::default().ack_timeout(Duration::from_millis(100)).retry_count(3);
    for side in pair(&config.device_options()).await {
        let attr = attributes(&side);
        // 4.096 us, doubled 15 times, is 134 ms.
        assert_eq!((attr.timeout, attr.retry_cnt), (15, 3));
    }
}

/// For a driver that cannot say what its queue pair was given.
#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn the_accepting_side_knows_its_reads_by_itself() {
    for wanted in [1, 4] {
        let [active, passive] = pair(&DeviceOptions { read_depth: wanted, ..DeviceOptions::default() }).await;
        assert_eq!(passive.queue_pair.read_depth().expect("an answer"), Some(wanted));
        assert_eq!((passive.accepted_reads, active.accepted_reads), (wanted, 0));
    }
}

/// The descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the list of descriptors").count()
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn a_connect_request_that_is_refused_takes_no_descriptor() {
    sys::load().expect("RDMA libraries");
    let options = DeviceOptions::default();
    let mut listener = VerbsListener::bind(any_port(), &options).expect("listens");
    let id = CmId::resolve(listener.local_addr(), &options).await.expect("a path");
    let mut active = VerbsConnection::new(id, &options).expect("a connection");
    active.establish().expect("asks");
    let before = descriptors();
    let request = poll_fn(|cx| listener.poll_request(cx)).await.expect("a request");
    assert_eq!(descriptors(), before);
    drop(request);
    let event = poll_fn(|cx| active.poll_cm_event(cx)).await.expect("an event");
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn a_queue_pair_in_error_state_is_noticed_with_nothing_posted() {
    let [mut active, mut passive] = pair(&DeviceOptions::default()).await;
    for side in [&mut active, &mut passive] {
        side.check().expect("in order");
        side.queue_pair.fail();
        let mut completions = Vec::new();
        side.poll(&mut completions, 1).expect("an empty queue");
        assert!(completions.is_empty(), "{completions:?}");
        let error = side.check().expect_err("in error state");
        assert!(matches!(error, TransportError::Fault { fault: DeviceFault::QueuePair, .. }), "{error:?}");
    }
}
