//! Clients that outlive the runtime that made them, as one in a `static` that several tests share.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use valkey_rdma_client::pubsub::{Event, Subscription};
use valkey_rdma_client::{Client, Command, Config, Error, cmd};
use valkey_rdma_mock::{MockCluster, MockServer};

use crate::executor::without_a_runtime;

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Its connection task has never run: nothing was awaited after the connect.
#[test]
fn a_client_whose_runtime_has_ended_says_so() {
    let mock = Runtime::new().expect("a runtime");
    let server = mock.block_on(MockServer::start());
    for url in [server.url(), server.tcp_url()] {
        let first = one_thread();
        let client = first.block_on(Client::connect(url)).expect("connected");
        drop(first);
        let error = one_thread().block_on(client.command(["PING"])).expect_err("its task was stopped");
        assert!(error.to_string().contains("has the runtime shut down?"), "{error}");
    }
    mock.block_on(server.shutdown());
}

/// As a program does whose `main` has left its runtime: there is nothing to wait for.
#[test]
fn closing_a_client_that_has_ended_needs_no_runtime() {
    let mock = Runtime::new().expect("a runtime");
    let server = mock.block_on(MockServer::start());
    let first = one_thread();
    let connect = |runtime: &Runtime| runtime.block_on(Client::connect(server.tcp_url())).expect("connected");
    let (closed, stopped) = (connect(&mock), connect(&first));
    mock.block_on(closed.close());
    drop(first);
    for client in [closed, stopped] {
        assert_eq!(client.close().now_or_never(), Some(()));
    }
    mock.block_on(server.shutdown());
}

#[test]
fn calls_with_a_limit_need_only_the_runtime_that_connected() {
    let main = Runtime::new().expect("a runtime");
    let server = main.block_on(MockServer::start());
    let client = main.block_on(Client::connect(server.tcp_url())).expect("connected");
    let pop = Command::new("BLPOP").arg("nothing").arg(0).timeout(Duration::from_millis(1));
    let outcome = without_a_runtime(client.blocking_command(pop));
    assert!(matches!(outcome, Err(Error::TimedOut(_))), "{outcome:?}");
    without_a_runtime(client.close());
    assert!(client.is_closed());
    main.block_on(server.shutdown());
}

/// A runtime of one thread runs only within `block_on`.
#[test]
fn closing_ends_though_the_runtime_that_connected_does_not_run() {
    let mock = Runtime::new().expect("a runtime");
    let server = mock.block_on(MockServer::start());
    let first = one_thread();
    let config = Config::default().close_timeout(Duration::from_millis(1));
    let client = first.block_on(Client::connect_with(server.tcp_url(), &config)).expect("connected");
    mock.block_on(client.close());
    assert!(client.command(["PING"]).now_or_never().is_some_and(|reply| reply.is_err()), "it is closed");
    mock.block_on(server.shutdown());
}

/// A runtime of one thread runs only within `block_on`: what were bound to it would not go on when another runtime uses it.
#[test]
fn connections_that_another_runtime_asks_for_belong_to_the_one_that_connected() {
    let main = Runtime::new().expect("a runtime");
    let server = main.block_on(MockServer::start());
    for url in [server.url(), server.tcp_url()] {
        let client = main.block_on(Client::connect(url)).expect("connected");
        let other = one_thread();
        let pop = |runtime: &Runtime| {
            let popped = async {
                let () = client.query(["RPUSH", "jobs", "a job"]).await?;
                client.blocking_query::<(String, String)>(cmd!["BLPOP", "jobs", 0]).await
            };
            runtime.block_on(async { timeout(PATIENCE, popped).await }).expect("no hang").expect("a job")
        };
        // The connection waits in the pool between these.
        pop(&other);
        pop(&main);
        let mut subscriber = other.block_on(async {
            let subscriber = client.subscriber().await.expect("connected");
            subscriber.subscribe(Subscription::Channel, ["news"]).await.expect("subscribed");
            subscriber
        });
        let heard = async {
            let () = client.query(["PUBLISH", "news", "good"]).await.expect("published");
            timeout(PATIENCE, subscriber.next()).await.expect("no hang").expect("connected")
        };
        assert!(matches!(main.block_on(heard), Event::Message(_)));
        drop(other);
        pop(&main);
        let () = main.block_on(subscriber.subscribe(Subscription::Channel, ["more"])).expect("connected");
        drop(subscriber);
    }
    main.block_on(server.shutdown());
}

/// A cluster client connects to a node when a command needs it, wherever that command is.
#[test]
fn connections_to_nodes_belong_to_the_runtime_that_connected_to_the_cluster() {
    let main = Runtime::new().expect("a runtime");
    let mocks = main.block_on(MockCluster::start(2)).expect("free ports");
    let keys = [mocks.key_of(0, 0), mocks.key_of(1, 0)];
    let cluster = main.block_on(Client::connect([mocks.url(0)])).expect("connected");
    let get_all = async || {
        for key in &keys {
            let get = cluster.command(["GET", key]);
            timeout(PATIENCE, get).await.expect("no hang").expect("connected");
        }
    };
    let other = one_thread();
    other.block_on(get_all());
    main.block_on(get_all());
    drop(other);
    main.block_on(get_all());
    main.block_on(mocks.shutdown());
}

#[test]
fn a_cluster_client_whose_runtime_has_ended_says_so() {
    let mock = Runtime::new().expect("a runtime");
    let mocks = mock.block_on(MockCluster::start(2)).expect("free ports");
    let key = mocks.key_of(1, 0);
    let first = one_thread();
    let cluster = first.block_on(Client::connect([mocks.url(0)])).expect("connected");
    let mut subscriber = first.block_on(cluster.subscriber()).expect("open");
    first.block_on(subscriber.subscribe(Subscription::Channel, ["news"])).expect("subscribed");
    // The attempt to connect to node 1 begins, and ends with its runtime.
    first.block_on(async {
        let mut get = pin!(cluster.command(["GET", &key]));
        assert!(get.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    });
    drop(first);
    let other = one_thread();
    let get = other.block_on(cluster.command(["GET", &key])).map(drop);
    let subscribe = other.block_on(subscriber.subscribe(Subscription::Channel, ["more"]));
    for outcome in [get, subscribe] {
        let error = outcome.expect_err("nothing can connect");
        assert!(error.to_string().contains("has the runtime shut down?"), "{error}");
    }
    let error = other.block_on(subscriber.next()).expect_err("the runtime has ended");
    assert!(error.to_string().contains("has the runtime shut down?"), "{error}");
    assert!(cluster.is_closed());
    mock.block_on(mocks.shutdown());
}

/// Far longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);
