//! HSCAN, SSCAN and ZSCAN as batches and as streams.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures_util::TryStreamExt;
use valkey_rdma_client::{Error, Pipeline, cmd};

use crate::target::target;

/// More than servers return in one batch.
const ELEMENTS: usize = 700;

fn name(number: usize) -> String {
    format!("{}:{number}", if number.is_multiple_of(2) { "even" } else { "odd" })
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn send(pipeline: Pipeline) {
    assert!(pipeline.send().await.expect("sent").iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_hash_is_scanned_with_and_without_its_values() {
    let target = target().await;
    let (client, key) = (target.client().await, target.key("hash"));
    let numbers = 0..ELEMENTS;
    send(numbers.clone().fold(client.pipeline(), |all, n| all.command(cmd!["HSET", &key, name(n), n]))).await;
    let expected: BTreeMap<_, _> = numbers.map(|number| (name(number), number.to_string())).collect();
    let all: Vec<_> = client.scan_hash(&key).elements().try_collect().await.expect("all fields");
    let all: BTreeMap<_, _> = all.iter().map(|(field, value)| (text(field), text(value))).collect();
    assert_eq!(all, expected);
    let fields: Vec<_> =
        client.scan_hash(&key).matching("odd:*").fields().elements().try_collect().await.expect("odd fields");
    let fields: BTreeSet<_> = fields.iter().map(text).collect();
    assert!(fields.iter().eq(expected.keys().filter(|field| field.starts_with("odd"))), "{fields:?}");
}

#[tokio::test]
async fn a_set_is_scanned_batch_by_batch() {
    let target = target().await;
    let (client, key) = (target.client().await, target.key("set"));
    send((0..ELEMENTS).fold(client.pipeline(), |all, n| all.command(cmd!["SADD", &key, name(n)]))).await;
    let (mut scan, mut batches, mut found) = (client.scan_set(&key).count(50), 0, BTreeSet::new());
    while let Some(batch) = scan.next_batch().await.expect("a batch") {
        batches += 1;
        found.extend(batch.iter().map(text));
    }
    assert_eq!(found, (0..ELEMENTS).map(name).collect());
    assert!((2..=ELEMENTS).contains(&batches), "{batches} batches");
    assert_eq!(scan.next_batch().await.expect("the end stays"), None);
}

#[tokio::test]
async fn a_sorted_set_is_scanned_with_its_scores() {
    let target = target().await;
    let (client, key) = (target.client().await, target.key("sorted"));
    let score = |number: usize| number as f64 / 4.0;
    let added =
        (0..ELEMENTS).fold(client.pipeline(), |all, n| all.command(cmd!["ZADD", &key, score(n), name(n)]));
    send(added.command(cmd!["ZADD", &key, "-inf", "least"])).await;
    let all: Vec<(Bytes, f64)> =
        client.scan_sorted_set(&key).elements().try_collect().await.expect("all members");
    let all: BTreeMap<_, _> = all.iter().map(|(member, score)| (text(member), score.to_string())).collect();
    let expected = (0..ELEMENTS).map(|number| (name(number), score(number).to_string()));
    assert_eq!(all, expected.chain([("least".to_owned(), f64::NEG_INFINITY.to_string())]).collect());
}

#[tokio::test]
async fn keys_that_do_not_exist_are_empty_and_others_are_errors() {
    let target = target().await;
    let (client, key) = (target.client().await, target.key("text"));
    client.command(["SET", &key, "x"]).await.expect("set");
    let mut none = client.scan_set(target.key("none"));
    assert_eq!(none.next_batch().await.expect("empty"), Some(Vec::new()));
    assert_eq!(none.next_batch().await.expect("the end"), None);
    let mut wrong = client.scan_sorted_set(&key);
    for _ in 0..2 {
        let error = wrong.next_batch().await.expect_err("a string");
        assert!(matches!(&error, Error::Server(error) if error.code == "WRONGTYPE"), "{error:?}");
    }
}
