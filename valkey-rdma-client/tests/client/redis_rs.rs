//! redis-rs's typed commands over our client, family by family. Each does the same over redis-rs's own TCP connection
//! to the same server, and both must see the same.

use std::collections::{HashMap, HashSet};

use redis::aio::ConnectionLike;
use redis::{AsyncCommands, ErrorKind, Script, ServerErrorKind, Value, streams};
use valkey_rdma_client::Client;
use valkey_rdma_mock::{Mock, MockServer};

use crate::target::{Target, target};

/// Runs the same over both and compares everything that was returned. Keys differ in their prefix only.
macro_rules! same_over_both {
    ($target:expr, |$con:ident, $key:ident| $body:expr) => {{
        let target: &Target = &$target;
        let ours = {
            let mut $con = target.client().await;
            let $key = |name: &str| target.key(&format!("ours:{name}"));
            $body
        };
        // Without its feature, redis-rs speaks plain TCP only.
        let theirs_named = if target.tcp.starts_with("valkeys://") {
            format!("{ours:?}")
        } else {
            let client = redis::Client::open(target.tcp.replace("valkey://", "redis://") + "?protocol=resp3");
            // Its defaults are half a second for a reply and one for a connection, which a busy machine can take.
            let patient = redis::AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
            let client = client.expect("a good URL");
            let connection = client.get_multiplexed_async_connection_with_config(&patient).await;
            let mut $con = connection.expect("connected");
            let $key = |name: &str| target.key(&format!("ours:{name}")).replace("ours:", "them:");
            format!("{:?}", $body).replace("them:", "ours:")
        };
        assert_eq!(format!("{ours:?}"), theirs_named);
        ours
    }};
}

#[tokio::test]
async fn strings() {
    let target = target().await;
    let seen = same_over_both!(target, |con, key| {
        let set: () = con.set(key("a"), "1").await.expect("set");
        let binary: () = con.set(key("b"), &b"\0\r\n\xff"[..]).await.expect("set");
        let sum: i64 = con.incr(key("a"), 41).await.expect("incr");
        let text: String = con.get(key("a")).await.expect("get");
        let bytes: Vec<u8> = con.get(key("b")).await.expect("get");
        let none: Option<String> = con.get(key("none")).await.expect("get");
        let many: Vec<Option<Vec<u8>>> = con.mget(&[key("a"), key("none"), key("b")]).await.expect("mget");
        let exists: bool = con.exists(key("a")).await.expect("exists");
        let ttl: bool = con.expire(key("a"), 100).await.expect("expire");
        let gone: usize = con.del(&[key("a"), key("b"), key("none")]).await.expect("del");
        (set, binary, sum, text, bytes, none, many, exists, ttl, gone)
    });
    assert_eq!((seen.2, seen.3.as_str(), seen.9), (42, "42", 2));
}

#[tokio::test]
async fn pipelines() {
    let target = target().await;
    let seen = same_over_both!(target, |con, key| {
        let (a, b): (i64, String) = redis::pipe()
            .incr(key("n"), 1)
            .set(key("s"), "x")
            .ignore()
            .get(key("s"))
            .query_async(&mut con)
            .await
            .expect("a pipeline");
        let error = redis::pipe().incr(key("s"), 1).exec_async(&mut con).await.expect_err("not a number");
        (a, b, error.code().map(str::to_owned))
    });
    assert_eq!(seen, (1, "x".to_owned(), Some("ERR".to_owned())));
}

#[tokio::test]
async fn errors_keep_their_kind() {
    let target = target().await;
    same_over_both!(target, |con, key| {
        let _: () = con.set(key("text"), "x").await.expect("set");
        let error = con.incr::<_, _, i64>(key("text"), 1).await.expect_err("not a number");
        let raw =
            con.req_packed_command(&redis::cmd("NOSUCHCOMMAND")).await.expect("an error is a reply here");
        assert!(matches!(raw, Value::ServerError(_)), "{raw:?}");
        let unknown = redis::cmd("NOSUCHCOMMAND").exec_async(&mut con).await;
        let type_error = con.get::<_, i64>(key("text")).await.expect_err("not a number");
        (
            error.kind(),
            error.code().map(str::to_owned),
            unknown.expect_err("unknown").kind(),
            type_error.kind(),
        )
    });
}

#[tokio::test]
async fn what_would_break_the_shared_connection_is_refused() {
    let target = target().await;
    let mut client = target.client().await;
    let error = redis::cmd("SUBSCRIBE").arg("x").exec_async(&mut client).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Client);
    // On a connection of its own it would count none of this client's writes.
    let error = redis::cmd("WAIT").arg(0).arg(1).exec_async(&mut client).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Client);
    let error = redis::cmd("MULTI").exec_async(&mut client).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Client);
    assert_eq!(client.get_db(), 0);
}

#[tokio::test]
async fn hashes() {
    let target = target().await;
    same_over_both!(target, |con, key| {
        let new: usize =
            con.hset_multiple(key("h"), &[("a", "1"), ("b", "2")]).await.map(|()| 2).expect("hset");
        let one: String = con.hget(key("h"), "a").await.expect("hget");
        let none: Option<String> = con.hget(key("h"), "z").await.expect("hget");
        let sum: i64 = con.hincr(key("h"), "b", 5).await.expect("hincr");
        let all: HashMap<String, i64> = con.hgetall(key("h")).await.expect("hgetall");
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort();
        let len: usize = con.hlen(key("h")).await.expect("hlen");
        let gone: usize = con.hdel(key("h"), "a").await.expect("hdel");
        (new, one, none, sum, all, len, gone)
    });
}

#[tokio::test]
async fn lists() {
    let target = target().await;
    same_over_both!(target, |con, key| {
        let len: usize = con.rpush(key("l"), &["a", "b", "c"]).await.expect("rpush");
        let head: Option<String> = con.lpop(key("l"), None).await.expect("lpop");
        let rest: Vec<String> = con.lrange(key("l"), 0, -1).await.expect("lrange");
        let at: Option<String> = con.lindex(key("l"), 1).await.expect("lindex");
        let _: () = con.ltrim(key("l"), 1, 1).await.expect("ltrim");
        let last: usize = con.llen(key("l")).await.expect("llen");
        (len, head, rest, at, last)
    });
}

#[tokio::test]
async fn sets() {
    let target = target().await;
    same_over_both!(target, |con, key| {
        let new: usize = con.sadd(key("s"), &["a", "b", "b"]).await.expect("sadd");
        let _: usize = con.sadd(key("t"), &["b", "c"]).await.expect("sadd");
        let both: HashSet<String> = con.sinter(&[key("s"), key("t")]).await.expect("sinter");
        let member: bool = con.sismember(key("s"), "a").await.expect("sismember");
        let all: HashSet<String> = con.sunion(&[key("s"), key("t")]).await.expect("sunion");
        let mut scanned = Vec::new();
        let mut scan = con.sscan::<_, String>(key("s")).await.expect("sscan");
        while let Some(item) = scan.next_item().await {
            scanned.push(item.expect("an item"));
        }
        scanned.sort();
        (new, both, member, all.len(), scanned)
    });
}

#[tokio::test]
async fn long_scans_send_their_cursor() {
    let target = target().await;
    same_over_both!(target, |con, key| {
        let members: Vec<_> = (0..1000).map(|n| format!("member {n}")).collect();
        let _: usize = con.sadd(key("s"), &members).await.expect("sadd");
        let mut scanned = Vec::new();
        let mut scan = con.sscan::<_, String>(key("s")).await.expect("sscan");
        while let Some(item) = scan.next_item().await {
            scanned.push(item.expect("an item"));
        }
        scanned.sort();
        scanned.dedup();
        assert_eq!(scanned.len(), 1000);
        scanned
    });
}

#[tokio::test]
async fn sorted_sets() {
    let target = target().await;
    same_over_both!(target, |con, key| {
        let new: usize =
            con.zadd_multiple(key("z"), &[(1.5, "a"), (3.0, "c"), (2.0, "b")]).await.expect("zadd");
        let ranked: Vec<(String, f64)> = con.zrange_withscores(key("z"), 0, -1).await.expect("zrange");
        let score: Option<f64> = con.zscore(key("z"), "a").await.expect("zscore");
        let up: f64 = con.zincr(key("z"), "a", 10).await.expect("zincrby");
        let rank: Option<usize> = con.zrank(key("z"), "a").await.expect("zrank");
        let low: Vec<String> = con.zrangebyscore(key("z"), "-inf", 2).await.expect("zrangebyscore");
        (new, ranked, score, up, rank, low)
    });
}

#[tokio::test]
async fn streams() {
    let target = target().await;
    same_over_both!(target, |con, key| {
        let id: Option<String> = con.xadd(key("x"), "1-1", &[("field", "value")]).await.expect("xadd");
        let _: Option<String> = con.xadd(key("x"), "2-1", &[("field", "other")]).await.expect("xadd");
        let len: usize = con.xlen(key("x")).await.expect("xlen");
        let range: streams::StreamRangeReply = con.xrange_all(key("x")).await.expect("xrange");
        let ids: Vec<_> =
            range.ids.iter().map(|entry| (entry.id.clone(), entry.get::<String>("field"))).collect();
        let read: Option<streams::StreamReadReply> = con.xread(&[key("x")], &["1-1"]).await.expect("xread");
        let read: Vec<_> = read.expect("entries").keys[0].ids.iter().map(|entry| entry.id.clone()).collect();
        let _: () = con.xgroup_create(key("x"), "group", "0").await.expect("xgroup");
        (id, len, ids, read)
    });
}

#[tokio::test]
#[ignore = "the mock has no Lua; needs a real server: VALKEY_RDMA_TEST_SERVER"]
async fn scripts() {
    let target = target().await;
    same_over_both!(target, |con, key| {
        // A text of its own, so that the first call finds no such script.
        let script = Script::new(&format!(
            "-- {}\nredis.call('SET', KEYS[1], ARGV[1]) return {{redis.call('GET', KEYS[1]), 7}}",
            key("text")
        ));
        let first: (String, i64) = script.key(key("k")).arg("v").invoke_async(&mut con).await.expect("eval");
        let again: (String, i64) =
            script.key(key("k")).arg("w").invoke_async(&mut con).await.expect("evalsha");
        (first, again)
    });
}

#[tokio::test]
async fn transactions() {
    let target = target().await;
    same_over_both!(target, |con, key| {
        let (a, b): (i64, Option<String>) = redis::pipe()
            .atomic()
            .incr(key("n"), 5)
            .get(key("none"))
            .query_async(&mut con)
            .await
            .expect("a transaction");
        let aborted =
            redis::pipe().atomic().cmd("NOSUCHCOMMAND").exec_async(&mut con).await.expect_err("aborted");
        assert_eq!(aborted.kind(), ErrorKind::Server(ServerErrorKind::ExecAbort));
        let wrong = redis::pipe().atomic().incr(key("n"), 1).cmd("GET").exec_async(&mut con).await;
        let text = wrong.expect_err("GET needs a key").to_string();
        let why = text.find("Transaction aborted: [(Index 1, error: ").map(|at| text[at..].to_owned());
        (a, b, why.expect("the command and its error"))
    });
}

/// They bring mocks of their own: a real server beside them shows nothing.
mod mocks_only {
    use super::*;

    #[tokio::test]
    async fn the_error_of_a_missing_connection_says_what_became_of_the_command() {
        let refused = Client::connect("valkey://127.0.0.1:1").await.expect_err("nothing listens there");
        let error = redis::RedisError::from(refused);
        assert!(error.to_string().ends_with("; the command was not sent"), "{error}");
        let causes = std::iter::successors(std::error::Error::source(&error), |error| error.source());
        let system =
            causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>()).last().expect("a cause");
        assert_eq!(system.kind(), std::io::ErrorKind::ConnectionRefused, "{system}");
        let server = MockServer::start_with(Mock::new().requirepass("secret")).await.expect("a free port");
        let refused = Client::connect(server.tcp_url().replace("://", "://:wrong@").as_str()).await;
        let error = redis::RedisError::from(refused.expect_err("a wrong password"));
        assert_eq!(error.kind(), ErrorKind::AuthenticationFailed);
        assert!(error.to_string().contains("WRONGPASS"), "{error}");
    }
}
