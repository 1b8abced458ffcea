//! What the tests share.

#![allow(dead_code, reason = "each test file is a crate and none needs all of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod store;
mod wire;

pub(crate) use store::Store;
use valkey_rdma_server::{Limits, Server};
pub(crate) use wire::*;

pub(crate) async fn store() -> Server {
    start(Store::default(), &Limits::default()).await
}
