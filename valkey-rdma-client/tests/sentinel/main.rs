//! The primary of a service, found and followed by Sentinel: scripted Sentinels, and real ones.

mod real;
mod scripted;

use std::net::SocketAddr;
use std::time::Duration;

use scripted::{Pair, Script, Sentinel, scheme};
use tokio::net::TcpListener;
use tokio::time::timeout;
use valkey_rdma_client::pubsub::{Event, Subscription};
use valkey_rdma_client::{Client, Config, ConnectCause, ConnectError, Credentials, Error};
use valkey_rdma_server::Reply;
use valkey_rdma_testkit::{Folder, ReservedPort};

fn cause(error: &Error) -> &ConnectCause {
    match error {
        Error::Connect(error) => ConnectError::cause(error),
        other => panic!("{other:?}"),
    }
}

/// A URL of these Sentinels.
fn url(sentinels: &[&Sentinel]) -> String {
    let addresses: Vec<String> = sentinels.iter().map(|sentinel| sentinel.address.clone()).collect();
    format!("{}://{}/mymaster?timeout=10s", scheme(), addresses.join(","))
}

async fn connect(url: &str) -> Result<Client, Error> {
    timeout(PATIENCE, Client::connect(url)).await.expect("no hang")
}

/// Whether commands reach this node. Sends one.
async fn reaches(client: &Client, pair: &Pair, node: usize) -> bool {
    let before = pair.cluster.calls(node, "ping");
    // While it reconnects, a command may fail or wait.
    let _ = timeout(PATIENCE, client.command(["PING"])).await.expect("no hang");
    pair.cluster.calls(node, "ping") > before
}

#[tokio::test]
async fn the_primary_is_found_though_sentinels_are_dead_silent_or_wrong() {
    let pair = Pair::start().await;
    let (good, also_good) = (pair.sentinel(0).await, pair.sentinel(0).await);
    let wrong = pair.sentinel(1).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent = silent.local_addr().expect("bound");
    let dead = ReservedPort::new();

    let addresses = [
        dead.addr().to_string(),
        silent.to_string(),
        wrong.address.clone(),
        good.address.clone(),
        also_good.address.clone(),
    ];
    let url = format!("{}://{}/mymaster", scheme(), addresses.join(","));
    let client = connect(&url).await.expect("connected");
    assert!(reaches(&client, &pair, 0).await);
}

#[tokio::test]
async fn a_server_that_is_not_the_primary_is_refused() {
    let pair = Pair::start().await;
    let wrong = pair.sentinel(1).await;
    let url = format!("{}://{}/mymaster?timeout=1s", scheme(), wrong.address);
    let error = connect(&url).await.expect_err("a replica");
    assert!(matches!(cause(&error), ConnectCause::NotPrimary { .. }), "{error}");
    assert!(error.to_string().contains("whose role is replica"), "{error}");
    // One vote each: the server with the right role wins.
    let right = pair.sentinel(0).await;
    let client = connect(&self::url(&[&wrong, &right])).await.expect("connected");
    assert!(reaches(&client, &pair, 0).await);
}

/// HELLO, which every user may run, says it too. Without it, the Sentinels are believed.
#[tokio::test]
async fn a_user_who_may_not_ask_for_the_role_connects_to_the_primary() {
    let pair = Pair::start().await;
    for node in [0, 1] {
        let refusal = "NOPERM User app has no permissions to run the 'role' command";
        pair.cluster.answer(node, "ROLE", Some(Reply::error(refusal)));
    }
    let right = pair.sentinel(0).await;
    for protocol in ["resp2", "resp3"] {
        let client = connect(&format!("{}&protocol={protocol}", url(&[&right]))).await;
        let client = client.unwrap_or_else(|error| panic!("{protocol}: {error:#}"));
        assert!(reaches(&client, &pair, 0).await);
    }
    let wrong = pair.sentinel(1).await;
    let error = connect(&url(&[&wrong]).replace("=10s", "=1s")).await.expect_err("a replica");
    assert!(matches!(cause(&error), ConnectCause::NotPrimary { .. }), "{error}");
}

/// The client asks the primary over TCP where its RDMA listener is.
#[tokio::test]
async fn a_provider_logs_in_where_the_primary_is_asked_for_its_rdma_port() {
    let pair = Pair::start().await;
    let admin = connect(&pair.cluster.url(0)).await.expect("connected");
    admin.command(["CONFIG", "SET", "requirepass", "s3cret"]).await.expect("set");
    let announced = pair.cluster.announced(0);
    let (host, port) = announced.rsplit_once(':').expect("host and port");
    let sentinel = Sentinel::start(Script::Reports((host.to_owned(), port.parse().expect("a port")))).await;
    let config = Config::default()
        .credentials(async || Ok::<_, std::io::Error>(Credentials::new("default", "s3cret")));
    let url = format!("{}&rdma_port=discover", url(&[&sentinel]));
    let client = timeout(PATIENCE, Client::connect_with(url, &config)).await.expect("no hang");
    client.expect("connected").command(["PING"]).await.expect("answered");
}

/// RESP2 begins without HELLO.
#[tokio::test]
async fn a_server_that_is_not_the_primary_is_refused_in_resp2_too() {
    let pair = Pair::start().await;
    let wrong = pair.sentinel(1).await;
    let url = format!("{}://{}/mymaster?timeout=1s&protocol=resp2", scheme(), wrong.address);
    let error = connect(&url).await.expect_err("a replica");
    assert!(error.to_string().contains("whose role is slave"), "{error}");
    // Another error than that of a missing right says nothing about the role.
    pair.cluster.answer(1, "ROLE", Some(Reply::error("ERR no")));
    connect(&url).await.expect_err("a role that is not known");
}

#[tokio::test]
async fn a_switch_moves_the_connection_though_the_old_one_lives() {
    let pair = Pair::start().await;
    let sentinels = [pair.sentinel(0).await, pair.sentinel(0).await, pair.sentinel(0).await];
    let client = connect(&url(&[&sentinels[0], &sentinels[1], &sentinels[2]])).await.expect("connected");
    assert!(reaches(&client, &pair, 0).await);
    for sentinel in &sentinels {
        sentinel.heard(1).await;
    }
    // On a connection of its own, which is kept for the next time.
    client.get_into("k", &mut [0; 8]).await.expect("a reply");
    assert_eq!(pair.cluster.calls(0, "get"), 1);

    pair.cluster.fail_over(1);
    for sentinel in &sentinels {
        sentinel.report(pair.address(1));
    }
    sentinels[1].announce();
    let moved = async {
        while !reaches(&client, &pair, 1).await {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, moved).await.expect("the client follows");
    assert!(!reaches(&client, &pair, 0).await);
    assert_eq!(client.counters().reconnects, 1);
    client.get_into("k", &mut [0; 8]).await.expect("a reply");
    assert_eq!((pair.cluster.calls(0, "get"), pair.cluster.calls(1, "get")), (1, 1));
}

/// The old primary lives, and accepts subscriptions: only the Sentinels say that its messages are not those of the service.
#[tokio::test]
async fn a_switch_moves_a_subscriber_though_the_old_primary_lives() {
    let pair = Pair::start().await;
    let sentinels = [pair.sentinel(0).await, pair.sentinel(0).await, pair.sentinel(0).await];
    let client = connect(&url(&[&sentinels[0], &sentinels[1], &sentinels[2]])).await.expect("connected");
    let mut subscriber = client.subscriber().await.expect("connected");
    subscriber.subscribe(Subscription::Channel, ["news"]).await.expect("subscribed");
    for sentinel in &sentinels {
        sentinel.heard(1).await;
    }
    assert_eq!((pair.cluster.calls(0, "subscribe"), pair.cluster.calls(1, "subscribe")), (1, 0));

    pair.cluster.fail_over(1);
    for sentinel in &sentinels {
        sentinel.report(pair.address(1));
    }
    sentinels[1].announce();
    let event = timeout(PATIENCE, subscriber.next()).await.expect("it follows").expect("not the end");
    assert_eq!(event, Event::Reconnected);
    assert_eq!((pair.cluster.calls(0, "subscribe"), pair.cluster.calls(1, "subscribe")), (1, 1));
    assert!(subscriber.connections().iter().all(|info| info.peer != Some(peer_of(&pair, 0))));
}

/// The address of a node's device.
fn peer_of(pair: &Pair, node: usize) -> SocketAddr {
    let (host, port) = pair.address(node);
    SocketAddr::new(host.parse().expect("an address"), port)
}

#[tokio::test]
async fn one_sentinel_alone_moves_nothing() {
    let pair = Pair::start().await;
    let sentinels = [pair.sentinel(0).await, pair.sentinel(0).await, pair.sentinel(0).await];
    let client = connect(&url(&[&sentinels[0], &sentinels[1], &sentinels[2]])).await.expect("connected");
    for sentinel in &sentinels {
        sentinel.heard(1).await;
    }
    sentinels[0].report(pair.address(1));
    let asked = sentinels[0].asked() + sentinels[1].asked() + sentinels[2].asked();
    sentinels[0].announce();
    // It asks the others too.
    let verified = async {
        while sentinels[1].asked() + sentinels[2].asked() + sentinels[0].asked() < asked + 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, verified).await.expect("the report is verified");
    assert!(reaches(&client, &pair, 0).await);
    assert_eq!(client.counters().reconnects, 0);
}

/// Right after a failover most Sentinels report the old primary.
#[tokio::test]
async fn stale_sentinels_do_not_move_the_client_from_the_primary() {
    let pair = Pair::start().await;
    let sentinels = [pair.sentinel(0).await, pair.sentinel(0).await, pair.sentinel(0).await];
    let client = connect(&url(&[&sentinels[0], &sentinels[1], &sentinels[2]])).await.expect("connected");
    for sentinel in &sentinels {
        sentinel.heard(1).await;
    }
    for stale in &sentinels[..2] {
        stale.report(pair.address(1));
    }
    for _ in 0..5 {
        for sentinel in &sentinels {
            sentinel.heard(1).await;
        }
        // Each subscription, and each report, asks the server that most of them name.
        let before = pair.cluster.calls(1, "hello");
        sentinels[0].announce();
        inquired(&pair, 1, before).await;
        let before = pair.cluster.calls(1, "hello");
        sentinels[1].hang_up();
        inquired(&pair, 1, before).await;
        assert!(reaches(&client, &pair, 0).await);
    }
    assert_eq!(client.counters().reconnects, 0);

    // What they say late is followed too.
    pair.cluster.fail_over(1);
    sentinels[0].announce();
    while !reaches(&client, &pair, 1).await {}
}

/// Right after a failover most Sentinels report the old primary.
#[tokio::test]
async fn a_client_connects_to_the_primary_that_few_sentinels_report() {
    let pair = Pair::start().await;
    let (stale, stale_too) = (pair.sentinel(1).await, pair.sentinel(1).await);
    // It answers last.
    let right = Sentinel::start(Script::Slow(pair.address(0))).await;
    let client = connect(&url(&[&stale, &stale_too, &right])).await.expect("connected");
    assert!(reaches(&client, &pair, 0).await);
}

/// Among two, the first answer counts.
#[tokio::test]
async fn a_stale_sentinel_that_hangs_up_again_and_again_moves_nothing() {
    let pair = Pair::start().await;
    let (stale, right) = (pair.sentinel(1).await, pair.sentinel(0).await);
    let client = connect(&url(&[&stale, &right])).await.expect("connected");
    right.heard(1).await;
    for _ in 0..10 {
        stale.heard(1).await;
        stale.hang_up();
    }
    stale.heard(1).await;
    assert!(reaches(&client, &pair, 0).await);
    assert_eq!(client.counters().reconnects, 0);
}

/// Waits until this node was asked for its role once more: its reply to HELLO has it.
async fn inquired(pair: &Pair, node: usize, before: u64) {
    let asked = async {
        while pair.cluster.calls(node, "hello") == before {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, asked).await.expect("the server is asked");
}

#[tokio::test]
async fn a_lost_primary_is_replaced_by_the_one_that_is_reported() {
    let pair = Pair::start().await;
    let sentinel = pair.sentinel(0).await;
    let config = Config::default().offline_timeout(PATIENCE);
    let client = Client::connect_with(url(&[&sentinel]), &config).await.expect("connected");
    pair.cluster.kill(0).await;
    pair.cluster.fail_over(1);
    sentinel.report(pair.address(1));
    while !reaches(&client, &pair, 1).await {}
}

#[tokio::test]
async fn what_is_wrong_with_the_sentinels_is_reported() {
    let pair = Pair::start().await;
    let sentinel = pair.sentinel(0).await;
    let unknown = url(&[&sentinel]).replace("mymaster", "other");
    let error = connect(&unknown).await.expect_err("no such service");
    assert!(matches!(cause(&error), ConnectCause::UnknownService { asked: 1, .. }), "{error}");

    let not_a_sentinel =
        pair.cluster.tcp_url(0).expect("it has TCP").rsplit('/').next().expect("an address").to_owned();
    let error = connect(&format!("{}://{not_a_sentinel}/mymaster", scheme())).await.expect_err("a server");
    assert!(matches!(cause(&error), ConnectCause::NoSentinel { asked: 1, .. }), "{error}");
    assert!(error.to_string().contains("is it a Sentinel?"), "{error}");

    let garbage = Sentinel::start(Script::Garbage).await;
    let error = connect(&url(&[&garbage])).await.expect_err("garbage");
    assert!(error.to_string().contains("reports no address"), "{error}");

    let guarded = Sentinel::start(Script::Guarded).await;
    let error = connect(&url(&[&guarded])).await.expect_err("a login is needed");
    assert!(error.to_string().contains("sentinel_password="), "{error}");
    let folder = Folder::new("sentinel-password");
    let file = folder.file("password");
    std::fs::write(&file, "watch\n").expect("written");
    let error = connect(&format!("{}&sentinel_password_file={file}", url(&[&guarded]))).await;
    let error = error.expect_err("logged in, and the service is not known");
    assert!(matches!(cause(&error), ConnectCause::UnknownService { .. }), "{error}");

    let config = Config::default();
    let here = Client::connect_with_dialer(url(&[&sentinel]), &config, || async {
        Err::<tokio::net::TcpStream, _>(std::io::Error::other("never called"))
    });
    assert!(matches!(here.await, Err(Error::Endpoint(_))));
}

/// Lets minutes pass, and what is due then happen. The clock stands still only meanwhile.
async fn pass_minutes(minutes: usize) {
    for _ in 0..12 * minutes {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(5)).await;
        tokio::time::resume();
        for _ in 0..500 {
            tokio::task::yield_now().await;
        }
    }
}

/// A client whose connection to the primary does not mind the time that passes.
async fn timeless(url: &str) -> Client {
    let config = Config::default().keepalive_timeout(None);
    timeout(PATIENCE, Client::connect_with(url, &config)).await.expect("no hang").expect("connected")
}

/// Its kernel keeps the connection alive, so only its silence shows it.
#[tokio::test]
async fn a_sentinel_that_answers_nothing_is_listened_to_on_another_connection() {
    let pair = Pair::start().await;
    let sentinel = pair.sentinel(0).await;
    let _client = timeless(&url(&[&sentinel])).await;
    sentinel.heard(1).await;
    sentinel.freeze();
    pass_minutes(2).await;
    let again = async {
        while sentinel.listeners() < 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(60), again).await.expect("it listens again");
}

#[tokio::test]
async fn a_sentinel_that_has_nothing_to_report_is_asked_and_kept() {
    let pair = Pair::start().await;
    let sentinel = pair.sentinel(0).await;
    let _client = timeless(&url(&[&sentinel])).await;
    sentinel.heard(1).await;
    pass_minutes(3).await;
    assert_eq!(sentinel.listeners(), 1);
    assert!(sentinel.pings() > 1, "{} PINGs", sentinel.pings());
}

/// Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(300);
