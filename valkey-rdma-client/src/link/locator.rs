//! [`Locator`]: finds the server to connect to, where that can be another one each time.

use std::future::Future;
use std::pin::Pin;

use crate::endpoint::Endpoint;
use crate::error::ConnectCause;

/// Finds the server to connect to.
pub(crate) trait Locator: Send + Sync {
    /// The endpoints where the primary may be, the likeliest first. `all`: also those that few report, which takes longer.
    fn candidates(&self, all: bool) -> Finding<'_, Result<Vec<Endpoint>, ConnectCause>>;

    /// Begins to listen for another primary.
    fn follow(&self);

    /// Called when a connection was made: a server at this address has the role of a primary. Follows it.
    fn found(&self, address: &str);

    /// Completes when the primary is known to be elsewhere than at this address.
    fn moved<'a>(&'a self, from: &'a str) -> Finding<'a, ()>;

    /// Completes when a primary elsewhere becomes known from now on.
    fn next_move<'a>(&'a self, from: &'a str) -> Finding<'a, ()>;
}

pub(crate) type Finding<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
