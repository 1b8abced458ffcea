//! Each example runs alone, on a mock, and prints what it promises.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use valkey_rdma_mock::MockServer;

/// The folder of the programs that cargo has built beside this test.
fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("this test is a file");
    test.ancestors().nth(2).expect("in target/PROFILE/deps").join("examples")
}

fn prints(name: &str, lines: &[&str]) {
    let program = folder().join(name);
    let run = Command::new(&program).stdin(Stdio::null()).output();
    let run = run.unwrap_or_else(|error| {
        panic!(
            "{}: {error}; `cargo test` builds the examples, `--test examples` alone does not",
            program.display()
        )
    });
    let (output, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{name}: {}\n{output}{errors}", run.status);
    let printed: Vec<_> = output.lines().collect();
    let as_expected = printed.len() == lines.len()
        && lines.iter().zip(&printed).all(|(expected, line)| match expected.strip_suffix("...") {
            Some(begin) => line.starts_with(begin),
            None => line == expected,
        });
    assert!(as_expected, "{name} prints\n{printed:#?}\ninstead of\n{lines:#?}");
}

/// Before, it waited for a loss that only the mock causes.
#[test]
fn an_example_that_needs_its_mock_refuses_another_server() {
    let program = folder().join("events_and_metrics");
    let run = Command::new(program).arg("valkey://h").stdin(Stdio::null()).output().expect("starts");
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && errors.contains("takes no URL"), "{errors}");
}

/// Before, it waited for an event that does not come.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_example_of_a_fallback_ends_where_there_is_none() {
    let mock = MockServer::start().await;
    let program = folder().join("fallback");
    let run = Command::new(program).arg(mock.tcp_url()).stdin(Stdio::null()).output().expect("starts");
    let output = String::from_utf8_lossy(&run.stdout);
    assert_eq!(output, "connected over tcp\nas asked for\n");
}

#[test]
fn the_first_example_says_once_why_it_does_not_connect() {
    let url = "valkey://127.0.0.1:1";
    let run = Command::new(folder().join("hello")).arg(url).stdin(Stdio::null()).output().expect("starts");
    let errors = String::from_utf8_lossy(&run.stderr).to_lowercase();
    assert!(!run.status.success(), "{errors}");
    assert_eq!(errors.matches("connection refused").count(), 1, "{errors}");
}

macro_rules! examples {
    ($($name:ident: $lines:expr;)*) => { $(
        #[test]
        fn $name() {
            prints(stringify!($name), &$lines);
        }
    )* };
}

examples! {
    get_set: ["connected over emulated", "greeting: hello", "no such key: None"];
    typed: [
        "fields: 2",
        r#"user: {"age": "36", "name": "Ada"}"#,
        "age: 36.5",
        r#"values: [Some("Ada"), None]"#,
        "error: HGET: expected an integer of 64 bits, got a string of 3 bytes",
    ];
    pipeline: [
        "OK, 3 bytes, Ada",
        "sum: Some(1)",
        "sum: Some(3)",
        "sum: Some(6)",
        "refused: ERR value is not an integer or out of range",
    ];
    transaction: ["accounts: 90 and 10", "the stock changed, again", "stock: 10"];
    script: ["counter: 5", "counter: 12", "the mock loaded it 1 times"];
    pubsub: ["news: hello", "weather.oslo: snow", "news: bye"];
    blocking_pop: ["wash from jobs", "dry from jobs", "jobs done: 2"];
    large_values: [
        "sent without a copy: true",
        "read into our memory: Some(4194304), right: true",
        "read in pieces: true",
    ];
    client_side_caching: [
        r#"price: Some(b"10")"#,
        r#"price: Some(b"10")"#,
        r#"price: Some(b"10")"#,
        "asked the server 1 times, answered here 2 times",
        r#"Some(Keys([b"price"]))"#,
        r#"price: Some(b"12")"#,
    ];
    cluster: ["values: [1, 2, 3]", "keys on all nodes: 100", "after slots have moved: 2, 3", "nodes: 3"];
    fallback: ["connected over tcp", "instead of RDMA, because: ...", "an alert for connection 0"];
    events_and_metrics: [
        "the command may have run",
        "connected over emulated",
        "lost: the peer closed it",
        "connected again",
        "commands: 2, reconnects: 1",
        "shared connection, connected",
        "doorbells since it was connected: true",
    ];
    custom_server: [
        "visits: 1",
        "visits: 5",
        "ERR wrong number of arguments for 'visit' command",
        "ERR value is not an integer or out of range",
        "ERR unknown command 'LEAVE', with args beginning with: ",
    ];
    test_with_mock: [
        "tried again 2 times",
        "lost, the command may have run",
        "the mock received 4 calls",
        "greeting: hello",
        r#"in the mock: Some(b"hello!")"#,
    ];
    byte_stream: ["+OK", ":5"];
}

/// Needs cargo feature `redis`.
#[cfg(feature = "redis")]
#[test]
fn redis_commands() {
    prints("redis_commands", &["name: Ada", "visits: 2, fields: 1"]);
}
