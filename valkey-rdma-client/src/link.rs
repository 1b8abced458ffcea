//! Connections: making them, and many callers on one.
//!
//! [`connect`] makes a [`RawConnection`], which has one owner. A [`Multiplexer`] shares it: a queue of requests, a task that writes them in
//! batches and delivers the replies, and the next connection after one is lost.

mod connect;
mod device_connects;
mod device_steps;
mod drain;
mod driver;
mod handshake;
mod idle_pool;
mod in_flight;
mod liveness;
mod login;
mod members;
mod multiplexer;
mod queue;
mod raw;
mod redial;
mod registry;
mod reply_slot;
mod request;
mod state;
mod task;
mod tcp;
#[cfg(test)]
pub(crate) mod tests;
mod waiting;
mod wake_together;
mod write_buffer;

pub use self::connect::{ConnectStep, StepFound, StepReport};
pub(crate) use self::connect::{Connector, Finding, Locator, Whereabouts, is_of_replica};
#[doc(hidden)]
pub use self::connect::{Looks, is_elsewhere};
pub(crate) use self::drain::Outstanding;
pub(crate) use self::idle_pool::IdlePool;
pub(crate) use self::liveness::{Answer, Asks, Liveness, Watch};
#[doc(hidden)]
pub use self::login::read_password_file;
pub(crate) use self::members::Members;
pub(crate) use self::multiplexer::{Multiplexer, Sent};
pub(crate) use self::raw::RawConnection;
pub(crate) use self::redial::Redialer;
pub(crate) use self::registry::Registration;
pub(crate) use self::reply_slot::{Delivery, Failed};
pub(crate) use self::request::Deadline;
pub(crate) use self::state::{Push, PushHook};
pub(crate) use self::tcp::keepalive_limit;
