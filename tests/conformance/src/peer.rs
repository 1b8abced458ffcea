//! A peer without rules: it works on the [device contract](valkey_rdma_transport::device), below the protocol, so it can
//! send anything.
//!
//! [`Peer`] is raw: one call, one work request. [`Session`] keeps the rules on top of it, for those parts of a test that
//! are not the stimulus; its [`peer`](Session::peer) breaks them whenever that is wanted.

mod evidence;
mod finding;
mod options;
mod passive;
mod raw;
mod session;

pub use evidence::Transcript;
pub(crate) use evidence::describe_message;
pub use finding::Finding;
pub use options::PeerOptions;
pub use passive::Passive;
pub use raw::{Peer, Seen};
pub(crate) use session::{OWN_SELECTOR, expect_reply, reserved};
pub use session::{Session, request};
