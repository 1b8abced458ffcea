//! What depends on time, on a clock that the test moves.

use std::time::Duration;

use super::*;
use valkey_rdma_server::Transport;

struct Caller {
    mock: Arc<Mock>,
    peer: Peer,
    session: Session,
}

impl Caller {
    fn new(mock: &Arc<Mock>) -> Self {
        let nowhere = "127.0.0.1:1".parse().unwrap();
        let id = mock.state().clients_seen + 1;
        let peer = Peer::new(id, Transport::Tcp, nowhere, nowhere);
        Self { mock: mock.clone(), session: mock.session(&peer), peer }
    }

    async fn call(&mut self, line: &str) -> Reply {
        let mut words = line.split(' ').map(str::to_owned);
        let command = Command::new(words.next().unwrap(), words);
        self.mock.call(&mut self.peer, &mut self.session, command).await
    }
}

fn caller() -> Caller {
    Caller::new(&Arc::new(Mock::new()))
}

#[tokio::test(start_paused = true)]
async fn keys_go_when_their_time_has_come() {
    let mut caller = caller();
    for (set, millis) in [("SET k v EX 10", 10_000), ("SET k v PX 1500", 1500)] {
        assert_eq!(caller.call(set).await, Reply::OK);
        tokio::time::advance(Duration::from_millis(millis - 1)).await;
        assert_eq!(caller.call("EXISTS k").await, Reply::Integer(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(caller.call("GET k").await, Reply::Null);
        assert_eq!(caller.call("DBSIZE").await, Reply::Integer(0));
        assert_eq!(caller.call("TTL k").await, Reply::Integer(-2));
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_left_is_told() {
    let mut caller = caller();
    caller.call("SET k v").await;
    assert_eq!(caller.call("PTTL k").await, Reply::Integer(-1));
    assert_eq!(caller.call("PEXPIRE k 2500").await, Reply::Integer(1));
    assert_eq!(caller.call("PTTL k").await, Reply::Integer(2500));
    // Rounded.
    assert_eq!(caller.call("TTL k").await, Reply::Integer(3));
    tokio::time::advance(Duration::from_millis(1100)).await;
    assert_eq!(caller.call("PTTL k").await, Reply::Integer(1400));
    assert_eq!(caller.call("TTL k").await, Reply::Integer(1));
}

#[tokio::test(start_paused = true)]
async fn overwriting_ends_an_expiry_and_keepttl_and_incr_do_not() {
    let mut caller = caller();
    caller.call("SET k 1 EX 10").await;
    caller.call("SET k 2 KEEPTTL").await;
    assert_eq!(caller.call("INCR k").await, Reply::Integer(3));
    assert_eq!(caller.call("TTL k").await, Reply::Integer(10));
    caller.call("SET k 4").await;
    assert_eq!(caller.call("TTL k").await, Reply::Integer(-1));
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(caller.call("GET k").await, Reply::bulk("4"));
}

#[tokio::test(start_paused = true)]
async fn expire_heeds_its_conditions() {
    let mut caller = caller();
    caller.call("SET k v").await;
    for (command, changed) in [
        ("EXPIRE k 10 XX", 0),
        ("EXPIRE k 10 GT", 0),
        ("EXPIRE k 10 NX", 1),
        ("EXPIRE k 20 NX", 0),
        ("EXPIRE k 20 LT", 0),
        ("EXPIRE k 20 GT", 1),
        ("EXPIRE k 5 LT", 1),
        ("EXPIRE nokey 5", 0),
        ("EXPIRE k -1", 1),
        ("EXPIRE k 5", 0),
    ] {
        assert_eq!(caller.call(command).await, Reply::Integer(changed), "{command}");
    }
}

#[tokio::test(start_paused = true)]
async fn debug_sleep_stalls_everybody() {
    let mock = Arc::new(Mock::new());
    let start = Instant::now();
    let mut sleeper = Caller::new(&mock);
    let sleeping = tokio::spawn(async move { sleeper.call("DEBUG SLEEP 2.5").await });
    tokio::task::yield_now().await;
    assert_eq!(Caller::new(&mock).call("PING").await, Reply::simple("PONG"));
    assert_eq!(start.elapsed(), Duration::from_millis(2500));
    assert_eq!(sleeping.await.unwrap(), Reply::OK);
}

#[tokio::test(start_paused = true)]
async fn a_sleeper_that_is_cut_off_ends_the_stall() {
    let mock = Arc::new(Mock::new());
    let mut sleeper = Caller::new(&mock);
    let sleeping = tokio::spawn(async move { sleeper.call("DEBUG SLEEP 1000").await });
    tokio::task::yield_now().await;
    sleeping.abort();
    let start = Instant::now();
    Caller::new(&mock).call("PING").await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn small_values_do_not_pin_what_they_came_in() {
    let mut caller = caller();
    let read_buffer = Bytes::from(vec![b'x'; 30_000]);
    let command = Command::new("SET", [read_buffer.slice(..3), read_buffer.slice(3..6)]);
    caller.mock.call(&mut caller.peer, &mut caller.session, command).await;
    assert!(read_buffer.is_unique());
}

#[tokio::test(start_paused = true)]
async fn fields_go_when_their_time_has_come_and_their_hash_with_the_last() {
    let mut caller = caller();
    caller.call("HSET h a 1 b 2").await;
    caller.call("HPEXPIRE h 1500 FIELDS 1 a").await;
    caller.call("HEXPIRE h 3 FIELDS 1 b").await;
    tokio::time::advance(Duration::from_millis(1499)).await;
    assert_eq!(caller.call("HLEN h").await, Reply::Integer(2));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(caller.call("HLEN h").await, Reply::Integer(1));
    assert_eq!(caller.call("HGET h a").await, Reply::Null);
    tokio::time::advance(Duration::from_millis(1500)).await;
    assert_eq!(caller.call("EXISTS h").await, Reply::Integer(0));
    assert_eq!(caller.call("DBSIZE").await, Reply::Integer(0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_its_time_is_up() {
    let mut caller = caller();
    for (command, in_vain, millis) in [
        ("BLPOP l 2.5", Reply::NullArray, 2500),
        ("BZPOPMIN z 0.001", Reply::NullArray, 1),
        ("XREAD BLOCK 700 STREAMS x $", Reply::NullArray, 700),
    ] {
        let start = Instant::now();
        assert_eq!(caller.call(command).await, in_vain, "{command}");
        assert_eq!(start.elapsed(), Duration::from_millis(millis), "{command}");
    }
    assert!(caller.mock.state().waiters.is_empty());
}

#[tokio::test]
async fn who_left_while_waiting_takes_nothing() {
    let mock = Arc::new(Mock::new());
    let mut waiter = Caller::new(&mock);
    let waiting = tokio::spawn(async move { waiter.call("BLPOP l 0").await });
    while mock.state().waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let mut other = Caller::new(&mock);
    other.call("RPUSH l a").await;
    assert_eq!(other.call("LLEN l").await, Reply::Integer(1));
    assert!(mock.state().waiters.is_empty());
}

/// What is there from the first portion to the last is shown, whatever happens to the other keys meanwhile.
#[tokio::test]
async fn a_scan_shows_every_key_that_stays() {
    let mut caller = caller();
    for number in 0..200 {
        caller.call(&format!("SET {number} v")).await;
    }
    let mut seen = std::collections::BTreeSet::new();
    let (mut cursor, mut round) = ("0".to_owned(), 0);
    loop {
        let Reply::Array(parts) = caller.call(&format!("SCAN {cursor} COUNT 7")).await else {
            panic!("an array")
        };
        let [Reply::Bulk(next), Reply::Array(keys)] = &parts[..] else {
            panic!("a cursor and keys: {parts:?}")
        };
        seen.extend(keys.iter().map(|key| match key {
            Reply::Bulk(key) => String::from_utf8(key.to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }));
        cursor = String::from_utf8(next.to_vec()).unwrap();
        if cursor == "0" {
            break;
        }
        // Odd ones go, even ones are overwritten, and new ones come.
        caller.call(&format!("DEL {} {}", (round * 34 + 1) % 200, (199 - round * 6) % 200)).await;
        caller.call(&format!("SET {} w", (round * 14) % 200)).await;
        caller.call(&format!("APPEND {} w", (round * 6) % 200)).await;
        caller.call(&format!("SET new{round} v")).await;
        round += 1;
    }
    for number in (0..200).step_by(2) {
        assert!(seen.contains(&number.to_string()), "{number} after {round} rounds");
    }
}

#[tokio::test]
async fn used_memory_is_what_is_there() {
    let mut caller = caller();
    for command in [
        "SET s 0123456789",
        "APPEND s 0123456789",
        "RPUSH l a b c",
        "LSET l 0 longer",
        "HSET h f v g w",
        "HSET h f longer",
        "SADD set 1 2 x",
        "ZADD z 1 a 2 b",
        "ZADD z 3 a",
        "XADD x 1-1 f v",
        "LPOP l",
        "HDEL h g",
        "SREM set 1",
        "ZPOPMIN z",
    ] {
        caller.call(command).await;
    }
    assert!(caller.mock.state().used_memory() > 1000);
    for command in [
        "DEL s",
        "LTRIM l 5 1",
        "HDEL h f",
        "SPOP set 5",
        "ZREMRANGEBYRANK z 0 -1",
        "XTRIM x MAXLEN 0",
        "DEL x",
    ] {
        caller.call(command).await;
    }
    assert_eq!(caller.call("DBSIZE").await, Reply::Integer(0));
    assert_eq!(caller.mock.state().used_memory(), 0);
}

/// A failure of memory would end the process, so these must be refused before it is asked for.
#[tokio::test]
async fn a_short_command_cannot_ask_for_much_memory() {
    let mut caller = caller();
    caller.call("CONFIG SET proto-max-bulk-len 9000000000000000000").await;
    for command in ["SETRANGE k 100000000000000 x", "SETBIT k 800000000000000 1"] {
        assert!(matches!(caller.call(command).await, Reply::Error(_)), "{command}");
    }
    caller.call("CONFIG SET maxmemory 1mb").await;
    assert_eq!(caller.call("SET k 0123456789").await, Reply::OK);
    for command in ["SETRANGE k 2000000 x", "SETBIT k 16000000 1"] {
        let Reply::Error(error) = caller.call(command).await else { panic!("{command}") };
        assert!(error.starts_with("OOM"), "{command}: {error:?}");
    }
    assert_eq!(caller.call("GET k").await, Reply::bulk("0123456789"));
    caller.call("SETRANGE k 600000 x").await;
    let Reply::Error(error) = caller.call("BITOP OR copy k").await else { panic!("BITOP") };
    assert!(error.starts_with("OOM"), "{error:?}");
}

#[tokio::test]
async fn values_asked_for_again_and_again_in_one_command_are_limited() {
    let mut caller = caller();
    caller.call(&format!("RPUSH list{}", " 1".repeat(2000))).await;
    let Reply::Error(error) = caller.call(&format!("SORT list{}", " GET #".repeat(1000))).await else {
        panic!("SORT")
    };
    assert!(error.contains("1048576"), "{error:?}");
    assert_eq!(caller.call(&format!("SORT list LIMIT 0 1 {}", ["GET #"; 3].join(" "))).await, {
        Reply::Array(vec![Reply::bulk("1"); 3])
    });

    caller.call("XGROUP CREATE s g 0 MKSTREAM").await;
    for _ in 0..100 {
        caller.call(&format!("XADD s *{}", " f v".repeat(100))).await;
    }
    caller.call("XREADGROUP GROUP g c STREAMS s >").await;
    for command in ["XREAD", "XREADGROUP GROUP g c"] {
        let command = format!("{command} STREAMS{}{}", " s".repeat(100), " 0".repeat(100));
        let Reply::Error(error) = caller.call(&command).await else { panic!("{command}") };
        assert!(error.contains("1048576"), "{error:?}");
    }
}

#[tokio::test]
async fn what_bitop_combines_is_limited() {
    let mut caller = caller();
    caller.call("SETRANGE k 10000000 x").await;
    let Reply::Error(error) = caller.call(&format!("BITOP AND to{}", " k".repeat(200))).await else {
        panic!("BITOP")
    };
    assert!(error.contains("1 GiB"), "{error:?}");
}

#[tokio::test]
async fn bits_are_counted_and_found_at_any_offset() {
    let mut caller = caller();
    let set = [0, 9, 16, 17, 40, 63, 70];
    for bit in set {
        caller.call(&format!("SETBIT k {bit} 1")).await;
    }
    for start in 0..72 {
        for end in start..72 {
            let within = |bit: &i64| (start..=end).contains(bit);
            let expected = set.iter().copied().filter(within).collect::<Vec<i64>>();
            let count = caller.call(&format!("BITCOUNT k {start} {end} BIT")).await;
            assert_eq!(count, Reply::Integer(expected.len() as i64), "{start} {end}");
            let first = caller.call(&format!("BITPOS k 1 {start} {end} BIT")).await;
            assert_eq!(first, Reply::Integer(*expected.first().unwrap_or(&-1)), "{start} {end}");
            let unset = (start..=end).find(|bit| !set.contains(bit));
            let first = caller.call(&format!("BITPOS k 0 {start} {end} BIT")).await;
            assert_eq!(first, Reply::Integer(unset.unwrap_or(-1)), "{start} {end}");
        }
    }
}

#[tokio::test]
async fn a_function_may_name_an_argument_that_cannot_be() {
    let mut caller = caller();
    let code = "#!lua name=lib\nlocal function f(keys, args)\nreturn keys[-9223372036854775808]\nend\nserver.register_function('f', f)\n";
    let load = Command::new("FUNCTION", ["LOAD", code]);
    let loaded = caller.mock.call(&mut caller.peer, &mut caller.session, load).await;
    assert_eq!(loaded, Reply::bulk("lib"));
    assert_eq!(caller.call("FCALL f 1 k").await, Reply::Null);
}

#[tokio::test]
async fn swapping_databases_changes_watched_keys_under_both_numbers() {
    for (selected, swap) in [("0", "SWAPDB 0 1"), ("1", "SWAPDB 0 1")] {
        let mut caller = caller();
        caller.call("SET k v").await;
        caller.call(&format!("SELECT {selected}")).await;
        caller.call("WATCH k").await;
        assert_eq!(caller.call(swap).await, Reply::OK);
        caller.call("MULTI").await;
        assert_eq!(caller.call("EXEC").await, Reply::NullArray, "database {selected}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watched_key_that_expires_right_before_exec_ends_the_transaction() {
    let mut caller = caller();
    caller.call("SET k v PX 100").await;
    caller.call("WATCH k").await;
    caller.call("MULTI").await;
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(caller.call("EXEC").await, Reply::NullArray);
}

/// The killed one learns of it only in its next turn, which here comes after the push.
#[tokio::test]
async fn a_client_killed_while_it_waits_takes_nothing() {
    let mock = Arc::new(Mock::new());
    let mut victim = Caller::new(&mock);
    let mut killer = Caller::new(&mock);
    let waiting = tokio::spawn(async move {
        victim.call("BLPOP list 0").await;
        victim.call("LPOP list").await
    });
    while mock.state().waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(killer.call("CLIENT KILL ID 1").await, Reply::Integer(1));
    assert_eq!(killer.call("RPUSH list v").await, Reply::Integer(1));
    assert_eq!(waiting.await.unwrap(), Reply::Null);
    assert_eq!(killer.call("LLEN list").await, Reply::Integer(1));
}

#[tokio::test(start_paused = true)]
async fn a_save_is_remembered_and_begins_the_count_of_changes_anew() {
    let mut caller = caller();
    let persistence = |reply: Reply| match reply {
        Reply::Verbatim { text, .. } => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    };
    let Reply::Integer(start) = caller.call("LASTSAVE").await else { panic!("a number") };
    tokio::time::advance(Duration::from_secs(7)).await;
    caller.call("MSET k v l v").await;
    caller.call("DEL k").await;
    let info = persistence(caller.call("INFO persistence").await);
    assert!(info.contains("rdb_changes_since_last_save:3\r\n"), "{info}");
    assert_eq!(caller.call("LASTSAVE").await, Reply::Integer(start));
    assert_eq!(caller.call("BGSAVE").await, Reply::simple("Background saving started"));
    assert_eq!(caller.call("LASTSAVE").await, Reply::Integer(start + 7));
    let info = persistence(caller.call("INFO persistence").await);
    assert!(info.contains("rdb_changes_since_last_save:0\r\n") && info.contains("rdb_saves:1\r\n"), "{info}");

    caller.call("MULTI").await;
    caller.call("BGSAVE").await;
    // What Valkey says when it cannot fork at once; nobody waits for a turn here.
    assert_eq!(caller.call("EXEC").await, Reply::Array(vec![Reply::simple("Background saving scheduled")]));
}

#[tokio::test]
async fn what_a_connection_holds_counts_as_memory_until_it_lets_go() {
    let mock = Arc::new(Mock::new().maxmemory(20_000));
    let long = "x".repeat(30_000);
    let holds: [(&[&str], &str); 5] = [
        (&["MULTI", &format!("GET {long}")], "DISCARD"),
        (&[&format!("WATCH {long}")], "UNWATCH"),
        (&[&format!("SUBSCRIBE {long}")], "UNSUBSCRIBE"),
        (&[&format!("PSUBSCRIBE {long}")], "RESET"),
        (&["CLIENT TRACKING ON REDIRECT 1", &format!("GET {long}")], "FLUSHALL"),
    ];
    let mut neighbour = Caller::new(&mock);
    for (commands, lets_go) in holds {
        for leaves in [false, true] {
            let mut holder = Caller::new(&mock);
            // Beyond the limit once, as the last value that was stored may be.
            neighbour.call("CONFIG SET maxmemory 0").await;
            for command in commands {
                let reply = holder.call(command).await;
                assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
            }
            neighbour.call("CONFIG SET maxmemory 20000").await;
            let full = neighbour.call("SET k v").await;
            assert!(matches!(full, Reply::Error(_)), "{commands:.20?}");
            assert!(matches!(neighbour.call("WATCH k").await, Reply::Error(_)));
            match leaves {
                true => drop(holder),
                false => drop(holder.call(lets_go).await),
            }
            assert_eq!(neighbour.call("SET k v").await, Reply::OK, "{lets_go}, leaves: {leaves}");
            let state = mock.state();
            assert_eq!(state.used_memory(), state.stored(), "{lets_go}, leaves: {leaves}");
        }
    }
}

#[tokio::test]
async fn keys_read_by_those_who_have_gone_are_not_remembered() {
    let mock = Arc::new(Mock::new());
    let (mut stays, mut goes) = (Caller::new(&mock), Caller::new(&mock));
    for caller in [&mut stays, &mut goes] {
        caller.call("HELLO 3").await;
        caller.call("CLIENT TRACKING ON").await;
    }
    stays.call("GET both").await;
    goes.call("MGET both own").await;
    assert_eq!(mock.state().tracking.keys(), 2);
    drop(goes);
    assert_eq!(mock.state().tracking.keys(), 1);
    stays.call("DEL both").await;
    stays.call("SET both v").await;
    let state = mock.state();
    assert_eq!((state.tracking.keys(), state.tracking.bytes()), (0, 0));
}
