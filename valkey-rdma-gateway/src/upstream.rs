//! The connections to servers. A [`Backend`](backend::Backend) is what a route leads to; its [`Pool`](pool::Pool) makes connections by way of its
//! [`Server`](server::Server). Clients use them together ([`Shared`](shared::Shared)) or alone ([`Private`](private::Private)).

pub(crate) mod backend;
pub(crate) mod backends;
pub(crate) mod backoff;
pub(crate) mod identity;
pub(crate) mod open_error;
pub(crate) mod pool;
pub(crate) mod private;
pub(crate) mod probe;
pub(crate) mod server;
pub(crate) mod shared;
pub(crate) mod standing;
