//! Memory of a client that its server writes values into and reads them out of (spec, area D): no byte of them is copied at the
//! client.
//!
//! [`memory`] is what the application has of it, [`ranges`] knows who has which bytes, in [`piece`]s; [`exposed`] is what the peer is given. The transfers are the
//! [stream's](crate::Stream::direct).

mod exposed;
mod memory;
mod piece;
mod ranges;

pub use self::exposed::{Exposed, RemoteRange};
pub use self::memory::{DirectMemory, DirectMemoryError, DirectSlice};
pub use self::piece::ForeignBytes;

pub(crate) use self::exposed::LeftBehind;
pub(crate) use self::memory::{LentSlice, WeakDirectMemory};
pub(crate) use self::ranges::Cut;
