//! The endpoint of a cluster: the nodes to start from, as one [`Endpoint`], from a URL such as `rdma+cluster://n1,n2:6380` or from a list.

use super::{Endpoint, EndpointError, Transport};

impl Endpoint {
    /// Makes it the endpoint of the cluster that this server and the `others` belong to. A [`Client`](crate::Client) asks them for the nodes
    /// of the cluster; one that answers is enough. All nodes get the login and the options of this endpoint.
    ///
    /// ```
    /// use valkey_rdma_client::{Endpoint, Transport};
    ///
    /// let cluster = Endpoint::new(Transport::Rdma, "10.0.0.1", 6379).with_cluster([("10.0.0.2", 6379)]);
    /// assert_eq!(cluster.to_url(), "rdma+cluster://10.0.0.1:6379,10.0.0.2:6379");
    /// assert_eq!(cluster.to_url().parse(), Ok(cluster));
    /// ```
    #[must_use]
    pub fn with_cluster(mut self, others: impl IntoIterator<Item = (impl Into<String>, u16)>) -> Self {
        let others = others.into_iter().map(|(host, port)| (super::canonical(host.into()), port));
        self.other_seeds = Some(others.collect());
        self
    }

    /// True for the endpoint of a cluster.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.other_seeds.is_some()
    }

    /// The endpoint of each server to start from.
    pub(crate) fn seeds(&self) -> Vec<Endpoint> {
        let mut first = self.clone();
        let others = first.other_seeds.take().into_iter().flatten();
        let others: Vec<_> = others.map(|(host, port)| first.clone().with_address(host, port)).collect();
        std::iter::once(first).chain(others).collect()
    }

    /// The endpoint of the cluster that these servers belong to.
    pub(crate) fn of_seeds(seeds: impl IntoIterator<Item = Self>) -> Result<Self, EndpointError> {
        let mut seeds = seeds.into_iter().flat_map(|seed| seed.seeds());
        let first = seeds.next().ok_or(EndpointError::NoSeeds)?;
        if first.transport == Transport::Unix {
            return Err(EndpointError::NotOnUnix { what: "a cluster" });
        }
        let mut others = Vec::new();
        for seed in seeds {
            if seed.clone().with_address(first.host(), first.port()) != first {
                let (first, other) = (first.to_string(), seed.to_string());
                return Err(EndpointError::MixedSeeds { first, other });
            }
            others.push((seed.host, seed.port));
        }
        Ok(first.with_cluster(others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::into_endpoint::IntoEndpoint;

    #[test]
    fn a_url_and_a_list_name_the_same_cluster() {
        let url = "emulated+cluster://u:p%40@a,[::1]:7,b:8/?timeout=2s&rdma_port=%2B1";
        let endpoint: Endpoint = url.parse().expect("a good URL");
        assert!(endpoint.is_cluster());
        let list = ["a", "[::1]:7", "b:8"]
            .map(|host| format!("emulated://u:p%40@{host}/?timeout=2s&rdma_port=%2B1"));
        assert_eq!(list[..].into_endpoint().expect("good URLs"), endpoint);
        assert_eq!(endpoint.to_string(), "emulated+cluster://u:***@a:6379,[::1]:7,b:8");
        assert_eq!(endpoint.to_url().parse(), Ok(endpoint.clone()));
        let seeds: Vec<_> = endpoint.seeds().iter().map(ToString::to_string).collect();
        assert_eq!(seeds, ["a:6379", "[::1]:7", "b:8"].map(|host| format!("emulated://u:***@{host}")));
        assert!(!format!("{endpoint:?}").contains("p@"));
    }

    #[test]
    fn one_server_is_a_cluster_if_it_is_called_one() {
        let one: Endpoint = "rdma+CLUSTER://a".parse().expect("a good URL");
        assert!(one.is_cluster());
        assert_eq!(["rdma://a"].into_endpoint().expect("a good URL"), one);
        assert!(!"rdma://a".into_endpoint().expect("a good URL").is_cluster());
    }

    #[test]
    fn bad_clusters_are_refused() {
        for (url, expected) in [
            ("rdma+cluster://", "names no host"),
            ("rdma+cluster://a,", "names no host"),
            ("rdma+cluster://a,b:0", "port 0"),
            ("rdma+cluster://a/x", "bad database"),
            ("rdma+cluster://a?nonsense=1", "unknown URL option"),
            ("rdma+cluster://a#b", "%23"),
            ("http+cluster://a", "unknown URL scheme"),
            ("rdma+cluster+sentinel://a/m", "unknown URL scheme"),
            ("rdma+sentinel+cluster://a/m", "unknown URL scheme"),
            ("rdma+cluster://u:12/secret@a", "%2F"),
        ] {
            let error = url.parse::<Endpoint>().expect_err(url).to_string();
            assert!(error.contains(expected), "{url}: {error}");
            assert!(!error.contains("secret"), "{url}: {error}");
        }
        let mixed = ["rdma://a", "valkey://b"].into_endpoint().expect_err("two transports");
        assert!(matches!(mixed, Error::Endpoint(EndpointError::MixedSeeds { .. })), "{mixed:?}");
        let none = Vec::<Endpoint>::new().into_endpoint().expect_err("no seeds");
        assert!(matches!(none, Error::Endpoint(EndpointError::NoSeeds)), "{none:?}");
    }
}
