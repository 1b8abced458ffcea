//! What depends on time, on a clock that the test moves.

use std::time::Duration;

use super::*;
use crate::handler::Transport;

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
