//! Every endpoint that can be connected to is that of its URL.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::Polling;
use valkey_rdma_transport::tls::{ClientTls, Verify};

use super::*;

/// Text with characters that mean something in URLs, and others; perhaps empty.
fn text() -> String {
    let special = ":/?#[]@!$&'()*+,;=%~ \\|^<>\"{}`é\t";
    let one = || match fastrand::u8(..3) {
        0 => special.chars().nth(fastrand::usize(..special.chars().count())).unwrap_or('+'),
        1 => fastrand::alphanumeric(),
        _ => fastrand::char(..),
    };
    (0..fastrand::usize(..8)).map(|_| one()).collect()
}

fn host() -> String {
    match fastrand::u8(..7) {
        0 => IpAddr::from(fastrand::u128(..).to_be_bytes()).to_string(),
        1 => IpAddr::from(fastrand::u32(..).to_be_bytes()).to_string(),
        2 => "[FE80:0::1]".to_owned(),
        3 => "cache.example".to_owned(),
        4 => format!("/{}", text()),
        _ => text(),
    }
}

fn port() -> u16 {
    if fastrand::u8(..9) == 0 { 0 } else { fastrand::u16(..) }
}

fn tls() -> ClientTls {
    let mut tls = ClientTls::default();
    for _ in 0..fastrand::usize(..4) {
        tls = match fastrand::u8(..7) {
            0 => tls.with_ca(text()),
            1 => tls.with_cert(text()).with_key(text()),
            2 => tls.with_key(OsStr::from_bytes(b"not \xff")),
            3 => tls.with_server_name(text()),
            4 => tls.with_verify([Verify::Full, Verify::Ca, Verify::None][fastrand::usize(..3)]),
            5 => tls.with_ciphers(text()),
            _ => tls.with_ciphersuites(text()),
        };
    }
    tls
}

fn endpoint() -> Endpoint {
    let transports = [Transport::Rdma, Transport::Emulated, Transport::Tcp, Transport::Unix];
    let mut endpoint = Endpoint::new(transports[fastrand::usize(..4)], host(), port());
    for _ in 0..fastrand::usize(..5) {
        endpoint = match fastrand::u8(..20) {
            0 => endpoint.with_login(text(), text()),
            1 => endpoint.with_password(text()),
            2 => endpoint.with_database(fastrand::u32(..)),
            3 => endpoint.with_protocol(Protocol::Resp2),
            4 => endpoint.with_timeout(Duration::from_nanos(fastrand::u64(..))),
            5 => endpoint.with_timeout([Duration::ZERO, Duration::MAX][fastrand::usize(..2)]),
            6 => endpoint.with_rx_size(fastrand::u32(..1 << 25)),
            7 if fastrand::bool() => endpoint.with_send_buffer(fastrand::u32(..1 << 25)),
            7 => endpoint.with_device(text()),
            8 => endpoint.with_fallback(true),
            9 => endpoint.with_gid(fastrand::u32(..)),
            10 => endpoint.with_source(IpAddr::from(fastrand::u128(..).to_be_bytes())),
            11 => endpoint
                .with_polling([Polling::Event, Polling::Busy, Polling::Adaptive][fastrand::usize(..3)]),
            12 => endpoint.with_rdma_port(RdmaPort::Offset(fastrand::u16(..3))),
            13 => endpoint.with_tls(tls()),
            14 => endpoint.with_rdma_port(
                [RdmaPort::Fixed(0), RdmaPort::Fixed(7), RdmaPort::Discover][fastrand::usize(..3)],
            ),
            15 => endpoint.with_password_file(text(), text()),
            16 => endpoint.with_direct_prefix(text()),
            17 => endpoint.with_side_buffers(fastrand::u32(..1 << 25)),
            _ => {
                let addresses: Vec<_> = (0..fastrand::usize(..4)).map(|_| (host(), port())).collect();
                let sentinels = Sentinels::new(text(), addresses);
                endpoint.with_sentinels(match fastrand::u8(..5) {
                    0 => sentinels.with_login(text(), text()),
                    1 => sentinels.with_password(text()),
                    2 => sentinels.without_tls(),
                    3 => sentinels.with_password_file(text(), text()),
                    _ => sentinels,
                })
            }
        };
    }
    endpoint
}

#[test]
fn an_endpoint_is_that_of_its_url_or_cannot_be_connected_to() {
    let mut good = 0;
    for _ in 0..20_000 {
        let endpoint = endpoint();
        let url = endpoint.to_url();
        match endpoint.check() {
            Ok(()) => {
                good += 1;
                assert_eq!(url.parse().as_ref(), Ok(&endpoint), "{url}");
            }
            Err(_) => assert!(url.parse::<Endpoint>().is_err(), "{url}"),
        }
    }
    assert!(good > 2_000, "{good}");
}

#[test]
fn empty_names_and_passwords_survive() {
    let base = || Endpoint::new(Transport::Tcp, "h", 6379);
    for (built, url, login) in [
        (base().with_login("open", ""), "valkey://open:@h:6379", (Some("open"), Some(""))),
        (base().with_password(""), "valkey://h:6379", (None, None)),
        (base().with_login("", ""), "valkey://h:6379", (None, None)),
        (base().with_login("", "pw"), "valkey://:pw@h:6379", (None, Some("pw"))),
        (base().with_login("a:b", "c@d"), "valkey://a%3Ab:c%40d@h:6379", (Some("a:b"), Some("c@d"))),
        (base(), "valkey://h:6379", (None, None)),
    ] {
        assert_eq!(built.to_url(), url);
        let parsed: Endpoint = url.parse().expect(url);
        assert_eq!((parsed.user(), parsed.password()), login, "{url}");
        assert_eq!(parsed, built);
    }
    // What is left of a template whose user and password are empty.
    assert_eq!("valkey://:@h".parse(), Ok(base()));
    for without in ["valkey://open@h", "emulated://open@h/3?device=unix:/run/x", "valkey+sentinel://open@h/m"]
    {
        assert_eq!(without.parse::<Endpoint>(), Err(EndpointError::UserWithoutPassword), "{without}");
    }
    let sentinels = Sentinels::new("m", [("s", 26379)]);
    for sentinels in [sentinels.clone().with_password(""), sentinels.with_login("", "pw")] {
        let endpoint = base().with_sentinels(sentinels);
        assert_eq!(endpoint.to_url().parse(), Ok(endpoint));
    }
}

#[test]
fn a_plus_sign_is_a_plus_sign_everywhere() {
    let endpoint: Endpoint = "valkey+sentinel://a+b:c+d@h/s+t?sentinel_user=w+1&sentinel_password=p+2%2B"
        .parse()
        .expect("a good URL");
    assert_eq!((endpoint.user(), endpoint.password()), (Some("a+b"), Some("c+d")));
    let sentinels = endpoint.sentinels().expect("Sentinels");
    assert_eq!((sentinels.service(), &sentinels.login), ("s+t", &Login::new("w+1".into(), "p+2+".into())));
    let endpoint: Endpoint = "rdma://h?device=a+b%20c&rdma_port=+100".parse().expect("a good URL");
    assert_eq!((endpoint.device(), endpoint.rdma_port()), (Some("a+b c"), RdmaPort::Offset(100)));
    let endpoint: Endpoint = "emulated://h?device=unix:/run/x".parse().expect("a good URL");
    assert_eq!(endpoint.to_url(), "emulated://h:6379?device=unix:/run/x");
}
