use std::time::Duration;

use bytes::Bytes;
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use super::*;
use crate::config::Config;
use crate::error::Fate;
use crate::link::tests::{Door, Peer, pair, settle};

const LIMIT: Duration = Duration::from_secs(2);

/// A client, and the far end of the next connection it makes.
async fn client() -> (Client, Door, Peer, Peer) {
    let config = Config::default().command_timeout(LIMIT);
    let (client, door, peer) = pair(&config).await;
    let own = door.admit();
    (client, door, peer, own)
}

fn is_late(outcome: Result<impl std::fmt::Debug, Error>, fate: Fate) {
    let error = outcome.expect_err("too late");
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    assert_eq!(error.fate(), fate);
}

/// A server that takes everything and never answers.
async fn silent(mut own: Peer) -> DuplexStream {
    own.greet().await;
    own.0
}

#[tokio::test(start_paused = true)]
async fn what_runs_on_a_connection_of_its_own_meets_the_clients_limit() {
    let begin = Instant::now();
    let (client, door, _peer, own) = client().await;
    let mut buffer = [0; 8];
    let (outcome, _open) = tokio::join!(client.get_into("k", &mut buffer), silent(own));
    is_late(outcome, Fate::MayHaveRun);
    let (outcome, _open) = tokio::join!(client.watch(["k"]), silent(door.admit()));
    is_late(outcome, Fate::MayHaveRun);

    let mut own = door.admit();
    let greet = async {
        own.greet().await;
        own.expect("*2\r\n$5\r\nWATCH\r\n$1\r\nk\r\n").await;
        own.say(b"+OK\r\n").await;
    };
    let (watch, ()) = tokio::join!(client.watch(["k"]), greet);
    let mut watch = watch.expect("watching");
    is_late(watch.command(["GET", "k"]).await, Fate::MayHaveRun);
    assert_eq!(begin.elapsed(), 3 * LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_value_may_take_long_and_not_stand_still() {
    let (client, _door, _peer, mut own) = client().await;
    let serve = async {
        own.greet().await;
        own.expect("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").await;
        own.say(b"$100\r\n").await;
        own
    };
    let (reader, mut own) = tokio::join!(client.stream_reply(Command::new("GET").arg("k")), serve);
    let mut reader = reader.expect("a reply").expect("a value");
    for _ in 0..10 {
        let say = async {
            sleep(LIMIT * 3 / 4).await;
            own.say(b"12345").await;
        };
        let (chunk, ()) = tokio::join!(reader.chunk(), say);
        assert_eq!(chunk.expect("in time"), Some(Bytes::from_static(b"12345")));
    }
    assert!(matches!(reader.finish().await, Err(Error::Refused(_))));
    is_late(reader.chunk().await, Fate::MayHaveRun);
}

#[tokio::test(start_paused = true)]
async fn an_argument_that_is_not_taken_has_not_run() {
    let (client, door, _peer, own) = client().await;
    let argument = client.stream_argument(Command::new("SET").arg("k"), 1 << 20);
    let (writer, open) = tokio::join!(argument, silent(own));
    let mut writer = writer.expect("connected");
    is_late(writer.write(&[7; 1 << 20]).await, Fate::NotSent);
    drop(open);

    // The connection ends half way.
    let argument = client.stream_argument(Command::new("SET").arg("k"), 1 << 20);
    let (writer, open) = tokio::join!(argument, silent(door.admit()));
    let mut writer = writer.expect("connected");
    writer.write(&[7; 100]).await.expect("room");
    drop(open);
    let error = writer.write(&[7; 100]).await.expect_err("lost");
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    assert_eq!(error.fate(), Fate::NotSent);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_will_not_have_an_argument_says_why() {
    let (client, _door, _peer, mut own) = client().await;
    let argument = client.stream_argument(Command::new("SET").arg("k"), 1 << 20);
    let refuse = async {
        own.greet().await;
        own.expect("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048576\r\n").await;
        own.say(b"-ERR Protocol error: invalid bulk length\r\n").await;
    };
    let (writer, ()) = tokio::join!(argument, refuse);
    drop(own);
    let error = writer.expect("connected").write(&[7; 1 << 20]).await.expect_err("refused");
    let said = error.server().expect("the server's own error");
    assert_eq!(said.message, "Protocol error: invalid bulk length");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_was_read_to_its_end_gives_the_connection_back() {
    let (client, door, _peer, mut own) = client().await;
    for round in 0..2 {
        let serve = async {
            if round == 0 {
                own.greet().await;
            }
            own.expect("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").await;
            own.say(b"$4\r\nfilm\r\n").await;
        };
        let (reader, ()) = tokio::join!(client.stream_reply(Command::new("GET").arg("k")), serve);
        let mut reader = reader.expect("a reply").expect("a value");
        let mut buffer = [0; 8];
        assert_eq!(reader.read(&mut buffer).await.expect("read"), 4);
        assert_eq!(&buffer[..4], b"film");
        reader.finish().await.expect("the end");
    }
    assert_eq!(door.tries(), 2, "the client's own, and one for both values");
}

/// A server that tracks keys for a cache sends invalidations on pooled connections too.
#[tokio::test(start_paused = true)]
async fn a_push_message_is_not_the_reply_to_a_streamed_argument() {
    let (client, _door, _peer, mut own) = client().await;
    let write = async {
        let set = Command::new("SET").arg("k");
        let mut writer = client.stream_argument(set, 3).await.expect("a writer");
        writer.write(b"new").await.expect("written");
        let reply = writer.finish().await.expect("a reply");
        assert_eq!(reply.as_str(), Some("OK"));
        let mut buffer = [0; 8];
        client.get_into("k", &mut buffer).await.expect("the next reply on this connection")
    };
    let serve = async {
        own.greet().await;
        own.expect("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nnew\r\n").await;
        own.say(b">2\r\n+invalidate\r\n_\r\n").await;
        settle().await;
        own.say(b"+OK\r\n").await;
        own.expect("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").await;
        own.say(b"$3\r\nnew\r\n").await;
    };
    let (read, ()) = tokio::join!(write, serve);
    assert_eq!(read, Some(3));
}

/// The server runs the first command although the second never arrives completely.
#[tokio::test(start_paused = true)]
async fn commands_that_left_before_a_long_one_may_have_run() {
    let commands = [Command::new("INCR").arg("n"), Command::new("SET").arg("k").arg(vec![7; 1 << 20])];
    for limit in [Some(LIMIT), None] {
        let (client, _door, _peer, mut own) = client().await;
        let run = async {
            let mut connection = client.dedicated().await.expect("connected");
            connection.execute_all(&commands, limit).await
        };
        let serve = async {
            own.greet().await;
            own.expect("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n").await;
            limit.map(|_| own)
        };
        let (outcome, _open) = tokio::join!(run, serve);
        assert_eq!(outcome.expect_err("too late, or lost").fate(), Fate::MayHaveRun);
    }
}

/// Over TCP, one read fills memory and goes on behind it.
#[tokio::test]
async fn values_that_arrive_over_tcp_in_two_parts_are_read_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("valkey://{}", listener.local_addr().expect("bound"));
    let accept = async || {
        let mut peer = Peer(listener.accept().await.expect("a connection").0);
        peer.greet().await;
        peer
    };
    let (client, _peer) = tokio::join!(Client::connect(url.as_str()), accept());
    let client = client.expect("connected");
    let (connection, mut peer) = tokio::join!(client.dedicated(), accept());
    let mut connection = connection.expect("connected");

    // Small ones, those that are read past the decoder, and large ones in a row.
    let lengths = [3, 20_000, 16_384, 300, 17_000, 0, 40_000];
    let values = lengths.map(|len| (0..len).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    let (mut replies, mut ends) = (Vec::new(), Vec::new());
    for value in &values {
        replies.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
        ends.push(replies.len());
        replies.extend_from_slice(value);
        ends.push(replies.len());
        replies.extend_from_slice(b"\r\n");
    }
    // Around each end, and a read's room behind it.
    let near = ends.iter().flat_map(|&end| (end.saturating_sub(9)..end + 5).chain(end + 250..end + 262));
    let keys = lengths.map(|len| len.to_string());
    let request: String =
        keys.iter().map(|key| format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())).collect();
    for cut in near.filter(|&cut| cut <= replies.len()) {
        let mut memory = lengths.map(|len| vec![0; len]);
        let mut places: Vec<_> = memory.iter_mut().map(|memory| Some(&mut memory[..])).collect();
        let read = connection.get_each(&keys, None, |index, _| places[index].take());
        let serve = async {
            peer.expect(&request).await;
            peer.say(&replies[..cut]).await;
            settle().await;
            peer.say(&replies[cut..]).await;
        };
        let (fetched, ()) = tokio::join!(read, serve);
        let fetched = fetched.expect("read");
        assert!(fetched.iter().all(|fetched| matches!(fetched, Fetched::Read(_))), "{cut}: {fetched:?}");
        assert!(memory == values, "{cut}");
    }
}
