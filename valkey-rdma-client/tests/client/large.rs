//! Large values in and out.

use std::io::{Read, Write};
use std::time::Duration;

use bytes::Bytes;
use valkey_rdma_client::{BufferPool, Client, Command, Config, DirectMemory, Error, Fate, Fetched, Way, cmd};

use crate::target::{Target, target};

/// 24 MiB and a bit: more than all windows.
const LEN: usize = (24 << 20) + 12_345;

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(byte).collect()
}

/// The byte of the pattern at this place.
fn byte(at: u32) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 24) as u8
}

#[tokio::test]
async fn a_value_is_read_straight_into_the_callers_memory() {
    let target = target().await;
    // What is given up below is read on before this runtime ends, on slow devices too: Valkey 8.1.1 does not survive less.
    let config = Config::default().close_timeout(Duration::from_secs(120));
    let client = target.client_with(&config).await;
    let key = target.key("big");
    let value = pattern(LEN);
    client.command(Command::new("SET").arg(&key).arg(value.clone())).await.expect("set");
    let mut buffer = vec![0; LEN + 1];
    assert_eq!(client.get_into(&key, &mut buffer).await.expect("get"), Some(LEN));
    assert!(buffer[..LEN] == value[..]);
    assert_eq!(client.get_into(target.key("none"), &mut buffer).await.expect("get"), None);

    let error = client.get_into(&key, &mut buffer[..100]).await.expect_err("does not fit");
    assert!(matches!(error, Error::Unexpected(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!("GET: expected a value that fits into the buffer, got a string of {LEN} bytes")
    );
    client.command(["DEL", &key]).await.expect("deleted");
    client.close().await;
}

#[tokio::test]
async fn several_values_are_read_together_straight_into_the_callers_memory() {
    let target = target().await;
    read_together(&target, &target.url).await;
    read_together(&target, &target.tcp).await;
}

async fn read_together(target: &Target, url: &str) {
    let client = Client::connect(url).await.expect("connected");
    // More keys than are sent at once; of lengths that end anywhere in a window.
    let lengths: Vec<_> = (0..600).map(|n| if n % 100 == 7 { 300_000 + n } else { n }).collect();
    let keys: Vec<_> = (0..lengths.len()).map(|n| target.key(&format!("each:{n}"))).collect();
    let mut connection = client.dedicated().await.expect("connected");
    let sets = keys.iter().zip(&lengths).filter(|(_, len)| **len != 9);
    let sets: Vec<_> = sets.map(|(key, len)| Command::new("SET").arg(key).arg(pattern(*len))).collect();
    let stored = connection.execute_all(&sets, None).await.expect("set");
    assert!(stored.len() == 599 && stored.iter().all(Result::is_ok));
    client.command(["DEL", &keys[8]]).await.expect("deleted");
    client.command(["RPUSH", &keys[8], "x"]).await.expect("pushed");

    let mut values: Vec<_> = lengths.iter().map(|len| vec![1; *len]).collect();
    let mut places: Vec<_> = values.iter_mut().map(|value| Some(&mut value[..])).collect();
    let fetched = connection
        .get_each(
            &keys,
            None,
            |index, len| if index == 107 { None } else { places[index].take()?.get_mut(..len) },
        )
        .await
        .expect("read");
    for (index, (fetched, value)) in fetched.iter().zip(&values).enumerate() {
        match (index, fetched) {
            (8, Fetched::Refused(error)) => assert!(error.server().is_some(), "{error}"),
            (9, Fetched::Missing) => {}
            (107, Fetched::Skipped(len)) => assert_eq!((*len, value[0]), (300_107, 1)),
            (_, Fetched::Read(len)) => assert!(*len == lengths[index] && *value == pattern(*len), "{index}"),
            (_, other) => panic!("{index}: {other:?}"),
        }
    }
    // Nothing is left over.
    assert_eq!(connection.command(["PING"]).await.expect("pong").as_str(), Some("PONG"));
    let doomed: Vec<_> = keys.iter().map(String::as_str).collect();
    client.command(["DEL"].into_iter().chain(doomed)).await.expect("deleted");
}

#[tokio::test]
async fn values_of_a_pool_go_out_without_a_copy_and_their_buffers_come_back() {
    // Two of them fit into the send buffer, so that all of each is lent at once.
    const LEN: usize = 300_000;
    let target = target().await;
    let pool = BufferPool::new(2, LEN).expect("a usable pool");
    for url in [&target.url, &target.tcp] {
        let client = Client::connect(url.as_str()).await.expect("connected");
        let lent = || client.connections()[0].stats.map(|stats| stats.device.lent);
        let before = lent();
        for round in 0..5 {
            // More commands at once than buffers: the rest wait for one.
            let sets = (0..4).map(|n| {
                let (client, pool, key) = (client.clone(), pool.clone(), target.key(&format!("pooled:{n}")));
                tokio::spawn(async move {
                    let mut buffer = pool.take().await;
                    buffer.copy_from_slice(&pattern(LEN + n + round)[n + round..]);
                    let set = Command::new("SET").arg(&key).arg(buffer.freeze());
                    client.command(set).await.expect("set");
                })
            });
            for set in sets.collect::<Vec<_>>() {
                set.await.expect("no panic");
            }
            for n in 0..4 {
                let value = client.command(["GET", &target.key(&format!("pooled:{n}"))]).await.expect("get");
                assert!(value.as_bytes() == Some(&pattern(LEN + n + round)[n + round..]), "bytes differ");
            }
        }
        // What is encrypted is copied for that.
        let sent = if client.info().tls.is_some() { 0 } else { 5 * 4 * LEN as u64 };
        let sent = before.map(|before| before + sent);
        assert_eq!(lent(), sent, "{url}");
        let _both = (pool.take().await, pool.take().await);
        client.close().await;
    }
}

#[tokio::test]
async fn a_value_goes_out_and_comes_back_in_pieces() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("film");
    let value = pattern(LEN);
    let mut writer = client.stream_argument(Command::new("SET").arg(&key), LEN).await.expect("connected");
    for piece in value.chunks(1_000_003) {
        writer.write(piece).await.expect("written");
    }
    assert_eq!(writer.remaining(), 0);
    assert!(writer.finish().await.expect("set").is_ok());

    let mut reader =
        client.stream_reply(Command::new("GET").arg(&key)).await.expect("sent").expect("a value");
    assert_eq!(reader.len(), LEN);
    let mut back = Vec::new();
    while let Some(chunk) = reader.chunk().await.expect("a chunk") {
        back.extend_from_slice(&chunk);
    }
    assert!(back == value);
    client.command(["DEL", &key]).await.expect("deleted");
}

#[tokio::test]
async fn an_argument_that_is_given_up_does_not_run() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("half");
    let mut writer = client.stream_argument(Command::new("SET").arg(&key), 10).await.expect("connected");
    writer.write(b"12345").await.expect("written");
    let error = writer.write(b"123456").await.expect_err("one too many");
    assert_eq!(error.fate(), Fate::NotSent);
    let error = writer.finish().await.expect_err("five too few");
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    assert!(client.command(["GET", &key]).await.expect("a reply").is_nil());
}

#[tokio::test]
async fn a_reply_that_is_no_string_is_told() {
    let target = target().await;
    let client = target.client().await;
    let error = client.stream_reply(Command::new("INCR").arg(target.key("n"))).await.expect_err("a number");
    assert_eq!(error.to_string(), "INCR: expected a bulk string, got the integer 1");
    let error = client.stream_reply(Command::new("NOSUCHCOMMAND")).await.expect_err("unknown");
    assert!(matches!(error, Error::Server(_)), "{error:?}");
}

/// With a server that offers direct transfers, and with one that does not.
#[tokio::test]
async fn values_of_direct_calls_are_those_of_get_and_set() {
    let target = target().await;
    let key = target.key("direct");
    let (memory, value) = (DirectMemory::allocate(LEN).expect("a length"), pattern(LEN));
    for url in [&target.url, &target.tcp] {
        let client = Client::connect(url.as_str()).await.expect("connected");
        let mut slice = memory.take(0..LEN).expect("free");
        slice.copy_from_slice(&value);
        let mut slices = client.set_direct(&key, [slice]).await.expect("stored").slices;
        let stored = client.command(["GET", &key]).await.expect("a reply");
        assert!(stored.as_bytes() == Some(&value[..]), "{url}");
        let shorter = &value[LEN / 2..];
        client.command(Command::new("SET").arg(&key).arg(shorter.to_vec())).await.expect("set");
        slices[0].fill(0);
        let placed = client.get_direct(&key, slices).await.expect("placed");
        assert!(placed.len == Some(shorter.len()) && placed.slices[0][..shorter.len()] == *shorter, "{url}");
        if target.is_mock() {
            let is_direct = client.info().device.is_some() && client.info().tls.is_none();
            assert_eq!(matches!(placed.way, Way::Direct), is_direct, "{url}: {}", placed.way);
        }
        client.command(["DEL", &key]).await.expect("deleted");
    }
}

/// Waits until the server has no connection of that name but the client's own.
async fn until_alone(client: &Client, name: &str) {
    let name = format!("name={name} ");
    loop {
        let list: String = client.command(["CLIENT", "LIST"]).await.expect("alive").convert().expect("text");
        if list.lines().filter(|line| line.contains(&name)).count() == 1 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Valkey 8.1.1 dies when a client disconnects while a reply waits for its window.
#[tokio::test]
async fn the_server_survives_values_that_are_given_up_half_way() {
    let target = target().await;
    let (key, name) = (target.key("unread"), target.key("gives-up"));
    let config = Config::default().name(&name);
    let client = target.client_with(&config).await;
    client.command(Command::new("SET").arg(&key).arg(pattern(LEN))).await.expect("set");

    let reader = client.stream_reply(Command::new("GET").arg(&key)).await;
    let mut reader = reader.expect("sent").expect("a value");
    assert!(reader.chunk().await.expect("a chunk").is_some());
    drop(reader);
    until_alone(&client, &name).await;

    let mut buffer = vec![0; LEN];
    client.get_into(&key, &mut buffer[..100]).await.expect_err("does not fit");
    until_alone(&client, &name).await;

    let mut own = client.dedicated().await.expect("connected");
    let hurried = Command::new("GET").arg(&key).timeout(Duration::from_millis(1));
    // Whether it is in time is up to the machine.
    drop(own.command(hurried).await);
    drop(own);
    until_alone(&client, &name).await;

    assert_eq!(client.get_into(&key, &mut buffer).await.expect("alive"), Some(LEN));
    assert!(buffer == pattern(LEN));
    client.command(["DEL", &key]).await.expect("deleted");
}

/// The most memory this process ever had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// They bring mocks of their own: a real server beside them shows nothing.
mod mocks_only {
    use super::*;

    /// A server refuses a value that is too long with an error, and closes. What it has not read makes the kernel send a reset, which
    /// must not hide the error: the value would be sent again and again.
    #[tokio::test]
    async fn the_error_for_a_value_that_is_too_long_is_read_though_the_connection_is_reset() {
        const ERROR: &[u8] = b"-ERR Protocol error: invalid bulk length\r\n";
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("valkey://{}?protocol=resp2", listener.local_addr().expect("bound"));
        let serve = |mut stream: std::net::TcpStream| {
            let mut bytes = vec![0; 64 * 1024];
            assert!(stream.read(&mut bytes).expect("a login") > 0);
            stream.write_all(b"+OK\r\n+OK\r\n+PONG\r\n").expect("open");
            if stream.read(&mut bytes).is_ok_and(|len| len > 0) {
                stream.write_all(ERROR).expect("open");
            }
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || serve(stream.expect("a client")));
            }
        });
        let value = Bytes::from(vec![b'x'; 8 << 20]);
        for _ in 0..20 {
            let client = Client::connect(&*url).await.expect("connected");
            let mut own = client.dedicated().await.expect("connected");
            let error = client.command(cmd!["SET", "k", value.clone()]).await.expect_err("too long");
            assert_eq!((error.fate(), client.counters().retries), (Fate::Answered, 0), "{error}");
            let error = own.command(cmd!["SET", "k", value.clone()]).await.expect_err("too long");
            assert_eq!(error.fate(), Fate::Answered, "{error:#}");
        }
    }
}

/// Takes minutes on an emulated processor.
mod half_a_gibibyte {
    use super::*;

    /// The server must not be this process, and both need the memory; run it alone.
    #[tokio::test]
    #[ignore = "needs a real server and 2 GiB: VALKEY_RDMA_TEST_SERVER"]
    async fn half_a_gibibyte_is_in_memory_once_on_its_way_out_and_once_on_its_way_in() {
        const HALF: usize = 512 << 20;
        let target = target().await;
        assert!(!target.is_mock(), "a mock would share our memory");
        let client = target.client().await;
        let key = target.key("half");
        let mut buffer = pattern(HALF);
        let before = peak();

        let mut writer =
            client.stream_argument(Command::new("SET").arg(&key), HALF).await.expect("connected");
        for piece in buffer.chunks(4 << 20) {
            writer.write(piece).await.expect("written");
        }
        assert!(writer.finish().await.expect("set").is_ok());
        buffer.fill(0);
        assert_eq!(client.get_into(&key, &mut buffer).await.expect("get"), Some(HALF));
        assert!(buffer.chunks(1 << 20).zip(0..).all(|(chunk, at)| {
            let from = at << 20;
            chunk[0] == byte(from) && chunk[chunk.len() - 1] == byte(from + (1 << 20) - 1)
        }));
        // Beside the one buffer: windows, and what the tests' own program needs.
        let more = peak() - before;
        assert!(more < 32 << 20, "{more} bytes more");
        client.command(["DEL", &key]).await.expect("deleted");
    }
}
