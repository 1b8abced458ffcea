use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use valkey_rdma_resp::Protocol;

use super::*;
use crate::client::Client;
use crate::error::Error;

mod device;
mod identity;

/// The end of every login.
const SETINFO: &str = concat!(
    "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$8\r\nLIB-NAME\r\n$18\r\nvalkey-rdma-client\r\n",
    "*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$7\r\nLIB-VER\r\n$5\r\n",
    env!("CARGO_PKG_VERSION"),
    "\r\n",
    "*2\r\n$4\r\nPING\r\n$11\r\nvalkey-rdma\r\n",
);

const HELLO: &str = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";
const MAP: &str = "%2\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$5\r\nproto\r\n:3\r\n";
const ECHO: &str = "$11\r\nvalkey-rdma\r\n";

/// A server that does not know SETINFO, and that ends the connection before its last reply.
const UNKNOWN_THEN_END: &str =
    "%1\r\n$5\r\nproto\r\n:3\r\n-ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.\r\n";

/// Connects over a stream whose peer expects these bytes and then answers with those.
async fn shake(url: &str, expected: &str, answer: &str) -> (Result<Client, Error>, DuplexStream) {
    let endpoint: Endpoint = url.parse().expect("a good URL");
    let (ours, mut peer) = duplex(4096);
    let script = async {
        let mut received = vec![0; expected.len()];
        peer.read_exact(&mut received).await.expect("the client writes");
        assert_eq!(String::from_utf8_lossy(&received), expected);
        peer.write_all(answer.as_bytes()).await.expect("open");
        let ends = answer.is_empty() || answer == UNKNOWN_THEN_END;
        if ends || ["NOAUTH", "max number of clients"].iter().any(|end| answer.contains(end)) {
            peer.shutdown().await.expect("open");
        }
        peer
    };
    tokio::join!(Client::from_stream(ours, &endpoint), script)
}

fn text(result: &Result<Client, Error>) -> String {
    let text = format!("{:#}", result.as_ref().expect_err("no connection"));
    assert!(!text.contains('\n'), "{text}");
    text
}

/// Before, the system's "Invalid argument" came with the question whether the host is right, and a zone was no address at all.
#[tokio::test]
async fn a_link_local_address_names_its_interface_or_asks_for_it() {
    for (url, expected) in [
        (
            "valkey://[fe80::1]:1",
            "fe80::1 is link-local: add the interface that leads to it, as in fe80::1%eth0",
        ),
        ("valkey://[fe80::1%25nosuch0]:1", "this machine has no network interface `nosuch0`"),
        ("rdma://[fe80::1%nosuch0]:1", "this machine has no network interface `nosuch0`"),
        ("valkey://[fd00::1%25nosuch0]:1", "leave `%nosuch0` out"),
    ] {
        let text = text(&Client::connect(url).await);
        assert!(text.contains(expected) && !text.contains("does not resolve"), "{text}");
    }
}

#[tokio::test]
async fn the_handshake_is_one_exchange() {
    let hello = format!("{HELLO}{SETINFO}");
    let (client, _peer) = shake("valkey://h", &hello, &format!("{MAP}+OK\r\n+OK\r\n{ECHO}")).await;
    assert_eq!(client.expect("connected").info().protocol, Protocol::Resp3);

    let login = "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$2\r\npw\r\n";
    let select = "*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n";
    let answer = format!("{MAP}+OK\r\n+OK\r\n+OK\r\n{ECHO}");
    let (client, _peer) = shake("valkey://:pw@h/7", &format!("{login}{select}{SETINFO}"), &answer).await;
    client.expect("connected");

    let answer = format!("+OK\r\n+OK\r\n{ECHO}");
    let (client, _peer) = shake("valkey://h?protocol=resp2", SETINFO, &answer).await;
    assert_eq!(client.expect("connected").info().protocol, Protocol::Resp2);

    let auth = format!("*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n{SETINFO}");
    let (client, _peer) = shake("valkey://me:pw@h?protocol=resp2", &auth, &format!("+OK\r\n{answer}")).await;
    client.expect("connected");
}

#[tokio::test]
async fn servers_that_do_not_know_setinfo_are_fine() {
    let hello = format!("{HELLO}{SETINFO}");
    let unknown = "-ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.\r\n".repeat(2);
    let (client, _peer) = shake("valkey://h", &hello, &format!("{MAP}{unknown}{ECHO}")).await;
    client.expect("connected");
}

/// Whatever comes too many, and wherever: each later caller would get the reply before its own.
#[tokio::test]
async fn a_login_whose_replies_are_out_of_step_ends_the_connection() {
    let hello = format!("{HELLO}{SETINFO}");
    let replies = [MAP, "+OK\r\n", "+OK\r\n", ECHO];
    let unknown = "-ERR unknown subcommand 'SETINFO'. Try CLIENT HELP.\r\n";
    let old = [MAP, unknown, unknown, ECHO];
    let strays = [
        "+OK\r\n",
        ":1\r\n",
        "%0\r\n",
        "_\r\n",
        "$-1\r\n",
        "$2\r\nOK\r\n",
        "+PONG\r\n",
        unknown,
        MAP,
        ":1",
        "$5\r\nab",
    ];
    for (url, expected, replies) in [
        ("valkey://h", &*hello, &replies[..]),
        ("valkey://h", &hello, &old),
        ("valkey://h?protocol=resp2", SETINFO, &replies[1..]),
        ("valkey://h?protocol=resp2", SETINFO, &old[1..]),
    ] {
        for stray in strays {
            for at in 0..=replies.len() {
                let is_resp3 = |part: &str| part.starts_with(['%', '_']);
                let is_part = !stray.ends_with('\n') || stray.starts_with("$5");
                if is_part && at < replies.len() || url.ends_with("resp2") && is_resp3(stray) {
                    continue;
                }
                let (before, after) = replies.split_at(at);
                let answer = [&before.concat(), stray, &after.concat()].concat();
                let (result, _peer) = shake(url, expected, &answer).await;
                // Behind its own reply, a stray one like it is one reply too many all the same.
                let text = text(&result);
                let is_named = text.contains("broke the protocol") || text.contains("unknown subcommand");
                assert!(is_named, "{url}, {stray:?} at {at}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn push_messages_in_the_login_are_no_replies() {
    let push = ">2\r\n$10\r\ninvalidate\r\n_\r\n";
    let hello = format!("{HELLO}{SETINFO}");
    for at in 0..=4 {
        let mut replies = vec![MAP, "+OK\r\n", "+OK\r\n", ECHO];
        replies.insert(at, push);
        let (client, _peer) = shake("valkey://h", &hello, &replies.concat()).await;
        client.expect("connected");
    }
    let part = format!("{MAP}+OK\r\n+OK\r\n{ECHO}>2\r\n$10\r\ninval");
    let (client, _peer) = shake("valkey://h", &hello, &part).await;
    client.expect("connected");
}

#[tokio::test]
async fn a_user_who_may_not_ping_connects() {
    let refused = "-NOPERM User app has no permissions to run the 'ping' command\r\n";
    let answer = format!("{MAP}+OK\r\n+OK\r\n{refused}");
    let (client, _peer) = shake("valkey://h", &format!("{HELLO}{SETINFO}"), &answer).await;
    client.expect("connected");
}

#[tokio::test]
async fn what_was_expected_and_what_came_is_said() {
    let (result, _peer) = shake("valkey://h", &format!("{HELLO}{SETINFO}"), &format!("+OK\r\n{MAP}")).await;
    assert_eq!(
        text(&result),
        "cannot connect to h:6379 over tcp: the peer broke the protocol: HELLO: expected a map with \"proto\" 3, \
         got a status of 2 bytes during the handshake; is it a Valkey server, and does something between change its replies?"
    );
}

#[tokio::test]
async fn refusals_say_what_to_do_even_if_the_server_hangs_up() {
    let hello = HELLO;
    let select = "*2\r\n$6\r\nSELECT\r\n$2\r\n99\r\n";
    let wrong = "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$3\r\nbad\r\n";
    let noauth = "-NOAUTH Authentication required.\r\n";
    let rest = noauth.repeat(3);
    let table = [
        (
            "valkey://h",
            hello,
            "-NOAUTH HELLO must be called with the client already authenticated\r\n",
            "user:password@",
        ),
        ("valkey://h?protocol=resp2", "", noauth, "user:password@"),
        (
            "valkey://me:bad@h",
            wrong,
            &format!("-WRONGPASS invalid username-password pair\r\n{rest}"),
            "check user and",
        ),
        ("valkey://h", hello, &format!("-ERR unknown command 'HELLO'\r\n{rest}"), "use protocol=resp2"),
        ("valkey://h", hello, &format!("-unsupported command 'HELLO'\r\n{rest}"), "use protocol=resp2"),
        ("valkey://h", hello, &format!("-ERR unsupported command\r\n{rest}"), "use protocol=resp2"),
        (
            "valkey://h/99",
            &format!("{hello}{select}"),
            &format!("{MAP}-ERR DB index is out of range\r\n{rest}"),
            "database",
        ),
        ("valkey://h?protocol=resp2", "", "-ERR max number of clients reached\r\n", "raise maxclients"),
        ("valkey://h", hello, &format!("-DENIED protected mode\r\n{rest}"), "protected-mode no"),
    ];
    for (url, expected, answer, hint) in table {
        let (result, _peer) = shake(url, &format!("{expected}{SETINFO}"), answer).await;
        let text = text(&result);
        assert!(text.contains("h:6379") && text.contains(hint), "{url}: {text}");
        assert!(!text.contains("bad@"), "{text}");
        assert!(result.is_err_and(|error| error.server().is_some() && !error.may_have_run()));
    }
}

/// Servers before 6.0 do not know HELLO and quote it whole.
#[tokio::test]
async fn a_password_that_the_server_quotes_is_not_shown() {
    let login = "*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$4\r\nhush\r\n";
    let answer = "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `me`, `hush`, \r\n+OK\r\n+OK\r\n+PONG\r\n";
    let (result, _peer) = shake("valkey://me:hush@h", &format!("{login}{SETINFO}"), answer).await;
    let text = text(&result);
    assert!(text.contains("unknown command `HELLO`\"; an old server: use protocol=resp2"), "{text}");
    assert!(!format!("{result:?}").contains("hush"), "{result:?}");
}

#[tokio::test]
async fn a_peer_that_closes_during_the_handshake_is_named() {
    let hello = format!("{HELLO}{SETINFO}");
    let (result, _peer) = shake("valkey://h:7", &hello, "").await;
    let text = text(&result);
    assert!(text.contains("h:7") && text.contains("the peer closed it during the handshake"), "{text}");
    // What it does not know is not why.
    let (result, _peer) = shake("valkey://h:7", &hello, UNKNOWN_THEN_END).await;
    assert!(self::text(&result).contains("the peer closed it during the handshake"), "{result:?}");
}

#[tokio::test]
async fn a_peer_that_is_no_valkey_is_named() {
    let hello = format!("{HELLO}{SETINFO}");
    let (result, _peer) = shake("valkey://h:7", &hello, "HTTP/1.1 400 Bad Request\r\n").await;
    let text = text(&result);
    assert!(text.contains("broke the protocol") && text.contains("is it a Valkey server"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_answers_meets_the_deadline() {
    let endpoint: Endpoint = "valkey://h:7?timeout=3s".parse().expect("a good URL");
    let (ours, mut peer) = duplex(4096);
    let begin = Instant::now();
    let result = Client::from_stream(ours, &endpoint).await;
    assert_eq!(begin.elapsed(), Duration::from_secs(3));
    let text = text(&result);
    assert!(text.contains("h:7") && text.contains("did not answer within 3s"), "{text}");

    // Nothing of it is left: the peer sees the end.
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).await.expect("closed");
}

#[tokio::test(start_paused = true)]
async fn a_dead_address_leaves_time_for_the_next() {
    let endpoint: Endpoint = "valkey://h?timeout=4s".parse().expect("a good URL");
    let deadline = ConnectDeadline::of(&endpoint);
    let addresses = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let connected = dial((None, ConnectStep::Connect), &deadline, &addresses[..2], |address, _| async move {
        match address.port() {
            1 => std::future::pending().await,
            _ => Ok(()),
        }
    });
    assert_eq!(connected.await.expect("the second answers").1, addresses[1]);
    assert_eq!(deadline.left(), Duration::from_secs(2));

    let silent = |_, _| std::future::pending::<Result<(), _>>();
    let failed = dial((None, ConnectStep::Connect), &deadline, &addresses, silent).await;
    assert!(matches!(failed, Err(ConnectCause::Deadline { connected: false, .. })));
    assert_eq!(deadline.left(), Duration::ZERO);
}

#[tokio::test]
async fn tcp_connects_and_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        stream.write_all(format!("{MAP}+OK\r\n+OK\r\n{ECHO}").as_bytes()).await.expect("open");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.expect("the client closes");
        received
    });
    // As a task: the future must be Send.
    let client =
        tokio::spawn(Client::connect(format!("redis://{address}").parse::<Endpoint>().expect("a good URL")));
    let client = client.await.expect("no panic").expect("connected");
    assert_eq!(client.info().peer, Some(address));
    assert_eq!(client.info().to_string(), format!("tcp to {address} (resp3)"));
    assert!(client.connections()[0].stats.is_none());
    client.close().await;
    let received = server.await.expect("no panic");
    assert!(received.ends_with(SETINFO.as_bytes()));
}

#[cfg(not(feature = "tls"))]
#[tokio::test]
async fn a_build_without_tls_says_so_and_sends_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let built = Endpoint::new(Transport::Tcp, address.ip().to_string(), address.port());
    let built = built.with_tls(valkey_rdma_transport::tls::ClientTls::default());
    for endpoint in [format!("valkeys://:secret@{address}").parse().expect("a good URL"), built] {
        let text = text(&Client::connect(endpoint).await);
        let remedy = "over tcp with TLS: this build has no TLS: rebuild with the cargo feature `tls` (`--features tls`)";
        assert!(text.ends_with(remedy), "{text}");
        let mut received = Vec::new();
        let mut stream = listener.accept().await.expect("a client").0;
        stream.read_to_end(&mut received).await.expect("the client closes");
        assert!(received.is_empty(), "{}", received.escape_ascii());
    }
}

#[tokio::test]
async fn nothing_listening_and_bad_names_say_what_to_do() {
    // Bound, so that nobody else gets the port, and not listening.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let address = socket.local_addr().expect("bound");
    let refused = text(&Client::connect(format!("valkey://{address}").as_str()).await);
    assert_eq!(
        refused,
        format!(
            "cannot connect to {address} over tcp: connection refused; is a server listening on this port?"
        )
    );

    // Longer than any name can be: no resolver is asked.
    let name = "x".repeat(300);
    let unresolved = text(&Client::connect(format!("valkey://{name}").as_str()).await);
    assert!(unresolved.contains("does not resolve") && unresolved.contains("check the host"), "{unresolved}");

    let bad_url = Client::connect("http://h").await.expect_err("refused");
    assert!(matches!(bad_url, Error::Endpoint(_)));
}

/// The limit is beyond what keepalive probes can count.
#[tokio::test]
async fn any_keepalive_timeout_can_be_set() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    for limit in [Duration::ZERO, Duration::from_secs(3600 * 24), Duration::MAX] {
        tcp::connect(address, None, Some(limit)).await.expect("connected");
    }
}

/// The name of a service is not that of a host.
#[tokio::test]
async fn a_primary_that_is_not_found_is_named_with_its_service() {
    // Bound, so that nothing else takes the port, and refused: nothing listens on it.
    let reserved = TcpSocket::new_v4().expect("a socket");
    reserved.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
    let sentinel = reserved.local_addr().expect("bound");
    let text = text(&Client::connect(format!("valkey+sentinel://{sentinel}/my").as_str()).await);
    let expected = format!(
        "cannot connect to the primary of \"my\" over tcp: none of 1 Sentinels answers; check their addresses in the URL; the last one: \
         cannot connect to {sentinel} over tcp: connection refused; is a server listening on this port?"
    );
    assert_eq!(text, expected);
}

/// twemproxy closes a connection at a command that it does not know.
#[tokio::test]
async fn a_proxy_that_closes_at_unknown_commands_is_logged_in_to_without_them() {
    log_in_past_a_proxy("valkey", "").await;
}

#[cfg(feature = "emulated")]
#[tokio::test]
async fn a_proxy_is_logged_in_to_after_a_fallback_too() {
    log_in_past_a_proxy("emulated", "&device=inprocess&fallback=tcp").await;
}

#[tokio::test]
async fn a_proxy_at_a_unix_socket_is_logged_in_to_without_them_too() {
    let path = std::env::temp_dir().join(format!("vrc-proxy-{}", std::process::id()));
    let server = UnixListener::bind(&path).expect("a socket");
    let proxy = tokio::spawn(async move {
        let mut closed = 0;
        while !is_used_as_proxy(server.accept().await.expect("a client").0).await {
            closed += 1;
        }
        closed
    });
    let used = use_proxy(&format!("unix://{}?protocol=resp2", path.display())).await;
    std::fs::remove_file(&path).expect("bound above");
    assert_eq!((used.as_str(), proxy.await.expect("no panic")), ("v", 1));
}

async fn log_in_past_a_proxy(scheme: &str, option: &str) {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = server.local_addr().expect("bound");
    let proxy = tokio::spawn(async move {
        let mut closed = 0;
        while !is_used_as_proxy(server.accept().await.expect("a client").0).await {
            closed += 1;
        }
        closed
    });
    let used = use_proxy(&format!("{scheme}://{address}?protocol=resp2{option}")).await;
    assert_eq!((used.as_str(), proxy.await.expect("no panic")), ("v", 1));
}

/// Connects, and gets the value of `k`.
async fn use_proxy(url: &str) -> String {
    let client = Client::connect_with(url, &Config::default().name("me")).await.expect("connected");
    client.query(["GET", "k"]).await.expect("a value")
}

/// Answers as a proxy does. False: it has closed the connection, at a command that it does not know.
async fn is_used_as_proxy(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> bool {
    let mut text = Vec::new();
    loop {
        let mut piece = [0; 512];
        let len = stream.read(&mut piece).await.unwrap_or(0);
        text.extend_from_slice(&piece[..len]);
        if len == 0 || text.windows(6).any(|at| at == b"CLIENT") {
            return false;
        }
        if text == b"*1\r\n$4\r\nPING\r\n" {
            stream.write_all(b"+PONG\r\n").await.expect("open");
            text.clear();
        } else if text.ends_with(b"$3\r\nGET\r\n$1\r\nk\r\n") {
            stream.write_all(b"$1\r\nv\r\n").await.expect("open");
            return true;
        }
    }
}

/// A close says less than a refusal.
#[tokio::test]
async fn a_login_that_a_proxy_refuses_is_the_reason() {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = server.local_addr().expect("bound");
    let proxy = tokio::spawn(async move {
        let mut streams = Vec::new();
        for answer in ["", "-ERR invalid password\r\n"] {
            let (mut stream, _) = server.accept().await.expect("a client");
            let _read = stream.read(&mut [0; 512]).await;
            let _written = stream.write_all(answer.as_bytes()).await;
            if !answer.is_empty() {
                streams.push(stream);
            }
        }
    });
    let error = Client::connect(format!("valkey://:pw@{address}?protocol=resp2")).await.expect_err("refused");
    assert!(error.to_string().contains("invalid password"), "{error}");
    proxy.await.expect("no panic");
}

#[tokio::test]
async fn a_server_that_closes_every_login_is_tried_once_more_and_named() {
    let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = server.local_addr().expect("bound");
    let peer = tokio::spawn(async move {
        for _ in 0..2 {
            drop(server.accept().await.expect("a client"));
        }
    });
    let error = Client::connect(format!("valkey://{address}?protocol=resp2")).await.expect_err("closed");
    assert!(matches!(error, Error::Connect(_)) && error.to_string().contains("the handshake"), "{error}");
    peer.await.expect("no panic");
}

/// The refusal is the reply to the only command of the second attempt, and no login.
#[tokio::test]
async fn a_second_attempt_that_is_refused_is_no_login() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = tokio::spawn(async move {
        for refusal in ["", "-ERR max number of clients reached\r\n"] {
            let mut stream = listener.accept().await.expect("a client").0;
            assert_ne!(stream.read(&mut [0; 512]).await.expect("open"), 0);
            stream.write_all(refusal.as_bytes()).await.expect("open");
        }
    });
    let endpoint: Endpoint = format!("valkey://{address}?protocol=resp2").parse().expect("a good URL");
    let connected = Connector::new(endpoint, Config::default()).dial_logged_in().await;
    let error = connected.expect_err("refused").to_string();
    assert!(error.contains("the server said \"ERR max number of clients reached\""), "{error}");
    server.await.expect("no panic");
}

/// A server with too many clients says so and closes, before anything is written to it and before the reactor has seen it.
#[tokio::test]
async fn what_a_server_says_before_it_closes_a_unix_socket_is_the_reason() {
    let (ours, server) = UnixStream::pair().expect("two sockets");
    let refusal = b"-ERR max number of clients reached\r\n";
    io::Write::write_all(&mut server.into_std().expect("a socket"), refusal).expect("open");
    let connector = Connector::new("valkey://h".parse().expect("a good URL"), Config::default());
    let info = connector.plain_info(Transport::Tcp);
    let raw = RawConnection::new(AnyStream::Unix(ours.try_into().expect("a reactor")), info, None);
    let deadline = ConnectDeadline::of(&connector.endpoint);
    let login = Login { purpose: Purpose::Shared, credentials: None, is_plain: false };
    let refused = connector.set_up(raw, login, &deadline).await.expect_err("refused");
    assert!(matches!(&refused, ConnectCause::Rejected(_)), "{refused}");
}
