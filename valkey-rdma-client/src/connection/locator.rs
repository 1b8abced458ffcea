//! [`Locator`]: finds the server to connect to, where that can be another one each time.

use std::future::Future;
use std::pin::Pin;

use crate::endpoint::Endpoint;
use crate::error::ConnectCause;

/// Finds the server to connect to.
pub(crate) trait Locator: Send + Sync {
    /// The endpoints where the primary may be, the likeliest first.
    fn candidates(&self) -> Finding<'_, Result<Vec<Endpoint>, ConnectCause>>;

    /// Called when a connection was made: a server at this address has the role of a primary.
    fn found(&self, endpoint: &Endpoint);

    /// Completes when the primary is elsewhere than at this address.
    fn moved<'a>(&'a self, from: &'a str) -> Finding<'a, ()>;
}

pub(crate) type Finding<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
