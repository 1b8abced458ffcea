//! Servers that break the rules: an error for the call, the end of the connection, and no byte outside of the slices.

use std::sync::atomic::Ordering;

use valkey_rdma_client::{Error, Fate};

use super::server::{Conduct, Server};
use super::{bounded, connect, filled, free_again, memory, until};

/// A get that fails, and then one of a fair server on the next connection. `conduct` is that of the first.
async fn fails_and_recovers(conduct: Conduct) -> Error {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let memory = memory(300);
    let guards = [filled(&memory, 0..100, 0xee), filled(&memory, 200..300, 0xee)];
    server.set("k", vec![7; 100]);
    server.conduct(conduct);
    let error = bounded(client.get_direct("k", [filled(&memory, 100..200, 1)])).await.expect_err("a lie");
    drop(free_again(&memory, 100..200).await);
    server.conduct(Conduct::Fair);
    let placed = bounded(client.get_direct("k", [filled(&memory, 100..200, 1)])).await.expect("placed");
    assert!(placed.slices[0].iter().all(|byte| *byte == 7));
    assert!(guards.iter().all(|guard| guard.iter().all(|byte| *byte == 0xee)));
    assert_eq!(server.accepted(), 3, "the connection of the lie is not used again");
    error
}

#[tokio::test]
async fn a_reply_that_makes_no_sense_ends_the_connection() {
    for (reply, got) in [
        ("*2\r\n:101\r\n:7\r\n", "expected a value that fits, got a length of 101 bytes for slices of 100"),
        ("+OK\r\n", "expected"),
        ("$3\r\nabc\r\n", "expected"),
        ("*1\r\n:100\r\n", "expected"),
        ("*2\r\n:-1\r\n:7\r\n", "expected"),
    ] {
        let error = fails_and_recovers(Conduct::Says(reply)).await;
        assert!(matches!(error, Error::Unexpected(_)) && error.fate() == Fate::Answered, "{error:?}");
        assert!(error.to_string().starts_with("BLOB.GET: ") && error.to_string().contains(got), "{error}");
    }
}

/// The server may think that the memory is still its own.
#[tokio::test]
async fn memory_of_a_reply_that_makes_no_sense_is_the_programs_when_no_write_reaches_it_d5() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let memory = memory(100);
    for round in 1..=3 {
        server.conduct(Conduct::WritesAfter("*2\r\n:101\r\n:7\r\n"));
        let error = bounded(client.get_direct("k", [filled(&memory, 0..100, 1)])).await.expect_err("a lie");
        assert!(matches!(error, Error::Unexpected(_)), "{error:?}");
        let mut slice = free_again(&memory, 0..100).await;
        slice.fill(2);
        server.shared.may_write.notify_one();
        until(|| server.shared.wrote.load(Ordering::Relaxed) == round).await;
        assert!(slice.iter().all(|byte| *byte == 2));
    }
}

#[tokio::test]
async fn bytes_that_are_no_reply_end_the_connection() {
    let error = fails_and_recovers(Conduct::Says("?\r\n")).await;
    assert!(matches!(error, Error::Lost(_)) && error.fate() == Fate::MayHaveRun, "{error:?}");
}

#[tokio::test]
async fn a_reply_too_many_ends_the_connection() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let memory = memory(100);
    server.conduct(Conduct::Says("$-1\r\n$-1\r\n"));
    for n in 1..=5 {
        let outcome = bounded(client.get_direct("k", [free_again(&memory, 0..100).await])).await;
        // The one too many ends the connection before the next call is written to it, or while it is in flight.
        assert!(matches!(&outcome, Ok(_) | Err(Error::Lost(_))), "{n}: {outcome:?}");
    }
    assert!(server.accepted() > 2);
}

/// The client's device refuses it, and ends the connection (D-2).
#[tokio::test]
async fn a_wrong_key_ends_the_connection_d2() {
    let error = fails_and_recovers(Conduct::WrongKey).await;
    assert!(matches!(error, Error::Lost(_)) && error.fate() == Fate::MayHaveRun, "{error:?}");
}

#[tokio::test]
async fn a_connection_that_ends_half_way_is_an_error_d6() {
    let error = fails_and_recovers(Conduct::EndsHalfWay).await;
    assert!(matches!(error, Error::Lost(_)) && error.fate() == Fate::MayHaveRun, "{error:?}");
}
