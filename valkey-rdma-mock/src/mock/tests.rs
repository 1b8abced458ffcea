//! What depends on time, on a clock that the test moves.

use std::time::Duration;

use super::*;
use tokio::time::Instant;
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
        self.mock.run(&mut self.peer, &mut self.session, command).await
    }
}

/// Waits until a command blocks, but not for ever.
async fn until_one_waits(mock: &Mock) {
    let waits = async {
        while mock.state().waiters.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waits).await.expect("the command blocks");
}

fn caller() -> Caller {
    Caller::new(&Arc::new(Mock::new()))
}

#[tokio::test(start_paused = true)]
async fn keys_are_removed_when_they_expire() {
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
async fn ttl_returns_the_time_left() {
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
async fn expire_applies_its_conditions() {
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
async fn debug_sleep_stalls_all_connections() {
    let mock = Arc::new(Mock::new());
    let start = Instant::now();
    let mut sleeper = Caller::new(&mock);
    let sleeping = tokio::spawn(async move { sleeper.call("DEBUG SLEEP 2.5").await });
    tokio::task::yield_now().await;
    assert_eq!(Caller::new(&mock).call("PING").await, Reply::simple("PONG"));
    assert_eq!(start.elapsed(), Duration::from_millis(2500));
    assert_eq!(sleeping.await.unwrap(), Reply::OK);

    // As in Valkey, it sleeps on when the client has gone.
    let mut sleeper = Caller::new(&mock);
    let sleeping = tokio::spawn(async move { sleeper.call("DEBUG SLEEP 2").await });
    tokio::task::yield_now().await;
    sleeping.abort();
    Caller::new(&mock).call("PING").await;
    assert_eq!(start.elapsed(), Duration::from_millis(4500));
}

#[tokio::test]
async fn small_values_do_not_pin_what_they_came_in() {
    let mut caller = caller();
    let read_buffer = Bytes::from(vec![b'x'; 30_000]);
    let command = Command::new("SET", [read_buffer.slice(..3), read_buffer.slice(3..6)]);
    caller.mock.run(&mut caller.peer, &mut caller.session, command).await;
    assert!(read_buffer.is_unique());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_its_time_is_up() {
    let mut caller = caller();
    for (command, on_timeout, millis) in [
        ("BLPOP l 2.5", Reply::NullArray, 2500),
        ("BZPOPMIN z 0.001", Reply::NullArray, 1),
        ("XREAD BLOCK 700 STREAMS x $", Reply::NullArray, 700),
    ] {
        let start = Instant::now();
        assert_eq!(caller.call(command).await, on_timeout, "{command}");
        assert_eq!(start.elapsed(), Duration::from_millis(millis), "{command}");
    }
    assert!(caller.mock.state().waiters.is_empty());
}

#[tokio::test]
async fn a_client_that_disconnects_while_it_waits_takes_nothing() {
    let mock = Arc::new(Mock::new());
    let mut waiter = Caller::new(&mock);
    let waiting = tokio::spawn(async move { waiter.call("BLPOP l 0").await });
    until_one_waits(&mock).await;
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

#[tokio::test(start_paused = true)]
async fn a_watched_key_that_expires_right_before_exec_ends_the_transaction() {
    let mut caller = caller();
    caller.call("SET k v PX 100").await;
    caller.call("WATCH k").await;
    caller.call("MULTI").await;
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(caller.call("EXEC").await, Reply::NullArray);
}

#[tokio::test(start_paused = true)]
async fn a_watched_key_that_has_expired_before_watch_does_not_end_the_transaction() {
    let mut caller = caller();
    caller.call("SET k v PX 100").await;
    tokio::time::advance(Duration::from_millis(100)).await;
    caller.call("WATCH k").await;
    caller.call("MULTI").await;
    caller.call("SET k new").await;
    assert_eq!(caller.call("EXEC").await, Reply::Array(vec![Reply::OK]));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_expired_before_it_is_read_is_tracked() {
    let mut caller = caller();
    caller.call("HELLO 3").await;
    caller.call("CLIENT TRACKING ON").await;
    caller.call("SET k v PX 100").await;
    tokio::time::advance(Duration::from_millis(100)).await;
    assert_eq!(caller.call("GET k").await, Reply::Null);
    assert_eq!(caller.mock.state().tracking.keys(), 1);
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
    until_one_waits(&mock).await;
    assert_eq!(killer.call("CLIENT KILL ID 1").await, Reply::Integer(1));
    assert_eq!(killer.call("RPUSH list v").await, Reply::Integer(1));
    assert_eq!(waiting.await.unwrap(), Reply::Null);
    assert_eq!(killer.call("LLEN list").await, Reply::Integer(1));
}

#[tokio::test]
async fn tracking_forgets_the_keys_of_a_disconnected_client() {
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
    assert_eq!(state.tracking.keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn debug_sleep_delays_timeouts_of_blocked_commands() {
    let mock = Arc::new(Mock::new());
    let start = Instant::now();
    let (mut waiter, mut sleeper) = (Caller::new(&mock), Caller::new(&mock));
    let waiting = tokio::spawn(async move { waiter.call("BLPOP l 1").await });
    tokio::task::yield_now().await;
    assert_eq!(sleeper.call("DEBUG SLEEP 2.5").await, Reply::OK);
    assert_eq!(waiting.await.unwrap(), Reply::NullArray);
    assert_eq!(start.elapsed(), Duration::from_millis(2500));
}
