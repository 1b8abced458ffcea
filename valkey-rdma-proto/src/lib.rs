//! The wire protocol of Valkey over RDMA and its connection state machine, without I/O.
//!
//! Valkey 8.0 and later can carry RESP over RDMA. Each side offers the other a window of its memory. The other side
//! writes bytes into it with RDMA WRITE and announces their number. When the window is full, its owner offers another
//! one. This crate implements that protocol and nothing else: it opens no socket, reads no clock, holds no pointer and
//! copies no payload. Its inputs are `handle_*` calls, its outputs `poll_*` calls.
//!
//! # The run loop
//!
//! A transport owns the queue pair and the registered memory, and drives the connection:
//!
//! ```
//! use valkey_rdma_proto::work::{Region, RegionId};
//! use valkey_rdma_proto::{Config, Connection, Event, Instant, Resources, Role, Work};
//! use core::time::Duration;
//!
//! // The transport registered these regions with its device.
//! let rx = [Region { id: RegionId(2), addr: 0x7000_0000, rkey: 0x1234, len: 1 << 20 }];
//! let mut connection = Connection::new(
//!     Role::Client,
//!     Config::new(Role::Client),
//!     Resources {
//!         control: RegionId(0),
//!         send_buffer: RegionId(1),
//!         send_buffer_len: 1 << 20,
//!         rx: &rx,
//!         receives: 1024,
//!         send_depth: 1024,
//!         max_message: 1 << 30,
//!     },
//! );
//!
//! let clock = || Instant::from_origin(Duration::from_millis(1)); // the transport's clock
//!
//! // Before connecting: post the receives.
//! let mut receives = 0;
//! while let Some(work) = connection.poll_work(clock) {
//!     assert!(matches!(work, Work::Receive(_)));
//!     receives += 1;
//! }
//! assert_eq!(receives, 1024);
//!
//! // The device says that the queue pair is connected. The first message offers our window.
//! connection.handle_established(clock());
//! let Some(Work::Message(request, bytes)) = connection.poll_work(clock) else { panic!("a Register") };
//! assert_eq!(bytes[..2], [0, 3]);
//!
//! // ... copy `bytes` to `request.local`, post `request`, wait for completions, pass each to `handle_completion`,
//! // and poll again. `poll_timeout` returns when to call `handle_timeout`.
//! assert!(connection.poll_timeout().is_some(), "the peer's Register is due");
//! ```
//!
//! # Features
//!
//! Two sides of this crate can agree on [features](FeatureSet) that Valkey does not have, before the first byte. A server
//! names in [`Config::offers`] what it offers, a client in [`Config::wants`] and [`Config::requires`] what it asks for.
//! [`Event::Agreed`] and [`Connection::agreed`] say what both use. By default nothing is asked, and no message is sent.
//!
//! # Viewpoint
//!
//! `tx` and `rx` are seen from this side: the peer's RX buffer is our `tx` window. Integers are in host order everywhere
//! except in [`wire`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod connection;
mod error;
mod features;
mod time;
pub mod wire;
pub mod work;

pub use config::{Config, Role};
pub use connection::{
    Connection, Counters, DeliveryReport, Direction, Event, Resources, Transfer, Work, control_region_len,
};
pub use error::{CloseReason, ProtocolError};
pub use features::{FEATURE_SELECTOR, FeatureSet};
pub use time::Instant;

/// The example of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
