use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};
use valkey_rdma_resp::Protocol;

use super::*;
use crate::client::Client;
use crate::command::Command;
use crate::config::Config;
use crate::endpoint::Transport;
use crate::link::RawConnection;
use crate::link::tests::{Peer, pair, settle};
use crate::stats::{ConnectionInfo, Purpose};
use crate::streaming::ValueReader;

/// Many times what fits between client and server.
const LEN: usize = 1 << 20;

const GET: &str = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

/// A client, and the far end of its next connection.
async fn client() -> (Client, Peer, Peer) {
    let (client, door, shared) = pair(&Config::default()).await;
    let own = door.admit();
    (client, shared, own)
}

/// The whole reply, as a server writes it that is not told of a disconnect kindly; then waits for the disconnect.
async fn answer(own: &mut Peer, reply: &[u8]) -> io::Result<()> {
    own.0.write_all(reply).await?;
    let mut more = [0];
    assert_eq!(own.0.read(&mut more).await?, 0, "a disconnect, and nothing before it");
    Ok(())
}

fn value() -> Vec<u8> {
    let mut reply = format!("${LEN}\r\n").into_bytes();
    reply.resize(reply.len() + LEN, b'v');
    reply.extend_from_slice(b"\r\n");
    reply
}

/// Runs a call until the server has come so far, and drops it.
async fn drop_after<T>(call: impl Future<Output = T>, progress: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        _ = call => panic!("there is more to come"),
        () = progress => {}
    }
}

fn purposes(client: &Client) -> Vec<Purpose> {
    client.connections().iter().map(|connection| connection.purpose).collect()
}

async fn take_get(own: &mut Peer) {
    own.greet().await;
    own.expect(GET).await;
}

/// A client that reads a reply of which its server has said so much, and the ends of its connections.
async fn half_read(said: &[u8]) -> (Client, Peer, Peer, ValueReader) {
    let (client, shared, mut own) = client().await;
    let serve = async {
        take_get(&mut own).await;
        own.say(said).await;
    };
    let (reader, ()) = tokio::join!(client.stream_reply(Command::new("GET").arg("k")), serve);
    (client, shared, own, reader.expect("a reply").expect("a value"))
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_dropped_half_way_reads_on_before_it_disconnects() {
    let (client, _shared, mut own) = client().await;
    let serve = async {
        take_get(&mut own).await;
        answer(&mut own, &value()).await
    };
    let read = async {
        let reader = client.stream_reply(Command::new("GET").arg("k")).await;
        let mut reader = reader.expect("a reply").expect("a value");
        assert!(!reader.chunk().await.expect("a chunk").expect("not the end").is_empty());
        assert!(reader.read(&mut [0; 100]).await.expect("read") > 0);
        drop(reader);
    };
    let (served, ()) = tokio::join!(serve, read);
    served.expect("every byte was taken");
}

#[tokio::test(start_paused = true)]
async fn a_value_that_does_not_fit_is_read_on_before_the_disconnect() {
    let (client, _shared, mut own) = client().await;
    let serve = async {
        take_get(&mut own).await;
        answer(&mut own, &value()).await
    };
    let mut small = [0; 100];
    let (served, outcome) = tokio::join!(serve, client.get_into("k", &mut small));
    outcome.expect_err("does not fit");
    served.expect("every byte was taken");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_anywhere_reads_on_before_the_disconnect() {
    // Before the reply begins, within its header, and within the value.
    for said in [0, 3, 20_000] {
        let (client, _shared, mut own) = client().await;
        let mut buffer = vec![0; LEN];
        let reply = value();
        let begun = async {
            take_get(&mut own).await;
            own.say(&reply[..said]).await;
            settle().await;
        };
        drop_after(client.get_into("k", &mut buffer), begun).await;
        answer(&mut own, &reply[said..]).await.expect("every byte was taken");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_has_begun_is_read_on_whatever_the_command() {
    let (client, _shared, mut own) = client().await;
    let mut reply = b"*2\r\n".to_vec();
    reply.extend(value().repeat(2));
    let call = async {
        let mut connection = client.dedicated().await.expect("connected");
        connection.command(["LRANGE", "k", "0", "1"]).await
    };
    let begun = async {
        own.greet().await;
        own.expect("*4\r\n$6\r\nLRANGE\r\n$1\r\nk\r\n$1\r\n0\r\n$1\r\n1\r\n").await;
        own.say(&reply[..20_000]).await;
        settle().await;
    };
    drop_after(call, begun).await;
    answer(&mut own, &reply[20_000..]).await.expect("every byte was taken");
}

/// The shared connection ends with the last client, but for replies that nobody waits for any more.
#[tokio::test(start_paused = true)]
async fn the_last_client_reads_on_before_it_disconnects() {
    for said in [0, 3, 20_000, 2 * LEN] {
        let (client, mut shared, _own) = client().await;
        let reply = value().repeat(3);
        let begun = async {
            shared.expect(&GET.repeat(3)).await;
            shared.say(&reply[..said]).await;
            settle().await;
        };
        let get = async || client.command(["GET", "k"]).await;
        drop_after(async { tokio::join!(get(), get(), get()) }, begun).await;
        drop(client);
        answer(&mut shared, &reply[said..]).await.expect("every byte was taken");
    }
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_was_given_up() {
    let (client, mut shared, mut own, reader) = half_read(b"$5\r\nva").await;
    assert_eq!(purposes(&client), [Purpose::Shared, Purpose::Dedicated]);
    drop(reader);
    assert_eq!(purposes(&client), [Purpose::Shared, Purpose::Draining]);
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    assert_eq!(shared.0.read(&mut [0]).await.expect("closed"), 0);
    settle().await;
    assert!(!closing.is_finished());
    answer(&mut own, b"lue\r\n").await.expect("every byte was taken");
    closing.await.expect("no panic");
    assert_eq!(purposes(&client), [Purpose::Shared]);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_stops_is_not_waited_for_for_long() {
    let (_client, _shared, mut own, reader) = half_read(&value()[..5000]).await;
    drop(reader);
    let begin = Instant::now();
    assert_eq!(own.0.read(&mut [0]).await.expect("the disconnect"), 0);
    assert_eq!(begin.elapsed(), SILENCE, "of the virtual clock");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_trickles_is_read_but_not_for_ever() {
    let (_client, _shared, mut own, reader) = half_read(&value()[..5000]).await;
    drop(reader);
    let begin = Instant::now();
    while own.0.write_all(b"v").await.is_ok() {
        sleep(SILENCE - Duration::from_secs(1)).await;
    }
    assert!((DRAIN_TIMEOUT..DRAIN_TIMEOUT + SILENCE).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_on_the_server_ends_at_once() {
    let (client, _shared, mut own) = client().await;
    let begin = Instant::now();
    let waiting = async {
        own.greet().await;
        own.expect("*3\r\n$5\r\nBLPOP\r\n$1\r\nk\r\n$1\r\n0\r\n").await;
    };
    drop_after(client.blocking_command(["BLPOP", "k", "0"]), waiting).await;
    assert_eq!(own.0.read(&mut [0]).await.expect("the disconnect"), 0);
    assert_eq!(begin.elapsed(), Duration::ZERO, "of the virtual clock");
}

/// With as many batches unanswered as there may be, and one more encoded behind them.
#[tokio::test(start_paused = true)]
async fn the_last_client_reads_on_though_a_batch_waits() {
    let (client, mut shared, _own) = client().await;
    let mut gets = Vec::new();
    for _ in 0..5 {
        let client = client.clone();
        gets.push(tokio::spawn(async move { client.command(["GET", "k"]).await }));
        settle().await;
    }
    shared.expect(&GET.repeat(4)).await;
    shared.say(&value()[..20_000]).await;
    settle().await;
    for get in &gets {
        get.abort();
    }
    settle().await;
    drop(client);
    answer(&mut shared, &value().repeat(4)[20_000..]).await.expect("every byte was taken");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_is_dropped_in_its_finish_reads_on_before_it_disconnects() {
    let (client, _shared, mut own) = client().await;
    let write = async {
        let set = Command::new("SET").arg("k");
        let mut writer = client.stream_argument(set, 3).await.expect("a writer");
        writer.write(b"new").await.expect("written");
        writer.finish().await
    };
    let begun = async {
        own.greet().await;
        own.expect("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nnew\r\n").await;
    };
    drop_after(write, begun).await;
    answer(&mut own, &value()).await.expect("every byte was taken");
}

/// The server lives, and only the role of the primary has moved on.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_given_up_reads_on_before_it_disconnects() {
    for said in [0, 3] {
        let (client, mut shared, _own) = client().await;
        let asking = client.clone();
        let get = tokio::spawn(async move { asking.command(["GET", "k"]).await });
        shared.expect(GET).await;
        shared.say(&value()[..said]).await;
        settle().await;
        client.server().give_up();
        answer(&mut shared, &value()[said..]).await.expect("every byte was taken");
        get.abort();
    }
}

/// The server answers what it has received, whatever was to follow.
#[tokio::test(start_paused = true)]
async fn commands_that_left_are_answered_before_the_disconnect_though_a_long_one_is_cut_off() {
    let (client, _shared, mut own) = client().await;
    let commands = [Command::new("GET").arg("k"), Command::new("SET").arg("k").arg(vec![7; LEN])];
    let call = async {
        let mut connection = client.dedicated().await.expect("connected");
        connection.execute_all(&commands, None).await
    };
    let begun = async {
        take_get(&mut own).await;
        settle().await;
    };
    drop_after(call, begun).await;
    own.0.write_all(&value()).await.expect("every byte was taken");
}

const BLPOP: &str = "*3\r\n$5\r\nBLPOP\r\n$1\r\nl\r\n$1\r\n0\r\n";

fn get() -> Command {
    Command::new("GET").arg("k")
}

fn blpop() -> Command {
    Command::from_args(["BLPOP", "l", "0"])
}

/// Commands on a connection of their own.
async fn execute(client: &Client, commands: &[Command]) {
    let mut connection = client.dedicated().await.expect("connected");
    drop(connection.execute_all(commands, None).await);
}

/// They do not wait for what the last command waits for.
#[tokio::test(start_paused = true)]
async fn replies_before_a_command_that_blocks_are_read_on_before_the_disconnect() {
    // Before the first reply, within its header and its value, and within the second reply.
    for said in [0, 3, 20_000, value().len() + 3] {
        let (client, _shared, mut own) = client().await;
        let reply = value().repeat(2);
        let begun = async {
            own.greet().await;
            own.expect(&(GET.repeat(2) + BLPOP)).await;
            own.say(&reply[..said]).await;
            settle().await;
        };
        drop_after(execute(&client, &[get(), get(), blpop()]), begun).await;
        answer(&mut own, &reply[said..]).await.expect("every byte was taken");
    }
}

#[tokio::test(start_paused = true)]
async fn replies_behind_a_command_that_has_blocked_are_read_on_before_the_disconnect() {
    for said in [0, 3] {
        let (client, _shared, mut own) = client().await;
        let reply = value().repeat(2);
        let begun = async {
            own.greet().await;
            own.expect(&(BLPOP.to_owned() + &GET.repeat(2))).await;
            own.say(&[b"_\r\n", &reply[..said]].concat()).await;
            settle().await;
        };
        drop_after(execute(&client, &[blpop(), get(), get()]), begun).await;
        answer(&mut own, &reply[said..]).await.expect("every byte was taken");
    }
}

/// Only the commands that have left are answered.
#[tokio::test(start_paused = true)]
async fn replies_before_a_command_that_blocks_are_read_on_though_it_is_cut_off() {
    let (client, _shared, mut own) = client().await;
    let long = Command::new("BLPOP").arg(vec![7; LEN]).arg("0");
    let begun = async {
        own.greet().await;
        own.expect(&GET.repeat(2)).await;
        settle().await;
    };
    drop_after(execute(&client, &[get(), get(), long]), begun).await;
    own.0.write_all(&value().repeat(2)).await.expect("every byte was taken");
}

/// It may never answer.
#[tokio::test(start_paused = true)]
async fn a_command_that_blocks_does_not_delay_the_disconnect() {
    let (client, _shared, mut own) = client().await;
    let begun = async {
        own.greet().await;
        own.expect(&(GET.to_owned() + BLPOP + GET)).await;
        own.say(b"$1\r\nx\r\n").await;
        settle().await;
    };
    drop_after(execute(&client, &[get(), blpop(), get()]), begun).await;
    assert_eq!(purposes(&client), [Purpose::Shared]);
    answer(&mut own, b"").await.expect("nothing to take");
}

/// Closing the descriptor would end nothing, because the child never closes its copy.
#[tokio::test]
async fn a_connection_ends_although_a_forked_child_has_a_copy_of_its_descriptor() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let tcp = TcpStream::connect(listener.local_addr().expect("an address")).expect("it listens");
    let mut tcp_server = listener.accept().expect("a client").0;
    let (unix, mut unix_server) = UnixStream::pair().expect("two sockets");
    let _childs_copies = (tcp.try_clone().expect("a descriptor"), unix.try_clone().expect("a descriptor"));
    tcp.set_nonblocking(true).expect("a socket");
    tcp_server.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    unix_server.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");

    let over =
        |socket| RawConnection::new(socket, ConnectionInfo::plain(Transport::Tcp, Protocol::Resp3), None);
    drop(over(AnyStream::Tcp(tokio::net::TcpStream::from_std(tcp).expect("a reactor"))));
    assert_eq!(tcp_server.read(&mut [0]).expect("the end"), 0);
    drop(over(AnyStream::Unix(unix.try_into().expect("a reactor"))));
    assert_eq!(unix_server.read(&mut [0]).expect("the end"), 0);
}
