//! The C functions of libibverbs, librdmacm and libc that we use, one thin wrapper each, in one file per kind of
//! object.
//!
//! `bindings` is what the headers declare, generated; `library` loads what it declares. The functions that the headers
//! have inline (posting, polling, arming) are called through the device's table of operations, as the headers do.
//!
//! A wrapper turns C's error convention (`NULL`, `-1` with `errno`, or the number itself, as the manual page of
//! each has it) into [`io::Result`], and keeps unions and nullable pointers inside. It owns nothing and decides
//! nothing.
//!
//! # Safety
//! For every `unsafe fn` here: each pointer argument is *live*, that is, it was made by the function here that
//! makes such objects and has not been destroyed. What is asked beyond that stands at the function.

mod bindings;
mod cm_id;
mod completion;
pub(super) mod convert;
mod device;
mod event_channel;
#[cfg(all(test, feature = "rdma-sys"))]
mod judge;
mod library;
mod outcome;
mod queue_pair;
mod region;
mod system;

mod table;

pub(super) use self::bindings::*;
pub(super) use self::cm_id::*;
pub(super) use self::completion::*;
pub(super) use self::device::*;
pub(super) use self::event_channel::*;
pub(super) use self::library::load;
pub(super) use self::queue_pair::*;
pub(super) use self::region::*;
pub(super) use self::system::*;
