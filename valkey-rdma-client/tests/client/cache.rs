//! Values kept on this side, and their invalidation.

use bytes::Bytes;
use valkey_rdma_client::{Cache, Config, Error, Invalidation};

use crate::target::target;

#[tokio::test]
async fn a_value_is_asked_for_once_until_it_changes() {
    let target = target().await;
    let cache = Cache::connect(target.url.as_str(), &Config::default(), 100).await.expect("connected");
    let writer = target.client().await;
    let mut told = cache.invalidations();
    let key = target.key("price");
    writer.command(["SET", &key, "1"]).await.expect("set");
    for _ in 0..3 {
        assert_eq!(cache.get(&key).await.expect("a value"), Some(Bytes::from_static(b"1")));
    }
    assert_eq!((cache.stats().hits, cache.stats().misses), (2, 1));

    writer.command(["SET", &key, "2"]).await.expect("set");
    assert_eq!(told.next().await, Some(Invalidation::Keys(vec![Bytes::from(key.clone())])));
    assert_eq!(cache.get(&key).await.expect("a value"), Some(Bytes::from_static(b"2")));
    assert_eq!(cache.stats().misses, 2);

    // Of its own writes the server tells after their replies.
    cache.client().command(["SET", &key, "3"]).await.expect("set");
    assert_eq!(told.next().await, Some(Invalidation::Keys(vec![Bytes::from(key.clone())])));
    assert_eq!(cache.get(&key).await.expect("a value"), Some(Bytes::from_static(b"3")));
    for n in 0..100 {
        cache.client().command(["SET", &key, &n.to_string()]).await.expect("set");
        cache.forget(&key);
        assert_eq!(cache.get(&key).await.expect("a value"), Some(Bytes::from(n.to_string())));
    }
}

/// A dedicated connection to which the server has sent something unasked is closed instead of being used again.
#[tokio::test]
async fn dedicated_connections_get_no_invalidations() {
    let target = target().await;
    let cache = Cache::connect(target.url.as_str(), &Config::default(), 100).await.expect("connected");
    let writer = target.client().await;
    let key = target.key("k");
    writer.command(["SET", &key, "1"]).await.expect("set");
    let mut ids = Vec::new();
    for value in ["2", "3"] {
        assert_eq!(cache.client().get_into(&key, &mut [0; 8]).await.expect("a value"), Some(1));
        ids.push(cache.client().blocking_query::<i64>(["CLIENT", "ID"]).await.expect("a number"));
        writer.command(["SET", &key, value]).await.expect("set");
    }
    assert_eq!(ids[0], ids[1], "the same connection");
}

#[tokio::test]
async fn a_lost_connection_forgets_everything() {
    let target = target().await;
    let cache = Cache::connect(target.url.as_str(), &Config::default(), 100).await.expect("connected");
    let other = target.client().await;
    let key = target.key("k");
    assert_eq!(cache.get(&key).await.expect("a reply"), None);
    assert_eq!(cache.stats().entries, 1);
    let mut told = cache.invalidations();
    let id: i64 =
        cache.client().command(["CLIENT", "ID"]).await.expect("a reply").convert().expect("a number");
    other.command(["CLIENT", "KILL", "ID", &id.to_string()]).await.expect("killed");
    assert_eq!(told.next().await, Some(Invalidation::All));
    assert_eq!(cache.stats().entries, 0);

    // Tracking is on again.
    assert_eq!(cache.get(&key).await.expect("a reply"), None);
    other.command(["SET", &key, "new"]).await.expect("set");
    assert_eq!(told.next().await, Some(Invalidation::Keys(vec![Bytes::from(key.clone())])));
    assert_eq!(cache.get(&key).await.expect("a reply"), Some(Bytes::from_static(b"new")));
}

/// Nobody would tell of changes any more.
#[tokio::test]
async fn nothing_is_kept_once_the_connection_is_gone_for_good() {
    let target = target().await;
    let other = target.client().await;
    let key = target.key("k");
    let config = Config::default().reconnect(None);
    for kill in [true, false] {
        other.command(["SET", &key, "old"]).await.expect("set");
        let cache = Cache::connect(target.url.as_str(), &config, 100).await.expect("connected");
        let mut told = cache.invalidations();
        assert_eq!(cache.get(&key).await.expect("a value"), Some(Bytes::from_static(b"old")));
        if kill {
            let id = cache.client().command(["CLIENT", "ID"]).await.expect("a reply");
            let id: i64 = id.convert().expect("a number");
            other.command(["CLIENT", "KILL", "ID", &id.to_string()]).await.expect("killed");
        } else {
            cache.client().close().await;
        }
        assert_eq!(told.next().await, Some(Invalidation::All));
        assert_eq!(cache.stats().entries, 0);
        let error = cache.get(&key).await.expect_err("nobody can say");
        assert!(matches!(error, Error::Lost(_)), "{error:?}");
    }
}

#[test]
fn a_runtime_that_is_gone_takes_the_values_with_it() {
    let servers = tokio::runtime::Runtime::new().expect("a runtime");
    let target = servers.block_on(target());
    let short = tokio::runtime::Runtime::new().expect("a runtime");
    let key = target.key("k");
    let cache = short.block_on(async {
        let cache = Cache::connect(target.url.as_str(), &Config::default(), 100).await.expect("connected");
        cache.client().command(["SET", &key, "old"]).await.expect("set");
        assert!(cache.get(&key).await.expect("a value").is_some());
        cache
    });
    drop(short);
    let error = servers.block_on(cache.get(&key)).expect_err("nobody can say");
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    servers.block_on(async { drop(target) });
}

#[tokio::test]
async fn it_keeps_no_more_than_it_may() {
    let target = target().await;
    let cache = Cache::connect(target.url.as_str(), &Config::default(), 10).await.expect("connected");
    for n in 0..50 {
        cache.get(target.key(&n.to_string())).await.expect("a reply");
    }
    assert_eq!(cache.stats().entries, 10);
}

#[tokio::test]
async fn a_cache_needs_resp3() {
    let target = target().await;
    let url = format!("{}?protocol=resp2", target.url);
    let refused = Cache::connect(url.as_str(), &Config::default(), 10).await.expect_err("refused");
    assert!(refused.to_string().contains("RESP3"), "{refused}");
}

#[tokio::test]
async fn options_for_clusters_are_refused_for_a_cache_too() {
    let target = target().await;
    let url = format!("{}?rdma_port=%2B100", target.url);
    let refused = Cache::connect(url.as_str(), &Config::default(), 10).await.expect_err("refused");
    assert!(refused.to_string().contains("rdma_port"), "{refused}");
}
