//! What single steps cost, without a network: encoding, the protocol core, the emulated device, the client on it.
//!
//! ```text
//! cargo bench -p valkey-rdma-peers --no-default-features
//! ```

mod core_step;
mod requests;

use criterion::{criterion_group, criterion_main};

criterion_group!(micro, requests::encode, core_step::exchange, requests::round_trip, requests::client);
criterion_main!(micro);
