//! Commands, their arguments and their typed replies.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use futures_util::TryStreamExt;
use valkey_rdma_client::{Client, Command, Config, Error, Fate, LostCause, cmd};

use crate::target::target;

#[tokio::test]
async fn arguments_are_binary_safe() {
    let target = target().await;
    let client = target.client().await;
    let all: Vec<u8> = (0..=255).chain(*b"\r\n$3\r\n\0*1\r\n").collect();
    for value in [&all[..], b"", b"\0", b"\r\n", b"*3\r\n$3\r\nSET\r\n"] {
        let key = [target.key("binary").as_bytes(), value].concat();
        client.command([&b"SET"[..], &key, value]).await.expect("set");
        let back: Bytes =
            client.command([&b"GET"[..], &key]).await.expect("get").convert().expect("a string");
        assert_eq!(back, value);
    }
}

#[tokio::test]
async fn replies_convert_to_what_the_caller_wants() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("n");
    let count: i64 =
        client.command(["INCRBY", &key, "41"]).await.expect("a reply").convert().expect("a number");
    assert_eq!(count, 41);
    let text: String = client.command(["GET", &key]).await.expect("a reply").convert().expect("text");
    let number: u8 = client.command(["GET", &key]).await.expect("a reply").convert().expect("in range");
    assert_eq!((text.as_str(), number), ("41", 41));
    let none: Option<String> =
        client.command(["GET", &target.key("none")]).await.expect("a reply").convert().expect("none");
    assert_eq!(none, None);
    let () = client.command(["SET", &key, "text"]).await.expect("a reply").convert().expect("OK");
    let wrong = client.command(["GET", &key]).await.expect("a reply");
    let error = Error::from(wrong.convert::<i64>().expect_err("not a number"));
    assert_eq!(error.fate(), Fate::Answered);
    assert_eq!(error.to_string(), "expected an integer of 64 bits, got a string of 4 bytes");
    let settings: HashMap<String, String> =
        client.command(["CONFIG", "GET", "maxclients"]).await.expect("a reply").convert().expect("a map");
    assert!(settings.contains_key("maxclients"));
}

/// RESP allows all of it, so the connection stays.
#[tokio::test]
async fn what_makes_no_sense_is_a_typed_error_and_the_connection_stays() {
    let target = target().await;
    let client = target.client().await;
    let refused = client.command([""; 0]).await.expect_err("empty").fate();
    assert_eq!(refused, Fate::NotSent);
    let nameless = client.command([""]).await.expect_err("no such command");
    assert!(matches!(nameless, Error::Server(_)), "{nameless:?}");
    let split = client.command(["SET k v\r\nFLUSHALL"]).await.expect_err("no such command");
    assert!(matches!(split, Error::Server(_)), "{split:?}");
    let joined = client.command(["CONFIG GET", "maxclients"]).await.expect_err("no such command");
    assert!(
        joined.to_string().ends_with("pass its words as separate arguments, as in [\"CONFIG\", \"GET\"]"),
        "{joined}"
    );
    let named = client.command(["CLIENT SETNAME", "me"]).await.expect_err("no such command");
    assert!(named.to_string().ends_with("to name the connections, use Config::name"), "{named}");
    let wrong = client.command(["GET"]).await.expect_err("too few arguments");
    assert!(wrong.to_string().contains("wrong number of arguments"), "{wrong}");
    for command in
        [&["SELECT", "1"][..], &["AUTH", "x"], &["WATCH", "k"], &["MULTI"], &["CLIENT", "TRACKING", "ON"]]
    {
        let error = client.command(command).await.expect_err("refused");
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
    }
    assert_eq!(client.counters().reconnects, 0);
    assert_eq!(client.command(["PING"]).await.expect("alive").as_str(), Some("PONG"));
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_pipeline_leaves_the_others() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("text");
    let replies = client
        .pipeline()
        .command(["SET", &key, "x"])
        .command(["INCR", &key])
        .command(["GET", &key])
        .send()
        .await
        .expect("replies");
    assert!(replies[0].is_ok());
    assert!(replies[1].as_ref().is_err_and(|error| error.server().is_some_and(|error| error.code == "ERR")));
    assert_eq!(replies[2].as_ref().expect("a value").as_str(), Some("x"));
}

#[tokio::test]
async fn exec_without_multi_is_an_error_reply() {
    let target = target().await;
    let client = target.client().await;
    let error = client.command(["EXEC"]).await.expect_err("no MULTI");
    assert_eq!(error.server().expect("an error reply").message, "EXEC without MULTI");
    assert_eq!(client.command(["PING"]).await.expect("alive").as_str(), Some("PONG"));
}

#[tokio::test]
async fn many_tasks_on_several_connections_each_get_their_own_replies() {
    let target = target().await;
    let config = Config::default().connections(3);
    let client = target.client_with(&config).await;
    let tasks: Vec<_> = (0..500)
        .map(|n| {
            let (client, key) = (client.clone(), target.key(&format!("own:{n}")));
            tokio::spawn(async move {
                client.command(Command::new("SET").arg(&key).arg(&key)).await.expect("set");
                let value: String =
                    client.command(["GET", &key]).await.expect("get").convert().expect("text");
                assert_eq!(value, key);
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the right value");
    }
    let status = client.connections();
    assert_eq!(status.len(), 3);
    assert!(status.iter().all(|connection| connection.counters.commands > 100), "{status:?}");
    assert_eq!(client.counters().in_flight, 0);
    assert!(status[0].to_string().contains("reconnects:0\n"));
    client.close().await;
    assert!(client.is_closed());
}

/// Not by the server, although the end of reading is the same.
#[tokio::test]
async fn what_is_closed_was_closed_by_this_side() {
    let target = target().await;
    let config = Config::default().reconnect(None);
    let client = target.client_with(&config).await;
    for n in 0..10 {
        client.command(["SET", &target.key("k"), &n.to_string()]).await.expect("set");
    }
    client.close().await;
    let Err(Error::Lost(lost)) = client.command(["PING"]).await else { panic!("a closed client answers") };
    assert!(matches!(lost.cause(), LostCause::Closed), "{lost}");
    assert!(client.is_closed());
}

/// A wish of spawned tasks: everything is Send.
#[tokio::test]
async fn every_future_can_be_spawned() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("k");
    tokio::spawn(async move {
        client.command(["SET", &key, "v"]).await.expect("set");
        client.pipeline().command(["GET", &key]).send().await.expect("get");
        let mut own = client.dedicated().await.expect("connected");
        own.command(["GET", &key]).await.expect("get");
        let mut buffer = [0; 8];
        assert_eq!(client.get_into(&key, &mut buffer).await.expect("get"), Some(1));
    })
    .await
    .expect("no panic");
}

#[tokio::test]
async fn connections_carry_the_name_they_were_given() {
    let target = target().await;
    let config = Config::default().name("kv-writer");
    let client = target.client_with(&config).await;
    let info: String = client.command(["CLIENT", "INFO"]).await.expect("info").convert().expect("text");
    assert!(info.contains("name=kv-writer ") && info.contains("lib-name=valkey-rdma-client "), "{info}");

    let config = config.name("two words");
    let refused = Client::connect_with(target.url.as_str(), &config).await;
    assert!(refused.expect_err("refused").server().is_some());
}

#[tokio::test]
async fn a_connection_comes_from_the_address_that_was_asked_for() {
    let target = target().await;
    if !target.is_mock() {
        return; // its machine's addresses are not ours to know
    }
    let url = format!("{}?source=127.0.0.77", target.tcp);
    let client = Client::connect(url.as_str()).await.expect("connected");
    let info: String = client.command(["CLIENT", "INFO"]).await.expect("info").convert().expect("text");
    assert!(info.contains("addr=127.0.0.77:"), "{info}");
}

#[tokio::test]
async fn typed_queries_take_arguments_of_different_types() {
    let target = target().await;
    let client = target.client().await;
    let (key, list) = (target.key("typed"), target.key("list"));
    let set: bool = client.query(cmd!["SET", &key, vec![b'4', b'1'], "EX", 60, "NX"]).await.expect("set");
    let again: bool = client.query(cmd!["SET", &key, 1.5, "NX"]).await.expect("not set");
    assert_eq!((set, again), (true, false));
    assert_eq!(client.query::<u8>(cmd!["INCRBY", &key, 1]).await.expect("a number"), 42);
    let length: usize =
        client.query(cmd!["RPUSH", &list, [1, 2], "3", Some(4.5), None::<i32>]).await.expect("a length");
    assert_eq!(length, 4);
    let () = client.query(["DEL", &target.key("none")]).await.expect("any reply");
    let error = client.query::<i64>(["LRANGE", &list, "0", "-1"]).await.expect_err("no number");
    assert!(matches!(error, Error::Unexpected(_)), "{error:?}");
    assert_eq!(error.to_string(), "LRANGE: expected an integer of 64 bits, got an array of 4");

    let both = client.pipeline().command(cmd!["GET", &key]).command(cmd!["LRANGE", &list, 0, -1]);
    let (number, items): (i64, Vec<f64>) = both.query().await.expect("both convert");
    assert_eq!((number, items), (42, vec![1.0, 2.0, 3.0, 4.5]));
    let wrong = client.pipeline().command(["GET", &list]).command(cmd!["SET", &key, 7]);
    let error = wrong.query::<()>().await.expect_err("the first command fails");
    assert!(error.server().is_some_and(|error| error.code == "WRONGTYPE"), "{error:?}");
    assert!(error.to_string().starts_with("command 0, GET: WRONGTYPE "), "{error}");
    assert_eq!(client.query::<i64>(["GET", &key]).await.expect("a number"), 7, "the second ran all the same");

    let pipeline = || client.pipeline().command(["PING"]).command(["lrange", &list, "0", "-1"]);
    let error = pipeline().query::<(String, Vec<i64>)>().await.expect_err("4.5 has a fraction");
    let text =
        "command 1, lrange: member 3 of the reply: expected an integer of 64 bits, got a string of 3 bytes";
    assert_eq!((error.to_string().as_str(), error.fate()), (text, Fate::Answered));
    let error = pipeline().query::<(String,)>().await.expect_err("one more reply");
    assert_eq!(error.to_string(), "expected an array of 1, got 2 replies");
    let error = client.pipeline().command(["PING"]).query::<String>().await.expect_err("a list of one");
    let text = "expected a string, got a list of one reply: ask for a tuple such as (String,)";
    assert_eq!(error.to_string(), text);
    let transaction = client.transaction().command(["PING"]).command(["GET", &key]);
    let error = transaction.query::<(String, u8, ())>().await.expect_err("two replies");
    assert_eq!(error.to_string(), "expected an array of 3, got 2 replies");
    let transaction = client.transaction().command(["PING"]).command(["GET", &list]);
    let error = transaction.query::<()>().await.expect_err("a list");
    assert!(error.to_string().starts_with("command 1, GET: WRONGTYPE "), "{error}");

    let transaction = client.transaction().command(cmd!["INCRBY", &key, 1]).command(["LLEN", &list]);
    assert_eq!(transaction.query::<(i64, usize)>().await.expect("executed"), (8, 4));
    let popped: Option<(String, String)> =
        client.blocking_query(cmd!["BLPOP", &list, 1]).await.expect("popped");
    assert_eq!(popped, Some((list, "1".to_owned())));
}

#[tokio::test]
async fn a_scan_returns_every_key_batch_by_batch_or_as_a_stream() {
    let target = target().await;
    let client = target.client().await;
    let keys: BTreeSet<_> = (0..300).map(|number| target.key(&format!("scan:{number}"))).collect();
    for key in &keys {
        client.command(["SET", key, "x"]).await.expect("set");
    }
    client.command(["LPUSH", &target.key("scan:list"), "x"]).await.expect("pushed");
    let scan = client.scan().matching(target.key("scan:*")).count(50).of_type("string");
    let text = |key: Bytes| String::from_utf8_lossy(&key).into_owned();
    let (mut found, mut batches) = (BTreeSet::new(), scan.clone());
    while let Some(batch) = batches.next_batch().await.expect("a batch") {
        found.extend(batch.into_iter().map(text));
    }
    assert_eq!(found, keys);
    assert_eq!(batches.next_batch().await.expect("the end stays"), None);
    let streamed: BTreeSet<_> = scan.keys().map_ok(text).try_collect().await.expect("all keys");
    assert_eq!(streamed, keys);
}

/// In both versions of the protocol, through all kinds of keys.
#[tokio::test]
async fn what_was_written_is_read_back() {
    let target = target().await;
    for options in ["", "?protocol=resp2"] {
        let client = Client::connect(format!("{}{options}", target.url)).await.expect("connected");
        let key = |name: &str| target.key(&format!("back:{name}"));
        for flag in [true, false] {
            client.command(cmd!["SET", key("flag"), flag]).await.expect("set");
            assert_eq!(client.query::<bool>(["GET", &key("flag")]).await.expect("read"), flag);
            assert_eq!(client.query::<Option<bool>>(["GET", &key("flag")]).await.expect("read"), Some(flag));
        }
        let flags = HashMap::from([("a".to_owned(), true), ("b".to_owned(), false)]);
        client.command(cmd!["HSET", key("flags"), &flags]).await.expect("set");
        assert_eq!(
            client.query::<HashMap<String, bool>>(["HGETALL", &key("flags")]).await.expect("read"),
            flags
        );
        let some: Vec<Option<bool>> =
            client.query(["HMGET", &key("flags"), "a", "x", "b"]).await.expect("read");
        assert_eq!(some, [Some(true), None, Some(false)]);
        client.command(cmd!["ZADD", key("scores"), 2, "two", 1.5, "half", true, "one"]).await.expect("added");
        let score = |member: &str| ["ZSCORE".to_owned(), key("scores"), member.to_owned()];
        assert_eq!(client.query::<i64>(score("two")).await.expect("read"), 2);
        assert_eq!(client.query::<String>(score("two")).await.expect("read"), "2");
        assert_eq!(client.query::<String>(score("half")).await.expect("read"), "1.5");
        assert!(client.query::<bool>(score("one")).await.expect("read"));
        assert!(client.query::<i64>(score("half")).await.is_err());
        let sum: i64 = client.query(["ZINCRBY", &key("scores"), "3", "two"]).await.expect("added");
        assert_eq!(sum, 5);
        let best: Vec<(String, i64)> =
            client.query(["ZRANGE", &key("scores"), "5", "5", "BYSCORE", "WITHSCORES"]).await.expect("read");
        assert_eq!(best, [("two".to_owned(), 5)]);
        let setting: (String, String) = client.query(["CONFIG", "GET", "maxmemory"]).await.expect("read");
        assert_eq!(setting.0, "maxmemory");
        client.command(["DEL", &key("flag"), &key("flags"), &key("scores")]).await.expect("deleted");
    }
}
