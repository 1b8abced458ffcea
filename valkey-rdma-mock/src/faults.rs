//! Scripted misbehaviour: a device that lies.
//!
//! [`Faults`] wraps a device's endpoints and changes what passes through them: a Register comes late or never, an
//! immediate is wrong, a message has 31 bytes. Server and client above it stay as they are, which is the point: their
//! peers get to see what a broken implementation would send.
//!
//! ```
//! use valkey_rdma_mock::faults::Faults;
//! use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
//! use valkey_rdma_transport::{Listener, device};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! // The third reply of every connection is announced with an immediate beyond any window.
//! let faults: Faults = "imm-over@3".parse()?;
//! let config = TransportConfig::default();
//! let addr = "127.0.0.1:0".parse()?;
//! let honest = device::listen(DeviceKind::Emulated, addr, &config.device_options()).await?;
//! let listener = Listener::over(faults.listener(honest), &config);
//! let server = Server::builder(Mock::new()).listener(listener).start().await?;
//! # server.shutdown().await;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # The text of a script
//!
//! `NAME[=VALUE][@WHEN]`, several separated by commas, and `seed=N` among them if chance is to repeat itself. [`help`]
//! lists the names. Each name has an occasion, such as "a Register is sent"; WHEN says at which ones it happens, counted
//! per connection from 1:
//!
//! | WHEN | at |
//! |---|---|
//! | `3` | the third |
//! | `3..` | the third and all later ones |
//! | `1/50` | each, with a chance of one in fifty |
//! | none | every one |
//!
//! # Adding a fault
//!
//! A variant of [`Fault`] and a row of the table beside it. Its effect where its occasion comes up (`endpoint`, `listener`),
//! counted by `script.happened`.

mod endpoint;
mod fault;
mod listener;
mod script;
mod spec;
mod wire;
mod wrap;

pub use fault::Fault;
pub use spec::{Faults, SpecError, help};
