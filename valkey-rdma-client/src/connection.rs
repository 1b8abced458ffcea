//! One connection with one owner: connect, log in, write commands, read replies, and end in good order.

mod connect;
mod device_connects;
mod drain;
mod handshake;
mod idle_pool;
mod loading;
mod located;
mod locator;
mod login_reply;
mod raw;
mod registry;
mod tcp;
mod write_buffer;

pub(crate) use self::connect::Connector;
pub(crate) use self::idle_pool::IdlePool;
pub(crate) use self::loading::LONGEST_WAIT as LONGEST_WAIT_FOR_DATA;
pub(crate) use self::located::Whereabouts;
pub(crate) use self::locator::{Finding, Locator};
pub(crate) use self::raw::{Outstanding, RawConnection};
pub(crate) use self::registry::Registration;
pub(crate) use self::tcp::keepalive_limit;
