//! The local side: sockets that clients connect to, and how many clients and files there may be.

pub(crate) mod accept;
pub(crate) mod activation;
pub(crate) mod descriptors;
pub(crate) mod in_use;
pub(crate) mod listen;
pub(crate) mod refusals;
pub(crate) mod running;
pub(crate) mod socket_file;
