//! Whether the system can listen on two addresses at once.

use std::net::SocketAddr;

use crate::front::listen::Listen;

/// Why it cannot, on any system.
pub(super) fn conflict(one: &Listen, other: &Listen) -> Option<String> {
    // A port has one listener, encrypted or not.
    let plain = one.unencrypted();
    if plain == other.unencrypted() && !plain.is_any_port() {
        return Some(format!("the address of {other} is there twice"));
    }
    let (first, second) = of_one_port(one, other).filter(|(one, other)| one.is_ipv4() == other.is_ipv4())?;
    let (all, part) = match (first.ip().is_unspecified(), second.ip().is_unspecified()) {
        (true, _) => (one, other),
        (false, true) => (other, one),
        (false, false) => return None,
    };
    Some(format!("{all} includes {part}: leave one of them out"))
}

/// What it needs, if it can on some systems only: `[::]` has the IPv4 addresses too by default. Devices keep them apart.
pub(super) fn need(one: &Listen, other: &Listen) -> Option<String> {
    let (first, second) = of_one_port(one, other)?;
    let (v6, v4) = match (first, second) {
        (SocketAddr::V6(first), SocketAddr::V4(_)) if first.ip().is_unspecified() => (one, other),
        (SocketAddr::V4(_), SocketAddr::V6(second)) if second.ip().is_unspecified() => (other, one),
        _ => return None,
    };
    matches!(v6.unencrypted(), Listen::Tcp(_)).then(|| {
        format!(
            "{v6} includes {v4} by default; the gateway starts only if BindIPv6Only=ipv6-only of its socket unit, or net.ipv6.bindv6only, \
             separates them"
        )
    })
}

/// Their addresses, if both are of TCP or both of RDMA, and have one port. The system may also choose it.
fn of_one_port(one: &Listen, other: &Listen) -> Option<(SocketAddr, SocketAddr)> {
    match (one.unencrypted(), other.unencrypted()) {
        (Listen::Tcp(one), Listen::Tcp(other)) | (Listen::Rdma(one), Listen::Rdma(other)) => {
            (one.port() == other.port() && one.port() != 0).then_some((one, other))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(check: fn(&Listen, &Listen) -> Option<String>, one: &str, other: &str) -> Option<String> {
        let (one, other): (Listen, Listen) = (one.parse().unwrap(), other.parse().unwrap());
        let found = check(&one, &other);
        assert_eq!(found.is_some(), check(&other, &one).is_some(), "{one} and {other}, in the other order");
        found
    }

    #[test]
    fn one_port_has_one_listener_at_an_address() {
        for (one, other, says) in [
            ("unix:/run/v", "unix:/run/v", "unix:/run/v is there twice"),
            ("tcp:127.0.0.1:1", "tls:127.0.0.1:1", "tls:127.0.0.1:1 is there twice"),
            ("tcp:127.0.0.1:1", "tls:0.0.0.0:1", "tls:0.0.0.0:1 includes tcp:127.0.0.1:1: leave"),
            ("tcp:[::]:1", "tcp:[::1]:1", "tcp:[::]:1 includes tcp:[::1]:1: leave"),
            ("rdma:0.0.0.0:1", "rdmas:10.0.0.1:1", "rdma:0.0.0.0:1 includes rdmas:10.0.0.1:1: leave"),
        ] {
            let found = both(conflict, one, other).unwrap_or_default();
            assert!(found.contains(says), "{one} and {other}: {found}");
        }
        for (one, other) in [
            ("tcp:127.0.0.1:0", "tcp:127.0.0.1:0"),
            ("tcp:0.0.0.0:0", "tcp:127.0.0.1:0"),
            ("tcp:0.0.0.0:1", "tcp:127.0.0.1:2"),
            ("tcp:127.0.0.1:1", "tcp:127.0.0.2:1"),
            ("tcp:0.0.0.0:1", "rdma:10.0.0.1:1"),
            ("tcp:0.0.0.0:1", "tcp:[::]:1"),
            ("tcp:0.0.0.0:1", "tcp:[::1]:1"),
        ] {
            assert_eq!(both(conflict, one, other), None, "{one} and {other}");
        }
    }

    #[test]
    fn all_addresses_of_ipv6_may_include_those_of_ipv4() {
        for (one, other, needs) in [
            ("tcp:[::]:1", "tcp:0.0.0.0:1", true),
            ("tls:[::]:1", "tcp:127.0.0.1:1", true),
            ("tcp:[::1]:1", "tcp:0.0.0.0:1", false),
            ("tcp:[::]:0", "tcp:0.0.0.0:0", false),
            ("tcp:[::]:1", "tcp:0.0.0.0:2", false),
            ("rdma:[::]:1", "rdma:0.0.0.0:1", false),
        ] {
            let found = both(need, one, other);
            assert_eq!(found.is_some(), needs, "{one} and {other}");
            assert!(found.is_none_or(|text| text.contains(&format!("{one} includes {other}"))));
        }
    }
}
