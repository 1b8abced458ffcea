//! Many callers on one connection: a queue of requests, a task that writes them in batches and delivers the replies, and
//! the next connection after one is lost.

mod burst;
mod deadline;
mod driver;
mod handle;
mod in_flight;
mod queue;
mod reply_buffer;
mod reply_slot;
mod request;
mod state;
mod submit;
mod task;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use self::deadline::Deadline;
pub(crate) use self::handle::Multiplexer;
pub(crate) use self::reply_buffer::ReplyBuffer;
pub(crate) use self::reply_slot::{ReplyReceiver, channel as reply_channel};
pub(crate) use self::request::{Replies, ReplySink, Request};
pub(crate) use self::state::{Push, PushHook};
pub(crate) use self::task::ReconnectPolicy;
