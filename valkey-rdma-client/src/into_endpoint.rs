//! [`IntoEndpoint`]: what `connect` takes, and what the compiler says of anything else.

use crate::endpoint::Endpoint;
use crate::error::Error;

/// Where to connect: a URL, an [`Endpoint`], or an array, a slice or a vector of these, which names nodes of a cluster.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say where to connect",
    note = "give a URL, such as \"rdma://10.0.0.7:6379\", or `Endpoint::new(Transport::Tcp, host, port)`",
    note = "give a list of them for a cluster: `[\"rdma://10.0.0.7:6379\", \"rdma://10.0.0.8:6379\"]`"
)]
pub trait IntoEndpoint {
    /// Returns the endpoint.
    ///
    /// # Errors
    /// [`Error::Endpoint`] if a URL is invalid, and for a list that is empty or whose items differ in more than their address.
    fn into_endpoint(self) -> Result<Endpoint, Error>;
}

// What the compiler would ask for instead is of no use to the caller.
#[diagnostic::do_not_recommend]
impl<T: TryInto<Endpoint, Error: Into<Error>>> IntoEndpoint for T {
    fn into_endpoint(self) -> Result<Endpoint, Error> {
        self.try_into().map_err(Into::into)
    }
}

#[diagnostic::do_not_recommend]
impl<T: TryInto<Endpoint, Error: Into<Error>>, const N: usize> IntoEndpoint for [T; N] {
    fn into_endpoint(self) -> Result<Endpoint, Error> {
        of_list(self)
    }
}

#[diagnostic::do_not_recommend]
impl<T: TryInto<Endpoint, Error: Into<Error>>> IntoEndpoint for Vec<T> {
    fn into_endpoint(self) -> Result<Endpoint, Error> {
        of_list(self)
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T> IntoEndpoint for &'a [T]
where
    &'a T: TryInto<Endpoint, Error: Into<Error>>,
{
    fn into_endpoint(self) -> Result<Endpoint, Error> {
        of_list(self)
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T> IntoEndpoint for &'a Vec<T>
where
    &'a T: TryInto<Endpoint, Error: Into<Error>>,
{
    fn into_endpoint(self) -> Result<Endpoint, Error> {
        self[..].into_endpoint()
    }
}

/// The endpoint of the cluster that these servers belong to.
fn of_list<T: TryInto<Endpoint, Error: Into<Error>>>(
    servers: impl IntoIterator<Item = T>,
) -> Result<Endpoint, Error> {
    let servers: Result<Vec<Endpoint>, Error> =
        servers.into_iter().map(|server| server.try_into().map_err(Into::into)).collect();
    Ok(Endpoint::of_seeds(servers?)?)
}
