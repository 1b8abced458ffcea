//! Listeners: what becomes of them when another process wants the same address, and at a reload.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use valkey_rdma_gateway::{Activation, Gateway, Limits, Listen, Share};
use valkey_rdma_mock::Mock;

use crate::support::{Client, config, mock_with, socket_path, start};

fn inode(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).unwrap().ino()
}

#[tokio::test]
async fn a_gateway_that_ends_leaves_the_socket_of_its_successor() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let config = config(&url, Share::Auto, Limits::default());
    let old = start(&config).await;
    std::fs::remove_file(&old.unix).unwrap();
    let new = start(&config).await;
    old.gateway.shutdown().await;
    assert_eq!(new.client().await.say("PING").await, "PONG");
    new.gateway.shutdown().await;
    assert!(!new.unix.exists(), "it removes its own");
}

#[tokio::test]
async fn a_reload_binds_a_socket_again_whose_file_was_removed() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let config = config(&url, Share::Auto, Limits::default());
    let mut running = start(&config).await;
    let (listening, bound) = (running.gateway.listening(), inode(&running.unix));
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    assert_eq!(inode(&running.unix), bound, "its own file stays");
    // The client comes by the new name of the file.
    let renamed = socket_path();
    std::fs::rename(&running.unix, &renamed).unwrap();
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    assert_eq!(running.client().await.say("PING").await, "PONG");
    let other_name = tokio::net::UnixStream::connect(&renamed).await.unwrap();
    assert_eq!(Client::new(other_name).say("PING").await, "PONG");
    assert_eq!(running.gateway.listening().len(), listening.len());
    running.gateway.shutdown().await;
    assert!(!running.unix.exists(), "the new socket is removed");
    std::fs::remove_file(&renamed).unwrap();
}

#[tokio::test]
async fn a_reload_leaves_a_socket_that_another_process_has_replaced() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let config = config(&url, Share::Auto, Limits::default());
    let mut old = start(&config).await;
    std::fs::remove_file(&old.unix).unwrap();
    let new = start(&config).await;
    let served = inode(&new.unix);
    old.gateway.reload(&config, &Activation::default()).await.expect("the rest is taken over");
    assert_eq!(inode(&new.unix), served);
    drop(old);
    assert_eq!(new.client().await.say("PING").await, "PONG");
}

#[tokio::test]
async fn what_is_in_the_way_of_a_socket_is_named() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let config = config(&url, Share::Auto, Limits::default());
    let path = match &config.routes[0].listen[0] {
        Listen::Unix(path) => path.clone(),
        other => panic!("{other}"),
    };
    let refused = async || match Gateway::start(&config, &Activation::default()).await {
        Ok(_) => panic!("it has started"),
        Err(error) => error.to_string(),
    };
    let error = |what: &str| format!("cannot listen on unix:{}: {what}", path.display());

    std::fs::write(&path, "").unwrap();
    assert_eq!(refused().await, error("a file is there, not a socket: remove it, or use another path"));
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/nowhere", &path).unwrap();
    assert!(refused().await.starts_with(&error("a symbolic link is there, not a socket")));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(refused().await.starts_with(&error("a directory is there, not a socket")));
    std::fs::remove_dir(&path).unwrap();

    let running = start(&config).await;
    assert_eq!(refused().await, error("another process listens there: stop it, or use another path"));
    drop(running);
}

#[tokio::test]
async fn a_reload_to_an_address_that_overlaps_names_the_own_one() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let mut before = config(&url, Share::Auto, Limits::default());
    before.metrics = Some("127.0.0.1:0".parse().unwrap());
    let mut running = start(&before).await;
    let mut metrics = running.gateway.metrics_addr().unwrap();
    let error = |address: &str, own: &str| {
        format!(
            "cannot listen on {address}: Address already in use (os error 98): this gateway uses {own} itself, and such a change needs a \
             restart"
        )
    };

    let mut after = before.clone();
    let own = metrics.to_string();
    metrics.set_ip("0.0.0.0".parse().unwrap());
    after.metrics = Some(metrics);
    let refused = running.gateway.reload(&after, &Activation::default()).await.expect_err("in use");
    assert_eq!(refused.to_string(), error(&metrics.to_string(), &own));

    let mut after = before.clone();
    let wide = format!("tcp:0.0.0.0:{}", running.tcp.port());
    after.routes[0].listen[1] = wide.parse().unwrap();
    let refused = running.gateway.reload(&after, &Activation::default()).await.expect_err("in use");
    assert_eq!(refused.to_string(), error(&wide, &running.tcp.to_string()));
    assert_eq!(running.tcp_client().await.say("PING").await, "PONG");
}
