//! [`IntoEndpoint`] and [`IntoEndpoints`]: what `connect` takes, and what the compiler says of anything else.

use crate::endpoint::Endpoint;
use crate::error::Error;

/// Where to connect: a URL or an [`Endpoint`]. Everything has it that converts to an endpoint.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say where to connect",
    note = "give a URL, such as \"rdma://10.0.0.7:6379\", or `Endpoint::new(Transport::Tcp, host, port)`"
)]
pub trait IntoEndpoint {
    /// Returns the endpoint.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if a URL is invalid.
    fn into_endpoint(self) -> Result<Endpoint, Error>;
}

// What the compiler would ask for instead is of no use to the caller.
#[diagnostic::do_not_recommend]
impl<T: TryInto<Endpoint, Error: Into<Error>>> IntoEndpoint for T {
    fn into_endpoint(self) -> Result<Endpoint, Error> {
        self.try_into().map_err(Into::into)
    }
}

/// Servers of a cluster to start from: URLs or [`Endpoint`]s in an array, a vector or another iterator.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of servers",
    note = "a cluster client takes a list, also of one: `[\"rdma://10.0.0.7:6379\"]`"
)]
pub trait IntoEndpoints {
    /// Returns the endpoints.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if a URL is invalid.
    fn into_endpoints(self) -> Result<Vec<Endpoint>, Error>;
}

#[diagnostic::do_not_recommend]
impl<I: IntoIterator<Item: IntoEndpoint>> IntoEndpoints for I {
    fn into_endpoints(self) -> Result<Vec<Endpoint>, Error> {
        self.into_iter().map(IntoEndpoint::into_endpoint).collect()
    }
}
