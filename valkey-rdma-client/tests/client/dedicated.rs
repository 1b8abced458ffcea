//! Connections of one's own: blocking commands, and what a dropped call means.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use valkey_rdma_client::{Client, Command, Config, Error, Fate, Fetched, LostCause, Purpose};
use valkey_rdma_mock::MockServer;

use crate::target::{Target, target};

/// A client whose connections have a name, so that the server tells of them.
async fn named(target: &Target) -> Client {
    let config = Config::default().name(target.key("blocks"));
    target.client_with(&config).await
}

/// Waits until a connection of that name is blocked on the server, or none is.
async fn until_blocked(client: &Client, target: &Target, wanted: bool) {
    let name = format!("name={} ", target.key("blocks"));
    loop {
        let list: String = client.command(["CLIENT", "LIST"]).await.expect("a list").convert().expect("text");
        let blocked = list.lines().any(|line| line.contains(&name) && line.contains(" flags=b"));
        if blocked == wanted {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_of_ones_own_takes_what_the_shared_one_refuses() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("k");
    client.command(["SET", &key, "in database 0"]).await.expect("set");
    let mut own = client.dedicated().await.expect("connected");
    own.command(["SELECT", "1"]).await.expect("selected");
    assert!(own.command(["GET", &key]).await.expect("a reply").is_nil());
    drop(own);
    let mut next = client.dedicated().await.expect("connected");
    assert!(!next.command(["GET", &key]).await.expect("a reply").is_nil(), "a changed one is not reused");
}

/// The next command would get a message, or the first would wait for ever.
#[tokio::test]
async fn what_does_not_have_one_reply_is_refused_on_a_connection_of_ones_own_too() {
    let target = target().await;
    let client = target.client().await;
    let mut own = client.dedicated().await.expect("connected");
    let mut watch = client.watch([target.key("k")]).await.expect("watched");
    for (line, instead) in [
        ("MONITOR", "valkey-cli monitor"),
        ("subscribe news", "Client::subscriber"),
        ("PSUBSCRIBE n*", "Client::subscriber"),
        ("SSUBSCRIBE news", "Client::subscriber"),
        ("UNSUBSCRIBE", "Client::subscriber"),
        ("CLIENT REPLY OFF", "Client::pipeline"),
        ("client reply skip", "Client::pipeline"),
        ("SYNC", "Dialer::dial"),
        ("PSYNC ? -1", "Dialer::dial"),
    ] {
        let command = || Command::from_args(line.split(' '));
        let together = [Command::new("PING"), command()];
        for outcome in [
            timeout(PATIENCE, own.command(command())).await.expect("no hang").map(drop),
            timeout(PATIENCE, own.execute_all(&together, None)).await.expect("no hang").map(drop),
            timeout(PATIENCE, watch.command(command())).await.expect("no hang").map(drop),
        ] {
            let error = outcome.expect_err("refused");
            assert!(matches!(error, Error::Refused(_)) && error.to_string().contains(instead), "{error}");
        }
    }
    for line in
        ["CLIENT REPLY ON", "CLIENT TRACKING ON", "MULTI", "DISCARD", "SELECT 1", "HELLO 3", "READONLY"]
    {
        let reply = own.command(line.split(' ')).await;
        assert!(!matches!(reply, Err(Error::Refused(_))), "{line}: {reply:?}");
    }
    assert_eq!(own.query::<String>(["PING"]).await.expect("its own reply"), "PONG");
}

#[tokio::test]
async fn every_connection_is_seen_with_what_it_is_for() {
    let target = target().await;
    let client = target.client().await;
    let purposes =
        || -> Vec<_> { client.connections().iter().map(|connection| connection.purpose).collect() };
    assert_eq!(purposes(), [Purpose::Shared]);
    client.blocking_command(["BLPOP", &target.key("none"), "0.01"]).await.expect("a reply");
    assert_eq!(purposes(), [Purpose::Shared, Purpose::Idle]);
    let watch = client.watch([target.key("none")]).await.expect("watching");
    assert_eq!(purposes(), [Purpose::Shared, Purpose::Call]);
    drop(watch);
    let own = client.dedicated().await.expect("connected");
    assert_eq!(purposes(), [Purpose::Shared, Purpose::Dedicated]);
    let subscriber = client.subscriber().await.expect("connected");
    assert_eq!(purposes(), [Purpose::Shared, Purpose::Dedicated, Purpose::Subscriber]);

    let status = client.connections();
    assert!(status.iter().all(|connection| connection.info.peer == own.info().peer));
    assert!(status[1].to_string().starts_with("purpose:dedicated\nstate:connected\nconnection:"));
    drop(own);
    assert_eq!(purposes(), [Purpose::Shared, Purpose::Subscriber]);
    // A task of its own closes that one.
    drop(subscriber);
    while purposes() != [Purpose::Shared] {
        tokio::task::yield_now().await;
    }
}

/// What it left behind would reach whoever is given the connection next.
#[tokio::test]
async fn what_changes_a_connection_needs_one_of_ones_own() {
    let target = target().await;
    let client = target.client().await;
    for command in [&["MULTI"][..], &["CLIENT", "SETNAME", "x"], &["CLIENT", "NO-EVICT", "ON"]] {
        let error = client.blocking_command(command).await.expect_err("refused");
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        let streamed = command.iter().skip(1).fold(Command::new(command[0]), Command::arg);
        let error = client.stream_reply(streamed.clone()).await.expect_err("refused");
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        let error = client.stream_argument(streamed, 1).await.expect_err("refused");
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        client.dedicated().await.expect("connected").command(command).await.expect("its own");
    }
    for wait in [["WAIT", "0", "1"], ["WAITAOF", "0", "1"]] {
        // On another connection than the writes it would count nothing, and succeed.
        let error = client.blocking_command(wait).await.expect_err("refused");
        assert!(error.to_string().contains("send both on Client::dedicated"), "{error}");
    }
    let key = target.key("jobs");
    let blocking = client.command(["BLPOP", &key, "0"]).await.expect_err("refused");
    assert!(blocking.to_string().contains("use Client::blocking_command"), "{blocking}");
}

#[tokio::test]
async fn a_dropped_call_ends_the_connection() {
    let target = target().await;
    let client = target.client().await;
    let mut own = client.dedicated().await.expect("connected");
    let slow = Command::new("DEBUG").arg("SLEEP").arg("0.05").timeout(Duration::from_millis(1));
    let error = own.command(slow).await.expect_err("too slow, or not allowed");
    if let Error::Server(_) = error {
        return; // DEBUG is off by default in a real server
    }
    assert_eq!(error.fate(), Fate::MayHaveRun);
    let error = own.command(["PING"]).await.expect_err("what comes next is unknown");
    assert!(
        matches!(&error, Error::Lost(lost) if matches!(lost.cause(), LostCause::TimedOut { .. })),
        "{error:?}"
    );
    assert_eq!(error.fate(), Fate::NotSent);
    assert_eq!(client.command(["PING"]).await.expect("alive").as_str(), Some("PONG"));
}

#[tokio::test]
async fn a_blocking_command_does_not_hold_up_the_others() {
    let target = target().await;
    let client = named(&target).await;
    let key = target.key("jobs");
    let waiting = {
        let (client, key) = (client.clone(), key.clone());
        tokio::spawn(async move { client.blocking_command(["BLPOP", &key, "0"]).await })
    };
    until_blocked(&client, &target, true).await;
    client.command(["RPUSH", &key, "job"]).await.expect("pushed");
    let job: (String, String) = waiting.await.expect("no panic").expect("popped").convert().expect("a pair");
    assert_eq!(job, (key, "job".to_owned()));
}

#[tokio::test]
async fn a_dropped_blocking_command_takes_nothing_later() {
    let target = target().await;
    let client = named(&target).await;
    let key = target.key("jobs");
    let waiting = {
        let (client, key) = (client.clone(), key.clone());
        tokio::spawn(async move { client.blocking_command(["BLPOP", &key, "0"]).await })
    };
    until_blocked(&client, &target, true).await;
    waiting.abort();
    drop(waiting.await);
    until_blocked(&client, &target, false).await;
    client.command(["RPUSH", &key, "job"]).await.expect("pushed");
    let left: usize = client.command(["LLEN", &key]).await.expect("a reply").convert().expect("a number");
    assert_eq!(left, 1);
}

/// Far longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

/// They bring mocks of their own: a real server beside them shows nothing.
mod mocks_only {
    use super::*;

    /// Each new connection leaves memory behind in an RDMA server.
    #[tokio::test]
    async fn connections_in_regular_use_are_kept_and_others_are_closed() {
        let server = MockServer::start().await;
        let client = Client::connect(server.tcp_url()).await.expect("connected");
        let count = |purpose| client.connections().iter().filter(|status| status.purpose == purpose).count();
        let eight = async || {
            client.command(["RPUSH", "jobs", "1", "2", "3", "4", "5", "6", "7", "8"]).await.expect("pushed");
            let taken = join_all((0..8).map(|_| client.blocking_command(["BLPOP", "jobs", "0"]))).await;
            assert!(taken.iter().all(Result::is_ok), "{taken:?}");
        };
        eight().await;
        let connections = || server.received().iter().filter(|received| received.command.is("HELLO")).count();
        let before = connections();
        tokio::time::pause();
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(count(Purpose::Idle), 8);
            eight().await;
        }
        assert_eq!(connections(), before);
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(count(Purpose::Idle), 2);
    }

    #[tokio::test]
    async fn a_write_on_a_connection_that_the_server_has_closed_is_not_sent() {
        let mut server = MockServer::start().await;
        let client = Client::connect(server.tcp_url()).await.expect("connected");
        let mut own = client.dedicated().await.expect("connected");
        own.command(["PING"]).await.expect("a reply");
        server.kill().await;
        while own.is_open() {
            tokio::task::yield_now().await;
        }
        for _ in 0..2 {
            let error = own.command(["INCR", "n"]).await.expect_err("it is closed");
            assert_eq!(error.fate(), Fate::NotSent, "{error}");
        }
    }

    #[test]
    fn a_connection_that_was_moved_needs_nothing_of_the_runtime_that_made_it() {
        let mock = Runtime::new().expect("a runtime");
        let server = mock.block_on(MockServer::start());
        server.set("k", "value");
        let first = Runtime::new().expect("a runtime");
        let mut own = first.block_on(async {
            Client::connect(server.tcp_url()).await.expect("connected").dedicated().await.expect("connected")
        });

        let second = Builder::new_current_thread().enable_all().build().expect("a runtime");
        own.move_to(second.handle()).expect("moved");
        drop(first);
        let mut memory = [0; 5];
        let mut place = Some(&mut memory[..]);
        let fetched = second.block_on(own.get_each(&["k"], None, |_, _| place.take())).expect("read");
        assert!(matches!(fetched[..], [Fetched::Read(5)]), "{fetched:?}");
        assert_eq!(&memory, b"value");

        // And on, although the runtime it was at has ended.
        let third = Builder::new_current_thread().enable_all().build().expect("a runtime");
        drop(second);
        own.move_to(third.handle()).expect("moved");
        assert_eq!(third.block_on(own.command(["PING"])).expect("pong").as_str(), Some("PONG"));
        drop(own);
        mock.block_on(server.shutdown());
    }

    #[tokio::test]
    async fn a_connection_that_the_server_closed_is_known_to_have_ended() {
        let mock = MockServer::start().await;
        // Its reactor never runs, but the kernel knows.
        let asleep = Builder::new_current_thread().enable_all().build().expect("a runtime");
        for url in [mock.url(), mock.tcp_url()] {
            let client = Client::connect(url).await.expect("connected");
            let mut own = client.dedicated().await.expect("connected");
            let id: i64 = own.query(["CLIENT", "ID"]).await.expect("a number");
            own.move_to(asleep.handle()).expect("moved");
            assert!(own.is_open());
            client.command(["CLIENT", "KILL", "ID", &id.to_string()]).await.expect("killed");
            while own.is_open() {
                tokio::task::yield_now().await;
            }
        }
        asleep.shutdown_background();
    }
}
