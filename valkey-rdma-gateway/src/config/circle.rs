//! [`circle`]: whether the commands of a route come back to it, because its server is one of the gateway's listeners.

use std::net::SocketAddr;

use valkey_rdma_client::{Endpoint, Transport};
use valkey_rdma_transport::address;

use super::RouteConfig;
use crate::listen::Listen;

/// The listener of route `start` that its commands reach again, through other routes or at once.
pub(super) fn circle(routes: &[RouteConfig], start: usize) -> Option<&Listen> {
    let mut reached = vec![start];
    let mut looked_at = 0;
    while let Some(from) = reached.get(looked_at).and_then(|&number| routes.get(number)) {
        looked_at += 1;
        for (number, route) in routes.iter().enumerate() {
            match route.listen.iter().find(|listen| leads_to(from, listen)) {
                Some(listen) if number == start => return Some(listen),
                // A circle that does not lead back to `start` is that of another route.
                Some(_) if !reached.contains(&number) => reached.push(number),
                _ => {}
            }
        }
    }
    None
}

/// Whether the route has this listener as its server.
fn leads_to(route: &RouteConfig, listen: &Listen) -> bool {
    route.servers.iter().filter_map(|url| url.parse().ok()).any(|server: Endpoint| {
        let (transport, addr) = match listen {
            Listen::Tcp(addr) => (Transport::Tcp, addr),
            Listen::Rdma(addr) => (Transport::Rdma, addr),
            Listen::Emulated(addr) => (Transport::Emulated, addr),
            Listen::Unix(_) => return false,
        };
        server.transport() == transport && server.sentinels().is_none() && is_at(&server, *addr)
    })
}

/// Whether a server with this host and port is a listener of this machine. Other names of the machine are not known here.
fn is_at(server: &Endpoint, listener: SocketAddr) -> bool {
    let ip = listener.ip();
    let is_there = match address::literal(server.host(), 0) {
        // 0.0.0.0 takes IPv4 only, [::] both.
        Some(Ok(host)) if host.ip().is_loopback() && ip.is_unspecified() => ip.is_ipv6() || host.is_ipv4(),
        Some(Ok(host)) => host.ip() == ip,
        Some(Err(_)) => false,
        None => server.host() == "localhost" && (ip.is_unspecified() || ip.is_loopback()),
    };
    server.port() == listener.port() && is_there
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn commands_that_would_come_back_are_found() {
        let route = |listen: &str, server: &str| {
            format!(
                "[[route]]\nlisten = [\"unix:/run/v{}.sock\", \"{listen}\"]\nserver = \"{server}\"\n",
                listen.len()
            )
        };
        let one = |listen, server| Config::parse(&route(listen, server));
        for (listen, server, is_circle) in [
            ("tcp:127.0.0.1:6379", "valkey://127.0.0.1:6379", true),
            ("tcp:127.0.0.1:6379", "valkey://localhost", true),
            ("tcp:0.0.0.0:6379", "redis://127.0.0.1:6379", true),
            ("tcp:[::1]:6379", "valkey://[::1]:6379", true),
            ("tcp:[::]:6379", "valkey://[::1]:6379", true),
            ("tcp:[::]:6379", "valkey://127.0.0.1:6379", true),
            ("tcp:0.0.0.0:6379", "valkey://localhost", true),
            ("tcp:0.0.0.0:6379", "valkey://[::1]:6379", false),
            ("tcp:127.0.0.1:6379", "valkey://127.0.0.1:6380", false),
            ("tcp:127.0.0.1:6379", "valkey://10.0.0.7:6379", false),
            ("tcp:127.0.0.1:6379", "valkey+sentinel://127.0.0.1:6379/localhost", false),
        ] {
            let checked = one(listen, server);
            assert_eq!(checked.is_err(), is_circle, "{listen} {server}");
            let text = checked.map_or_else(|error| error.to_string(), |_| String::new());
            assert!(
                !is_circle || text.contains(&format!("its server is its own listener {listen}")),
                "{text}"
            );
        }
        let both = [
            route("tcp:127.0.0.1:1", "valkey://127.0.0.1:20"),
            route("tcp:127.0.0.1:20", "valkey://127.0.0.1:1"),
        ];
        let error = Config::parse(&both.concat()).unwrap_err();
        assert_eq!(error.each().len(), 2, "{error}");
        // The second node of the cluster leads back.
        let seeds = "server = [\"valkey://127.0.0.1:20\", \"valkey://127.0.0.1:30\"]\ncluster = true\n";
        let nodes = [
            format!("[[route]]\nlisten = [\"tcp:127.0.0.1:1\"]\n{seeds}"),
            route("tcp:127.0.0.1:20", "valkey://10.0.0.7"),
            "[[route]]\nlisten = [\"tcp:127.0.0.1:30\"]\nserver = \"valkey://127.0.0.1:1\"\n".to_owned(),
        ];
        let error = Config::parse(&nodes.concat()).unwrap_err();
        assert_eq!(error.each().len(), 2, "{error}");
        let chain = [
            route("tcp:127.0.0.1:1", "valkey://127.0.0.1:20"),
            route("tcp:127.0.0.1:20", "valkey://10.0.0.7"),
        ];
        Config::parse(&chain.concat()).unwrap();
    }
}
