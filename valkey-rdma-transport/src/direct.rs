//! Memory of a client that its server writes values into and reads them out of (spec, area D): no byte of them is copied at the
//! client.
//!
//! [`memory`] is what the application has of it, [`piece`] a range of that, [`exposed`] what the peer is given. The transfers are the
//! [stream's](crate::Stream::direct).

mod exposed;
mod memory;
mod piece;

pub use self::exposed::{Exposed, RemoteRange};
pub use self::memory::{DirectMemory, DirectMemoryError, DirectSlice};
pub use self::piece::ForeignBytes;

pub(crate) use self::exposed::LeftBehind;
pub(crate) use self::memory::{Cut, LentSlice, WeakDirectMemory};
