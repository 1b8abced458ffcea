//! A server at a Unix socket: which paths it can have, and what makes no sense there.

use super::{Endpoint, EndpointError};

/// The longest path of a socket in bytes: the kernel's `sun_path` has 108, and the last one is 0.
const LONGEST_PATH: usize = 107;

impl Endpoint {
    /// Refuses a path that no socket can have, and settings that need a network.
    pub(super) fn check_socket(&self) -> Result<(), EndpointError> {
        if self.sentinels.is_some() {
            return Err(EndpointError::NotOnUnix { what: "Sentinel" });
        }
        if self.is_cluster() {
            return Err(EndpointError::NotOnUnix { what: "a cluster" });
        }
        if self.tls.is_some() {
            return Err(EndpointError::NotOnUnix { what: "TLS" });
        }
        if !self.host.starts_with('/') || self.host.contains('\0') {
            return Err(EndpointError::BadSocketPath);
        }
        match self.host.len() {
            ..=LONGEST_PATH => Ok(()),
            bytes => Err(EndpointError::LongSocketPath { path: self.host.clone(), bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Sentinels, Transport};
    use super::*;
    use valkey_rdma_transport::tls::ClientTls;

    fn parse(url: &str) -> Result<Endpoint, EndpointError> {
        url.parse()
    }

    fn at(path: &str) -> Endpoint {
        Endpoint::new(Transport::Unix, path, 6379)
    }

    #[test]
    fn the_url_of_a_socket_means_what_it_says() {
        let longest = format!("/{}", "x".repeat(LONGEST_PATH - 1));
        for (url, expected) in [
            ("unix:///run/valkey.sock", at("/run/valkey.sock")),
            ("redis+unix:///run/valkey.sock", at("/run/valkey.sock")),
            ("valkey+unix:///a%20b%3F%40.sock", at("/a b?@.sock")),
            ("unix:///run/a,b.sock?db=3", at("/run/a,b.sock").with_database(3)),
            ("unix://me:p%40w@/s?timeout=2s", {
                at("/s").with_login("me", "p@w").with_timeout(std::time::Duration::from_secs(2))
            }),
            ("unix://:pw@/s", at("/s").with_password("pw")),
            (&format!("unix://{longest}"), at(&longest)),
        ] {
            assert_eq!(parse(url).as_ref(), Ok(&expected), "{url}");
            assert_eq!(parse(&expected.to_url()), Ok(expected), "{url}");
        }
        let shown = at("/run/valkey.sock").with_login("me", "hush").with_database(3).to_string();
        assert_eq!(shown, "unix://me:***@/run/valkey.sock?db=3");
    }

    #[test]
    fn what_makes_no_sense_at_a_socket_is_refused() {
        let long = format!("unix:///{}", "x".repeat(LONGEST_PATH));
        for (url, part) in [
            ("unix://", "unix:///run/valkey.sock"),
            ("unix://run/valkey.sock", "unix:///run/valkey.sock"),
            ("unix:///run%00x", "unix:///run/valkey.sock"),
            (&long, "has 108 bytes, and a Unix socket's has at most 107"),
            ("unix:///s?fallback=tcp", "fallback makes no sense at a Unix socket"),
            ("unix:///s?rx_size=65536", "rx_size makes no sense at a Unix socket"),
            ("unix:///s?source=10.0.0.1", "source makes no sense at a Unix socket"),
            ("unix:///s?gid=1", "gid makes no sense at a Unix socket"),
            ("unix:///s?ca=/ca.crt", "ca makes no sense at a Unix socket"),
            ("unix:///s?db=x", "bad value \"x\" for option db: use the number of a database"),
            ("unix:///s?password=hush", "unknown URL option \"password\""),
            ("unix+cluster:///s", "a cluster makes no sense at a Unix socket"),
            ("unix+sentinel:///s/m", "Sentinel makes no sense at a Unix socket"),
            ("unixs:///s", "TLS makes no sense at a Unix socket"),
        ] {
            let error = parse(url).expect_err(url).to_string();
            assert!(error.contains(part), "{url}: {error}");
        }
        let tls = at("/s").with_tls(ClientTls::default());
        let sentinels = at("/s").with_sentinels(Sentinels::new("m", [("h", 1)]));
        let cluster = at("/s").with_cluster([("h", 1)]);
        for endpoint in [tls, sentinels, cluster, at("/s").with_rx_size(65536), at("relative")] {
            assert!(endpoint.check().is_err(), "{endpoint:?}");
            assert!(parse(&endpoint.to_url()).is_err(), "{endpoint:?}");
        }
    }

    #[test]
    fn no_error_shows_a_password_that_stands_in_the_wrong_place() {
        for url in ["unix://me:hush/s", "unix://hush", "unix:///s?password=hush", "unix://me:hu/sh@/s"] {
            let error = parse(url).expect_err(url);
            assert!(!format!("{error} {error:?}").contains("hu"), "{url}: {error:?}");
        }
    }
}
