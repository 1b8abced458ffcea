//! Connections: making them, and many callers on one.
//!
//! [`connect`] makes a [`RawConnection`], which has one owner. A [`Multiplexer`] shares it: a queue of requests, a task that writes them in
//! batches and delivers the replies, and the next connection after one is lost.

mod connect;
mod deadline;
mod device_connects;
mod drain;
mod driver;
mod handle;
mod handshake;
mod idle_pool;
mod in_flight;
mod liveness;
mod loading;
mod located;
mod locator;
mod login_reply;
mod queue;
mod raw;
mod registry;
mod reply_buffer;
mod reply_slot;
mod request;
mod state;
mod submit;
mod task;
mod tcp;
#[cfg(test)]
pub(crate) mod tests;
mod wake_together;
mod write_buffer;

pub(crate) use self::connect::Connector;
pub(crate) use self::deadline::Deadline;
pub(crate) use self::handle::Multiplexer;
pub(crate) use self::idle_pool::IdlePool;
pub(crate) use self::liveness::{Answer, Liveness, Watch};
pub(crate) use self::loading::LONGEST_WAIT as LONGEST_WAIT_FOR_DATA;
pub(crate) use self::located::Whereabouts;
pub(crate) use self::locator::{Finding, Locator};
pub(crate) use self::raw::{Outstanding, RawConnection};
pub(crate) use self::registry::Registration;
pub(crate) use self::reply_buffer::ReplyBuffer;
pub(crate) use self::reply_slot::{ReplyReceiver, channel as reply_channel};
pub(crate) use self::request::{Replies, ReplySink, Request};
pub(crate) use self::state::{Push, PushHook};
pub(crate) use self::task::ReconnectPolicy;
pub(crate) use self::tcp::keepalive_limit;
