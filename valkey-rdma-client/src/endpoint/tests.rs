use std::time::Duration;

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::Polling;

use super::*;

fn parse(url: &str) -> Result<Endpoint, EndpointError> {
    url.parse()
}

#[test]
fn good_urls_mean_what_they_say() {
    let base = |transport| Endpoint::new(transport, "h", 6379);
    let with = |transport, change: &dyn Fn(Endpoint) -> Endpoint| change(base(transport));
    use Transport::{Emulated, Rdma, Tcp};
    let table = [
        ("rdma://h", base(Rdma)),
        ("RDMA://h/", base(Rdma)),
        ("emulated://h:6379", base(Emulated)),
        ("valkey://h", base(Tcp)),
        ("redis://h?", base(Tcp)),
        ("rdma://10.0.0.7:7000", Endpoint::new(Rdma, "10.0.0.7", 7000)),
        ("rdma://[::1]:7000", Endpoint::new(Rdma, "::1", 7000)),
        ("rdma://[fe80:0:0::2]", Endpoint::new(Rdma, "fe80::2", 6379)),
        ("rdma://h/15", with(Rdma, &|e| e.with_database(15))),
        ("valkey://:pw@h", with(Tcp, &|e| e.with_password("pw"))),
        ("valkey://me:pw@h", with(Tcp, &|e| e.with_login("me", "pw"))),
        ("valkey://me:p,w@h", with(Tcp, &|e| e.with_login("me", "p,w"))),
        ("valkey://m%40e:p%3A%2F%25%C3%A9+@h", with(Tcp, &|e| e.with_login("m@e", "p:/%é+"))),
        ("valkey://h?password_file=/run/pw", with(Tcp, &|e| e.with_password_file("", "/run/pw"))),
        ("rdma://m%40e@h?password_file=p%20w", with(Rdma, &|e| e.with_password_file("m@e", "p w"))),
        ("rdma://h?protocol=resp2", with(Rdma, &|e| e.with_protocol(Protocol::Resp2))),
        ("rdma://h?protocol=resp3", base(Rdma)),
        ("rdma://h/?rx_size=65536", with(Rdma, &|e| e.with_rx_size(65536))),
        ("rdma://h?poll=event", with(Rdma, &|e| e.with_polling(Polling::Event))),
        ("rdma://h?rx_size=16777216", with(Rdma, &|e| e.with_rx_size(16_777_216))),
        ("rdma://h?send_buffer=131072", with(Rdma, &|e| e.with_send_buffer(131_072))),
        ("rdma://h?side_buffers=262144", with(Rdma, &|e| e.with_side_buffers(262_144))),
        ("emulated://h?device=rxe0", with(Emulated, &|e| e.with_device("rxe0"))),
        ("rdma://h?poll=busy", with(Rdma, &|e| e.with_polling(Polling::Busy))),
        ("emulated://h?poll=adaptive", with(Emulated, &|e| e.with_polling(Polling::Adaptive))),
        ("rdma://h?gid=3", with(Rdma, &|e| e.with_gid(3))),
        ("rdma://h?source=10.0.0.2", with(Rdma, &|e| e.with_source([10, 0, 0, 2].into()))),
        ("rdma://h?timeout=250ms", with(Rdma, &|e| e.with_timeout(Duration::from_millis(250)))),
        ("rdma://h?timeout=3s", with(Rdma, &|e| e.with_timeout(Duration::from_secs(3)))),
        ("rdma://h?timeout=2m", with(Rdma, &|e| e.with_timeout(Duration::from_secs(120)))),
    ];
    for (url, expected) in table {
        assert_eq!(parse(url).as_ref(), Ok(&expected), "{url}");
    }
}

#[test]
fn the_zone_of_a_link_local_address_survives() {
    for (url, host) in [
        ("rdma://[fe80::1%25eth0]:7000", "fe80::1%eth0"),
        ("rdma://[fe80::1%eth0]:7000", "fe80::1%eth0"),
        ("valkey://[FE80:0::1%253]:7000/2", "fe80::1%3"),
        ("emulated://[fe80::1%3]:7000?rx_size=65536", "fe80::1%3"),
        ("valkey://me:p%25w[%25x]@[fe80::1%25a.b-c]:7000", "fe80::1%a.b-c"),
    ] {
        let endpoint = parse(url).expect(url);
        assert_eq!((endpoint.host(), endpoint.port()), (host, 7000), "{url}");
        assert!(endpoint.to_url().contains("[fe80::1%25"), "{}", endpoint.to_url());
        assert_eq!(parse(&endpoint.to_url()), Ok(endpoint), "{url}");
    }
    for zone in ["25", "253", "25eth0", "a b", "vlan@1", "%"] {
        let built = Endpoint::new(Transport::Tcp, format!("fe80::1%{zone}"), 6379);
        assert_eq!(parse(&built.to_url()), Ok(built), "{zone}");
    }
    let sentinels = parse("valkey+sentinel://[fe80::1%25eth0],[fe80::2%eth1]:7/m").expect("a good URL");
    assert_eq!(
        sentinels.sentinels().expect("sentinels").to_string(),
        "[fe80::1%eth0]:26379,[fe80::2%eth1]:7"
    );
    assert_eq!(parse(&sentinels.to_url()), Ok(sentinels));
}

#[test]
fn bad_urls_are_refused_with_what_is_allowed() {
    let table = [
        ("", "not a URL"),
        ("localhost:6379", "not a URL"),
        ("http://h", "unknown URL scheme \"http\": use rdma, emulated, valkey or redis"),
        ("rediss://h#insecure", "verify=none"),
        ("redis://h?ssl=true", "for TLS use its scheme: valkeys://"),
        ("valkey://h?ca=/x", "makes sense with TLS only"),
        ("rdma://h?verify=none", "makes sense with TLS only"),
        ("valkeys://h?cert=/x", "cert=FILE needs key=FILE"),
        ("valkeys://h?verify=maybe", "full, ca or none"),
        ("valkeys://h?ca=", "the path of a file in PEM"),
        ("valkeys://h?key=%ff&cert=x", "%25"),
        ("valkey+sentinel://h/m?sentinel_tls=no", "only with a scheme of TLS"),
        ("valkeys+sentinel://h/m?sentinel_tls=yes", "use no, and only"),
        ("://h", "unknown URL scheme \"\""),
        ("valkey-cluster://h", "with +cluster behind it: valkey+cluster://"),
        ("valkey://a:1,b:2", "several hosts: those of a cluster need +cluster"),
        ("rdma://me:p,w@a,b/0", "several hosts"),
        ("valkey://h?db=1", "put the database after the port: /1"),
        ("rdma://", "names no host"),
        ("rdma://:6379", "host"),
        ("rdma:///0", "names no host"),
        ("rdma://h:0", "port 0"),
        ("rdma://h:65536", "port"),
        ("rdma://h:port", "port"),
        ("rdma://[::1", "IPv6"),
        ("rdma://h/zero", "bad database: expected a number"),
        ("rdma://h/1/2", "bad database"),
        ("rdma://h/-1", "bad database"),
        ("rdma://h/4294967296", "bad database"),
        ("rdma://me@h", "no password"),
        ("rdma://me@h?password_file=", "use the path of a file that holds the password"),
        ("rdma://me:pw@h?password_file=/run/pw", "a password and a file with a password"),
        ("valkey+sentinel://h/m?sentinel_password=x&sentinel_password_file=y", "a password and a file with"),
        ("valkey+sentinel://h/m?sentinel_user=x", "no password"),
        ("valkey://h?sentinel_password_file=y", "unknown URL option"),
        ("rdma://me:p%zz@h", "%25"),
        ("rdma://me:p%4@h", "%25"),
        ("rdma://me:%ff@h", "%25"),
        ("rdma://me:p#w@h", "%23"),
        ("rdma://h#x", "%23"),
        ("rdma://me:1/w@h", "%2F"),
        ("rdma://me:p?w@h", "%3F"),
        ("rdma://h?colour=blue", "unknown URL option \"colour\": use protocol,"),
        ("rdma://h?protocol=resp4", "bad value \"resp4\" for option protocol: use resp2 or resp3"),
        ("rdma://h?protocol", "a URL option has no value"),
        ("rdma://h?protocol=resp2&protocol=resp3", "given twice"),
        ("rdma://h?timeout=5", "500ms"),
        ("rdma://h?timeout=0s", "above 0"),
        ("rdma://h?timeout=-5s", "500ms"),
        ("rdma://h?timeout=5h", "500ms"),
        ("rdma://h?timeout=s", "500ms"),
        ("rdma://h?timeout=99999999999999999999s", "500ms"),
        ("rdma://h?timeout=999999999999999999m", "500ms"),
        (
            "rdma://h?rx_size=0",
            "bad value \"0\" for option rx_size: use a number of bytes from 65536 to 16777216",
        ),
        ("rdma://h?rx_size=65535", "from 65536 to 16777216"),
        (
            "rdma://h?send_buffer=65535",
            "bad value \"65535\" for option send_buffer: use a number of bytes from 65536 to 16777216",
        ),
        (
            "rdma://h?side_buffers=65535",
            "bad value \"65535\" for option side_buffers: use a number of bytes from 65536 to 16777216",
        ),
        ("rdma://h?side_buffers=16777217", "from 65536 to 16777216"),
        ("rdma://h?side_buffers=64k", "from 65536 to 16777216"),
        ("rdma://h?rx_size=16777217", "from 65536 to 16777216"),
        ("rdma://h?rx_size=1073741824", "from 65536 to 16777216"),
        ("rdma://h?rx_size=1M", "number of bytes"),
        ("rdma://h?rx_size=4294967296", "number of bytes"),
        ("rdma://h?device=", "name of an RDMA device"),
        ("rdma://h?poll=never", "bad value \"never\" for option poll: use event, busy or adaptive"),
        ("rdma://h?poll=Busy", "use event, busy or adaptive"),
        ("rdma://h?poll=", "use event, busy or adaptive"),
        ("valkey://h?fallback=tcp", "option fallback makes no sense over TCP"),
        ("rdma://h?fallback=rdma", "use tcp"),
        ("rdma://h?source=eth0", "bad value \"eth0\" for option source: use an IP address"),
        ("valkey://h?rx_size=65536", "rx_size makes no sense over TCP"),
        ("valkey://h?send_buffer=65536", "send_buffer makes no sense over TCP"),
        ("valkey://h?side_buffers=65536", "side_buffers makes no sense over TCP"),
        ("rdma://h?gid=first", "use the index of a GID"),
        ("rdma://h?source=localhost", "use an IP address of this machine"),
        ("valkey://h?gid=1", "option gid makes sense with rdma:// only"),
        ("emulated://h?source=127.0.0.1", "option source makes no sense on the emulated device"),
        ("redis://h?device=rxe0", "device makes no sense over TCP"),
        ("valkey://h?poll=event", "poll makes no sense over TCP"),
    ];
    for (url, expected) in table {
        let text = parse(url).expect_err(url).to_string();
        assert!(text.contains(expected), "{url}: {text}");
        assert!(!text.contains('\n'), "{url}: {text}");
    }
}

#[test]
fn schemes_are_read_in_upper_case_too() {
    for (url, same) in [
        ("VALKEY://h", "valkey://h"),
        ("valkey+SENTINEL://s/m", "valkey+sentinel://s/m"),
        ("RDMA+Sentinel://s/m?sentinel_password=p", "rdma+sentinel://s/m?sentinel_password=p"),
    ] {
        assert_eq!(parse(url), parse(same), "{url}");
        assert!(parse(same).is_ok(), "{same}");
    }
}

#[test]
fn the_table_in_the_documentation_has_every_option() {
    let documented: Vec<&str> = include_str!("settings.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("/// | `")?.split_once("=` |").map(|(name, _)| name))
        .collect();
    let names = options::OPTIONS.iter().map(|option| option.name);
    let ordinary: Vec<&str> = names.filter(|name| !name.starts_with("sentinel_")).collect();
    assert_eq!(documented, ordinary);
    let text = parse("rdma://h?colour=blue").expect_err("no option").to_string();
    let all = "use protocol, timeout, password_file, rx_size, send_buffer, side_buffers, device, gid, source, poll, fallback, \
               rdma_port or direct_prefix; with TLS also ca, cert, key, server_name, verify, ciphers and ciphersuites; \
               with Sentinels also sentinel_tls, sentinel_user, sentinel_password and sentinel_password_file";
    assert!(text.ends_with(all), "{text}");
}

#[test]
fn passwords_are_never_shown() {
    let endpoint = parse("rdma://me:hush@[::1]:7000/3").expect("good");
    assert_eq!(endpoint.to_string(), "rdma://me:***@[::1]:7000/3");
    assert!(!format!("{endpoint:?}").contains("hush"));
    for url in [
        "rdma://me:hush#@h",
        "rdma://me:hush@",
        "rdma://me:hush%@h",
        "http://me:hush@h",
        "rdma://:hush@h/x",
        "rdma://me:hush/@h",
        "rdma://me:1/hush@h",
        "rdma://me:?hush@h",
        "rdma://hush/hush@h",
        "rdma://me:1?x=hush@h",
    ] {
        let error = parse(url).expect_err(url);
        assert!(!format!("{error} {error:?}").contains("hush"), "{url}: {error}");
    }
}

#[test]
fn an_endpoint_built_in_code_is_checked_too() {
    let endpoint = || Endpoint::new(Transport::Tcp, "h", 6379);
    assert_eq!(endpoint().check(), Ok(()));
    let sized = endpoint().with_rx_size(65_536);
    assert_eq!(sized.check(), Err(EndpointError::NotOnTcp { option: "rx_size" }));
    let busy = endpoint().with_polling(Polling::Busy);
    assert_eq!(busy.check(), Err(EndpointError::NotOnTcp { option: "poll" }));
}

/// Clause W-2: more, or less, can end a reference server.
#[test]
fn window_lengths_that_a_server_may_not_survive_are_refused_in_code_too() {
    let endpoint = |bytes| Endpoint::new(Transport::Rdma, "h", 6379).with_rx_size(bytes);
    for bytes in [65_536, 1 << 20, 16_777_216] {
        assert_eq!(endpoint(bytes).check(), Ok(()), "{bytes}");
    }
    for bytes in [0, 1, 65_535, 16_777_217, 1 << 30, u32::MAX] {
        let error = endpoint(bytes).check().expect_err("out of range");
        let text =
            format!("bad value \"{bytes}\" for option rx_size: use a number of bytes from 65536 to 16777216");
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn every_option_of_the_transport_reaches_its_settings() {
    let url = "rdma://10.0.0.7?rx_size=65536&device=mlx5_1&gid=3&source=10.0.0.9&poll=busy";
    let settings = format!("{:?}", url.parse::<Endpoint>().expect("a good URL").transport_config());
    for expected in ["65536", "mlx5_1", "Some(3)", "10.0.0.9", "Busy"] {
        assert!(settings.contains(expected), "{expected} in {settings}");
    }
}

#[test]
fn the_url_of_an_endpoint_means_the_same_endpoint() {
    for url in [
        "rdma://h",
        "valkey://:p%40%20w%25@[::1]:7000/3?protocol=resp2",
        "rdma://us%3Aer:%2F%3F%23@h?timeout=250ms&rx_size=65536&device=mlx5_0&gid=3&source=10.0.0.2&poll=busy&fallback=tcp",
        "rdma://h?rdma_port=%2B100&timeout=2m",
        "emulated+sentinel://u:p%40@a,[::1],b:7/my%20one%2F/3?sentinel_user=w&sentinel_password=%26%3D&rdma_port=discover",
    ] {
        let endpoint = parse(url).expect(url);
        assert_eq!(parse(&endpoint.to_url()), Ok(endpoint.clone()), "{url}: {}", endpoint.to_url());
    }
    let located =
        Endpoint::new(Transport::Rdma, "h", 7000).with_sentinels(Sentinels::new("m", [("s", 26379)]));
    assert_eq!(parse(&located.to_url()), Ok(located));
}

/// C and Python show what these errors say. No three characters of the password may be in it.
#[test]
fn no_error_shows_a_part_of_a_password() {
    for (url, secrets) in [
        ("u:Zq7Xw4://Kv3Jy8@h:1", "Zq7Xw4 Kv3Jy8"),
        ("://u:Zq7Xw4@h", "Zq7Xw4"),
        ("rdma://u:1/Zq7Xw4", "Zq7Xw4"),
        ("rdma://:/Zq7Xw4", "Zq7Xw4"),
        ("rdma://u:1?Zq7Xw4", "Zq7Xw4"),
        ("rdma://u:?Zq7&Xw4", "Zq7 Xw4"),
        ("rdma+sentinel://u:Zq7#Xw4@h/m?gid=x", "Zq7 Xw4"),
        ("rdma+sentinel://h/m/Zq7Xw4?sentinel_user=u", "Zq7Xw4"),
        ("rdma+sentinel://u:Zq7%Xw4@h/m", "Zq7%Xw4"),
        ("rdma://u:Zq7/Xw4@h", "Zq7 Xw4"),
        ("rdma://u:Zq7#Xw4", "Zq7 Xw4"),
    ] {
        let error = url.parse::<Endpoint>().expect_err(url);
        let shown = format!("{error} {error:?}");
        for part in secrets.split(' ').flat_map(|secret| (3..=secret.len()).map(|end| &secret[end - 3..end]))
        {
            assert!(!shown.contains(part), "{url}: {part} is in {shown}");
        }
    }
}

#[test]
fn an_option_without_a_value_is_refused() {
    for url in ["rdma://h?device", "rdma://h?gid=1&device", "rdma+sentinel://h/m?timeout"] {
        assert_eq!(url.parse::<Endpoint>(), Err(EndpointError::OptionWithoutValue), "{url}");
    }
    assert!("rdma://h?".parse::<Endpoint>().is_ok() && "rdma://h?gid=1&".parse::<Endpoint>().is_ok());
}
