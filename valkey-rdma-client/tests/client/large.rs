//! Large values in and out.

use valkey_rdma_client::{Command, Error, Fate};

use crate::target::target;

/// 24 MiB and a bit: more than all windows.
const LEN: usize = (24 << 20) + 12_345;

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[tokio::test]
async fn a_value_is_read_straight_into_the_callers_memory() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("big");
    let value = pattern(LEN);
    client.execute(Command::new("SET").arg(&key).arg_bytes(value.clone().into())).await.expect("set");
    let mut buffer = vec![0; LEN + 1];
    assert_eq!(client.get_into(&key, &mut buffer).await.expect("get"), Some(LEN));
    assert!(buffer[..LEN] == value[..]);
    assert_eq!(client.get_into(target.key("none"), &mut buffer).await.expect("get"), None);

    let error = client.get_into(&key, &mut buffer[..100]).await.expect_err("does not fit");
    assert!(matches!(error, Error::Unexpected(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        format!("expected a value that fits into the buffer, got a string of {LEN} bytes")
    );
    client.command(["DEL", &key]).await.expect("deleted");
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
    assert!(matches!(error, Error::Unexpected(_) | Error::Server(_)), "{error:?}");
    let error = client.stream_reply(Command::new("NOSUCHCOMMAND")).await.expect_err("unknown");
    assert!(matches!(error, Error::Server(_)), "{error:?}");
}
