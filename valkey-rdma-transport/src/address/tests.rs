//! The loopback interface, which every machine has, stands for any other.

use std::time::Duration;

use super::*;

/// `lo` on Linux.
fn loopback() -> (String, u32) {
    let mut interfaces = nix::ifaddrs::getifaddrs().expect("interfaces");
    let is_loopback =
        |flags: nix::net::if_::InterfaceFlags| flags.contains(nix::net::if_::InterfaceFlags::IFF_LOOPBACK);
    let name = interfaces.find(|one| is_loopback(one.flags)).expect("a loopback interface").interface_name;
    let number = if_nametoindex(&name[..]).expect("its number");
    (name, number)
}

fn scope_of(address: Result<SocketAddr, AddressError>) -> u32 {
    match address.expect("an address") {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(v4) => panic!("{v4}"),
    }
}

#[test]
fn a_zone_is_an_interface_by_name_or_number() {
    let (name, number) = loopback();
    for text in [format!("fe80::1%{name}"), format!("fe80::1%{number}"), format!("fe80::1%25{name}")] {
        assert_eq!(scope_of(literal(&text, 1).expect("no name")), number, "{text}");
        assert_eq!(scope_of(parse(&format!("[{text}]:6379"))), number, "{text}");
    }
    assert_eq!(literal("10.0.0.1", 7), Some(Ok(([10, 0, 0, 1], 7).into())));
    assert_eq!(literal("fd00::1", 7).map(scope_of), Some(0));
    for name in ["store", "store%eth0", "fe80::x%eth0", "", "%"] {
        assert_eq!(literal(name, 7), None, "{name}");
    }
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    for zone in ["nosuch0", "2147483647", "", "0"] {
        let error = literal(&format!("fe80::1%{zone}"), 1).expect("no name").expect_err("no interface");
        assert!(error.to_string().contains(&format!("no network interface `{zone}`")), "{error}");
    }
    let (name, _) = loopback();
    let error = literal(&format!("fd00::1%{name}"), 1).expect("no name").expect_err("it needs none");
    assert!(error.to_string().contains(&format!("leave `%{name}` out")), "{error}");
}

#[test]
fn an_address_and_port_has_brackets_around_ipv6() {
    assert_eq!(parse("127.0.0.1:80"), Ok(([127, 0, 0, 1], 80).into()));
    for text in ["", ":1", "1.2.3.4", "::1:6379", "[::1]", "[::1]6379", "store:1", "1.2.3.4:+5", "1.2.3.4:x"]
    {
        assert_eq!(parse(text), Err(AddressError::Form), "{text}");
    }
}

#[test]
fn a_zone_survives_the_way_through_a_url() {
    for zone in ["eth0", "3", "25", "253", "25eth0", "a%b", "vlan@eth0.7", "%25"] {
        let host = format!("fe80::1%{zone}");
        let url = to_url(&host);
        let inner = url.strip_prefix('[').and_then(|url| url.strip_suffix(']')).expect("brackets");
        assert_eq!(from_url(inner), host, "{url}");
    }
    for (text, host) in [
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("fe80::1%25eth0", "fe80::1%eth0"),
        ("fe80::1%3", "fe80::1%3"),
        ("fe80::1%253", "fe80::1%3"),
        ("fe80::1%25", "fe80::1%25"),
        ("fe80::1%a%25b", "fe80::1%a%25b"),
        ("fd00::1", "fd00::1"),
    ] {
        assert_eq!(from_url(text), host);
    }
    assert_eq!((&to_url("fd00::1")[..], &to_url("10.0.0.1")[..]), ("[fd00::1]", "10.0.0.1"));
}

#[test]
fn a_link_local_address_takes_the_zone_of_the_one_that_announced_it() {
    for (host, other, expected) in [
        ("fe80::2", "fe80::1%eth0", "fe80::2%eth0"),
        ("fe80::2", "fd00::1", "fe80::2"),
        ("fe80::2%eth1", "fe80::1%eth0", "fe80::2%eth1"),
        ("fd00::2", "fe80::1%eth0", "fd00::2"),
        ("10.0.0.1", "fe80::1%eth0", "10.0.0.1"),
        ("store", "fe80::1%eth0", "store"),
    ] {
        assert_eq!(on_interface_of(host.to_owned(), other), expected);
    }
}

#[test]
fn a_link_local_address_needs_its_interface() {
    let (name, number) = loopback();
    let without = parse("[fe80::1]:6379").expect("an address");
    let text = check_interface(without).expect_err("no interface").to_string();
    assert!(text.contains("fe80::1%eth0"), "{text}");
    let with = parse(&format!("[fe80::1%{name}]:6379")).expect("an address");
    for fine in [with, ([127, 0, 0, 1], 1).into(), parse("[fd00::1]:1").expect("an address")] {
        assert_eq!(check_interface(fine), Ok(()), "{fine}");
    }
    let source = source_towards("fe80::2".parse().expect("an address"), with);
    assert_eq!(scope_of(Ok(source)), number);
    assert_eq!(source_towards([10, 0, 0, 7].into(), with), ([10, 0, 0, 7], 0).into());
}

#[test]
fn each_reason_not_to_listen_has_its_remedy() {
    let any = parse("10.0.0.1:80").expect("an address");
    let local = parse("[fe80::1]:6379").expect("an address");
    for (address, kind, advice) in [
        (any, io::ErrorKind::AddrInUse, "stop the program that listens there"),
        (any, io::ErrorKind::AddrNotAvailable, "`ip address`"),
        (any, io::ErrorKind::PermissionDenied, "only root"),
        (local, io::ErrorKind::InvalidInput, "fe80::1%eth0"),
    ] {
        let text = listen_advice(address, &kind.into()).to_string();
        assert!(text.starts_with("; ") && text.contains(advice), "{text}");
    }
    assert_eq!(listen_advice(any, &io::ErrorKind::Other.into()).to_string(), "");
}

#[tokio::test(start_paused = true)]
async fn each_address_has_an_equal_share_of_the_time_that_is_left() {
    let addresses: Vec<SocketAddr> = (1..=3).map(|port| ([192, 0, 2, 1], port).into()).collect();
    let mut shares = shares(&addresses, Instant::now() + Duration::from_secs(6));
    assert_eq!(shares.next(), Some((addresses[0], Duration::from_secs(2))));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(shares.next(), Some((addresses[1], Duration::from_secs(2))));
    // It was refused at once.
    assert_eq!(shares.next(), Some((addresses[2], Duration::from_secs(4))));
    assert_eq!(shares.next(), None);
}

#[tokio::test]
async fn a_text_with_a_zone_resolves_without_a_name_server() {
    let (name, number) = loopback();
    let found = resolve_text(&format!("[fe80::1%{name}]:6379")).await.expect("addresses");
    assert_eq!(found.into_iter().map(|address| scope_of(Ok(address))).collect::<Vec<_>>(), [number]);
    let error = resolve("fe80::1%nosuch0", 1).await.expect_err("no interface");
    assert!(matches!(AddressError::within(&error), Some(AddressError::NoInterface { .. })), "{error}");
}
