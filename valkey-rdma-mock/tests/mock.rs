//! The mock's commands, with Valkey's replies to the letter.

mod support;

use std::collections::HashSet;
use std::sync::Arc;

use support::{Wire, mock, start, until, wires};
use valkey_rdma_mock::{Command, Limits, Mock, Reply};

/// Runs a dialogue against a fresh mock.
async fn dialogue(lines: &[(&str, &str)]) {
    let server = mock().await;
    for wire in &mut wires(&server).await {
        wire.dialogue(&[("FLUSHALL", "+OK\r\n")]).await;
        wire.dialogue(lines).await;
    }
}

#[tokio::test]
async fn strings_are_set_and_got() {
    dialogue(&[
        ("GET k", "$-1\r\n"),
        ("SET k v", "+OK\r\n"),
        ("GET k", "$1\r\nv\r\n"),
        ("SET k w NX", "$-1\r\n"),
        ("SET k w XX", "+OK\r\n"),
        ("SET new w XX", "$-1\r\n"),
        ("SET k x GET", "$1\r\nw\r\n"),
        ("SET k y NX GET", "$1\r\nx\r\n"),
        ("SET new y NX GET", "$-1\r\n"),
        ("GET new", "$1\r\ny\r\n"),
        ("SET k v NX XX", "-ERR syntax error\r\n"),
        ("SET k v EX", "-ERR syntax error\r\n"),
        ("SET k v EX 10 PX 10", "-ERR syntax error\r\n"),
        ("SET k v KEEPTTL EX 10", "-ERR syntax error\r\n"),
        ("SET k v EX 0", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET k v PX 9223372036854775807", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET k v EX ten", "-ERR value is not an integer or out of range\r\n"),
        ("GET k", "$1\r\nx\r\n"),
    ])
    .await;
}

/// Each server counts its own connections from 1.
#[tokio::test]
async fn one_mock_behind_two_servers_keeps_their_clients_apart() {
    let mock = Arc::new(Mock::new());
    let limits = Limits::default();
    let (first, second) = tokio::join!(start(mock.clone(), &limits), start(mock.clone(), &limits));
    let mut one = Wire::connect(&first.listening()[0]).await;
    let mut other = Wire::connect(&second.listening()[0]).await;
    one.dialogue(&[("SET k first", "+OK\r\n"), ("SELECT 3", "+OK\r\n")]).await;
    other.dialogue(&[("GET k", "$5\r\nfirst\r\n"), ("CLIENT ID", ":2\r\n")]).await;
    drop(first);
    one.rest_or_reset().await;
    other.dialogue(&[("PING", "+PONG\r\n"), ("GET k", "$5\r\nfirst\r\n")]).await;
}

/// Members whose rank changes meanwhile are returned all the same.
#[test]
fn a_scan_of_a_sorted_set_returns_every_member_that_stays() {
    let mock = Mock::new();
    let run = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        mock.execute(&Command::new(words.next().unwrap(), words))
    };
    for member in 0..300 {
        run(&format!("ZADD z {member} m{member}"));
    }
    let (mut cursor, mut seen, mut rounds) = ("0".to_owned(), HashSet::new(), 0);
    loop {
        let Reply::Array(page) = run(&format!("ZSCAN z {cursor} COUNT 10")) else { panic!("a page") };
        let [Reply::Bulk(next), Reply::Array(items)] = &page[..] else { panic!("{page:?}") };
        seen.extend(items.iter().step_by(2).cloned().map(|member| match member {
            Reply::Bulk(member) => member,
            other => panic!("{other:?}"),
        }));
        cursor = String::from_utf8(next.to_vec()).unwrap();
        if cursor == "0" {
            break;
        }
        run(&format!("ZADD z -{rounds} new{rounds}"));
        run(&format!("ZINCRBY z 1000 m{}", 2 * rounds));
        rounds += 1;
    }
    let missing: Vec<_> = (0..300).filter(|n| !seen.contains(format!("m{n}").as_bytes())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn several_keys_are_set_got_counted_and_deleted() {
    dialogue(&[
        ("MSET a 1 b 2", "+OK\r\n"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n"),
        ("MGET a none b", "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"),
        ("EXISTS a a none b", ":3\r\n"),
        ("DBSIZE", ":2\r\n"),
        ("DEL a a none", ":1\r\n"),
        ("DBSIZE", ":1\r\n"),
        ("FLUSHDB ASYNC", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
        ("FLUSHALL NOW", "-ERR syntax error\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn integers_are_counted_up_and_down() {
    dialogue(&[
        ("INCR n", ":1\r\n"),
        ("INCRBY n 41", ":42\r\n"),
        ("DECR n", ":41\r\n"),
        ("GET n", "$2\r\n41\r\n"),
        ("INCRBY n x", "-ERR value is not an integer or out of range\r\n"),
        ("SET n 9223372036854775807", "+OK\r\n"),
        ("INCR n", "-ERR increment or decrement would overflow\r\n"),
        ("SET n abc", "+OK\r\n"),
        ("INCR n", "-ERR value is not an integer or out of range\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn databases_are_apart() {
    dialogue(&[
        ("SET k zero", "+OK\r\n"),
        ("SELECT 15", "+OK\r\n"),
        ("GET k", "$-1\r\n"),
        ("SET k fifteen", "+OK\r\n"),
        ("SELECT 16", "-ERR DB index is out of range\r\n"),
        ("SELECT -1", "-ERR DB index is out of range\r\n"),
        ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
        ("FLUSHDB", "+OK\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("GET k", "$4\r\nzero\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn expiry_refuses_what_valkey_refuses() {
    dialogue(&[
        ("SET k v", "+OK\r\n"),
        ("EXPIRE k soon", "-ERR value is not an integer or out of range\r\n"),
        ("EXPIRE k 10 MAYBE", "-ERR Unsupported option MAYBE\r\n"),
        ("EXPIRE k 10 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n"),
        ("EXPIRE k 10 GT LT", "-ERR GT and LT options at the same time are not compatible\r\n"),
        ("EXPIRE k 9223372036854775807", "-ERR invalid expire time in 'expire' command\r\n"),
        ("PEXPIRE k 9223372036854775807", "-ERR invalid expire time in 'pexpire' command\r\n"),
        ("TTL k", ":-1\r\n"),
        ("TTL none", ":-2\r\n"),
        ("EXPIRE k -1", ":1\r\n"),
        ("PTTL k", ":-2\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn unknown_and_malformed_commands_are_named() {
    dialogue(&[
        ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: \r\n"),
        ("nosuch a \"b\\r\\nc\"", "-ERR unknown command 'nosuch', with args beginning with: 'a' 'b  c' \r\n"),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("get a b", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("PING a b", "-ERR wrong number of arguments for 'ping' command\r\n"),
        ("CLIENT", "-ERR wrong number of arguments for 'client' command\r\n"),
        ("CLIENT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.\r\n"),
        ("CLIENT SETNAME", "-ERR wrong number of arguments for 'client|setname' command\r\n"),
        ("DEBUG SLEEP soon", "-ERR value is not a valid float\r\n"),
        ("DEBUG SLEEP 0", "+OK\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn an_unknown_command_quotes_no_more_than_128_bytes() {
    let long = "y".repeat(500);
    let shown = &long[..128];
    dialogue(&[(
        &format!("{long} {long} {long}"),
        &format!("-ERR unknown command '{shown}', with args beginning with: '{shown}' \r\n"),
    )])
    .await;
}

#[tokio::test]
async fn a_client_introduces_itself() {
    dialogue(&[
        ("CLIENT GETNAME", "$-1\r\n"),
        ("CLIENT SETNAME joe", "+OK\r\n"),
        ("CLIENT GETNAME", "$3\r\njoe\r\n"),
        (
            "CLIENT SETNAME \"a b\"",
            "-ERR Client names cannot contain spaces, newlines or special characters.\r\n",
        ),
        ("CLIENT SETINFO LIB-NAME redis-rs", "+OK\r\n"),
        ("CLIENT SETINFO LIB-VER 1.0", "+OK\r\n"),
        ("CLIENT SETINFO LIB-AGE 1", "-ERR Unrecognized option 'LIB-AGE'\r\n"),
        ("CLIENT NO-EVICT ON", "+OK\r\n"),
        ("CLIENT NO-TOUCH MAYBE", "-ERR syntax error\r\n"),
        ("RESET", "+RESET\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn tools_are_told_the_settings_they_ask_for() {
    dialogue(&[
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CONFIG GET appendonly", "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"),
        ("CONFIG GET nosuch", "*0\r\n"),
        (
            "CONFIG GET maxmem*",
            "*4\r\n$9\r\nmaxmemory\r\n$1\r\n0\r\n$16\r\nmaxmemory-policy\r\n$10\r\nnoeviction\r\n",
        ),
        ("CONFIG SET hz 20 timeout 5", "+OK\r\n"),
        ("CONFIG GET hz", "*2\r\n$2\r\nhz\r\n$2\r\n20\r\n"),
        (
            "CONFIG SET hz 30 nosuch 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'\r\n",
        ),
        ("CONFIG GET hz", "*2\r\n$2\r\nhz\r\n$2\r\n20\r\n"),
        ("CONFIG SET hz 10 timeout 0", "+OK\r\n"),
        ("CONFIG SET hz 10 timeout", "-ERR syntax error\r\n"),
        (
            "COMMAND INFO get nosuch",
            "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n*1\r\n+readonly\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n$-1\r\n",
        ),
        (
            "COMMAND DOCS get nosuch",
            "*2\r\n$3\r\nget\r\n*6\r\n$7\r\nsummary\r\n$17\r\nReturns a string.\r\n\
             $5\r\ngroup\r\n$6\r\nstring\r\n$9\r\narguments\r\n*0\r\n",
        ),
        ("INFO nosuch", "$0\r\n\r\n"),
        ("SET k v EX 100", "+OK\r\n"),
        ("INFO keyspace", "$44\r\n# Keyspace\r\ndb0:keys=1,expires=1,avg_ttl=0\r\n\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn hello_chooses_the_protocol() {
    let server = mock().await;
    for wire in &mut wires(&server).await {
        let id = if wire.transport == valkey_rdma_server::Transport::Tcp { 1 } else { 2 };
        let fields = |proto| {
            format!(
                "$6\r\nserver\r\n$6\r\nvalkey\r\n$7\r\nversion\r\n$5\r\n9.1.2\r\n$5\r\nproto\r\n:{proto}\r\n\
                 $2\r\nid\r\n:{id}\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
                 $7\r\nmodules\r\n*0\r\n"
            )
        };
        wire.dialogue(&[
            ("HELLO", &format!("*14\r\n{}", fields(2))),
            ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
            ("HELLO three", "-ERR Protocol version is not an integer or out of range\r\n"),
            ("HELLO 3 NOSUCH", "-ERR Syntax error in HELLO option 'NOSUCH'\r\n"),
            ("GET none", "$-1\r\n"),
            ("HELLO 3 SETNAME joe", &format!("%7\r\n{}", fields(3))),
            ("CLIENT GETNAME", "$3\r\njoe\r\n"),
            ("GET none", "_\r\n"),
            ("CONFIG GET save", "%1\r\n$4\r\nsave\r\n$0\r\n\r\n"),
            ("INFO nosuch", "=4\r\ntxt:\r\n"),
            ("RESET", "+RESET\r\n"),
            ("GET none", "$-1\r\n"),
        ])
        .await;
    }
}

const NOAUTH: &str = "-NOAUTH Authentication required.\r\n";
const WRONGPASS: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";

#[tokio::test]
async fn a_password_is_asked_for() {
    let server = start(Mock::new().requirepass("secret"), &Limits::default()).await;
    for wire in &mut wires(&server).await {
        wire.dialogue(&[
            ("PING", NOAUTH),
            ("GET k", NOAUTH),
            ("NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: \r\n"),
            ("AUTH wrong", WRONGPASS),
            ("AUTH joe secret", WRONGPASS),
            ("AUTH a b c", "-ERR syntax error\r\n"),
            (
                "HELLO 3",
                "-NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                 AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                 version at the same time\r\n",
            ),
            ("HELLO 3 AUTH default wrong", WRONGPASS),
            ("PING", NOAUTH),
            ("AUTH secret", "+OK\r\n"),
            ("PING", "+PONG\r\n"),
            ("RESET", "+RESET\r\n"),
            ("PING", NOAUTH),
            ("AUTH default secret", "+OK\r\n"),
            ("QUIT", "+OK\r\n"),
        ])
        .await;
        wire.expect_end().await;
    }
}

/// Through an `Arc`, which must hand on all that a handler says.
#[tokio::test]
async fn before_the_password_only_small_commands_are_taken() {
    let server = start(Arc::new(Mock::new().requirepass("secret")), &Limits::default()).await;
    for (input, error) in
        [("*11\r\n", "unauthenticated multibulk length"), ("*1\r\n$16385\r\n", "unauthenticated bulk length")]
    {
        for wire in &mut wires(&server).await {
            wire.send(input).await;
            wire.expect(format!("-ERR Protocol error: {error}\r\n")).await;
            wire.expect_end().await;
        }
    }
    // In one piece: the password counts from the next command on.
    for wire in &mut wires(&server).await {
        let value = "x".repeat(20_000);
        wire.send(format!("AUTH secret\r\n*2\r\n$4\r\nECHO\r\n$20000\r\n{value}\r\n")).await;
        wire.expect(format!("+OK\r\n$20000\r\n{value}\r\n")).await;
    }
}

#[tokio::test]
async fn without_a_password_set_giving_one_is_a_mistake() {
    dialogue(&[
        (
            "AUTH secret",
            "-ERR AUTH <password> called without any password configured for the default user. Are you sure your \
             configuration is correct?\r\n",
        ),
        ("AUTH default anything", "+OK\r\n"),
        ("AUTH joe anything", WRONGPASS),
    ])
    .await;
}

/// Whatever it is doing: waiting for a key, listening, or nothing.
#[tokio::test]
async fn a_client_is_killed() {
    let server = mock().await;
    let mut killer = wires(&server).await.swap_remove(0);
    killer.dialogue(&[("PING", "+PONG\r\n")]).await;
    for command in ["BLPOP nothing 0", "SUBSCRIBE news", "PING"] {
        for wire in &mut wires(&server).await {
            wire.send("CLIENT ID\r\n").await;
            let id = wire.line().await;
            let id = id.trim_start_matches(':');
            wire.send(format!("{command}\r\n")).await;
            killer.dialogue(&[(&format!("CLIENT KILL ID {id}"), ":1\r\n")]).await;
            wire.rest_or_reset().await;
        }
    }
    // They are forgotten a moment after they see the end.
    until("they are forgotten", async || {
        killer.send("INFO clients\r\n").await;
        let mut text = String::new();
        while !text.contains("pubsub_clients") {
            text = text + &killer.line().await + "\n";
        }
        killer.line().await;
        text.contains("connected_clients:1\n")
    })
    .await;
    killer
        .dialogue(&[("PUBSUB NUMSUB news", "*2\r\n$4\r\nnews\r\n:0\r\n"), ("RPUSH nothing x", ":1\r\n")])
        .await;
}

#[tokio::test]
async fn a_server_that_stops_unblocks_its_waiting_clients() {
    let server = start(Mock::new(), &Limits::default().drain_timeout(std::time::Duration::MAX)).await;
    let mut wires = wires(&server).await;
    for wire in &mut wires {
        wire.send("BLPOP k 0\r\n").await;
    }
    let mut observer = Wire::connect(&server.listening()[0]).await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        observer.send("INFO clients\r\n").await;
        let mut blocked = false;
        while {
            let line = observer.line().await;
            blocked |= line == "blocked_clients:2";
            !line.is_empty()
        } {}
        if blocked {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "both clients block");
    }
    let shutdown = tokio::spawn(server.shutdown());
    for wire in &mut wires {
        wire.expect("-UNBLOCKED the server is shutting down\r\n").await;
        wire.expect_end().await;
    }
    drop((wires, observer));
    tokio::time::timeout(std::time::Duration::from_secs(30), shutdown).await.expect("it stops").unwrap();
}

/// The replies of Valkey 9.1.2. `valkey-rdma-resp/tests/as_valkey.txt` has many more.
#[tokio::test]
async fn what_is_not_a_command_is_refused_with_valkeys_text() {
    let server = mock().await;
    for (input, reply) in [
        ("*1\r\n$4\r\nPINGxx", "-ERR Protocol error: invalid CRLF in request\r\n"),
        ("*2\r\n$4\r\nECHOxx$1\r\na\r\n", "-ERR Protocol error: invalid CRLF in request\r\n"),
        ("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$2000000000\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$20000000000\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*2147483648\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (
            "ECHO {\"a\":1}\r\nECHO 'a\r\n",
            "$5\r\n{a:1}\r\n-ERR Protocol error: unbalanced quotes in request\r\n",
        ),
    ] {
        for wire in &mut wires(&server).await {
            wire.send(input).await;
            wire.expect(reply).await;
            wire.expect_end().await;
        }
    }
}

#[tokio::test]
async fn a_client_that_has_not_logged_in_may_send_enough_to_log_in() {
    let mock = Arc::new(Mock::new());
    mock.execute(&Command::new("CONFIG", ["SET", "requirepass", "pw"]));
    let server = start(mock, &Limits::default()).await;
    for (input, reply) in [
        ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length\r\n"),
        ("*1\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
        ("*1\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        ("*2\r\n$4\r\nAUTH\r\n$2\r\npwxx", "-ERR Protocol error: invalid CRLF in request\r\n"),
        ("AUTH pw\r\n*12\r\n:", "+OK\r\n"),
    ] {
        for wire in &mut wires(&server).await {
            wire.send(input).await;
            wire.expect(reply).await;
            if reply.starts_with('-') {
                wire.expect_end().await;
            }
        }
    }
}
