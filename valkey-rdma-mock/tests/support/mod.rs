//! What the tests share.

#![allow(dead_code, reason = "each test file is a crate and none needs all of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod wire;

use valkey_rdma_mock::Mock;
use valkey_rdma_server::{Limits, Server};
pub(crate) use wire::*;

pub(crate) async fn mock() -> Server {
    start(Mock::new(), &Limits::default()).await
}
