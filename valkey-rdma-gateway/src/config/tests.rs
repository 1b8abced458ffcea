use super::*;

#[test]
fn a_file_is_read() {
    let text = r#"
            metrics = "127.0.0.1:9121"
            [limits]
            clients = 7
            [[route]]
            listen = ["unix:/run/v.sock", "tcp:127.0.0.1:6379"]
            server = "valkey://10.0.0.7"
            [[route]]
            listen = ["tcp:127.0.0.1:6380"]
            server = "redis://10.0.0.8"
            share = "never"
            [[route]]
            listen = ["tcp:127.0.0.1:6381"]
            server = ["valkey://10.0.0.9", "valkey://10.0.0.10"]
            cluster = true
        "#;
    let config = Config::parse(text).unwrap();
    assert_eq!((config.limits.clients, config.limits.upstreams), (7, 256));
    assert_eq!((config.routes[0].listen.len(), config.routes[1].share), (2, Share::Never));
    let clusters: Vec<_> = config.routes.iter().map(|route| (route.servers.len(), route.cluster)).collect();
    assert_eq!(clusters, [(1, false), (1, false), (2, true)]);
}

#[test]
fn mistakes_are_named() {
    let route = |rest: &str| format!("[[route]]\nlisten = [\"tcp:127.0.0.1:1\"]\n{rest}");
    for (text, part) in [
        ("", "missing field `route`"),
        ("route = []", "needs a [[route]]"),
        (&route("server = \"http://x\""), "server \"http://***\""),
        (&route("server = \"valkey://x\"\nsahre = \"auto\""), "sahre"),
        (&route("server = \"valkey://x\"\nshare = \"some\""), "some"),
        (&route("server = 7"), "a URL, or a list of URLs"),
        (&route("server = []"), "needs the URL of a server"),
        ("[[route]]\nlisten = []\nserver = \"valkey://x\"", "listen = []: it needs an address"),
        (&route("server = [\"valkey://x\", \"valkey://y\"]"), "cluster = true"),
        (&route("server = \"valkey+cluster://x\""), "the URL is that of a cluster: --cluster, or"),
        (&route("server = [\"valkey://x\", \"rdma://y\"]\ncluster = true"), "the same for all servers"),
        (&route("server = \"valkey://x\"\ncluster = true\nshare = \"never\""), "needs each command's keys"),
        (&route("server = \"valkey://x\"\n[limits]\ncommand_bytes = 1"), "1024 to 16777216"),
        (&[route("server = \"valkey://x\"\n"), route("server = \"valkey://x\"")].concat(), "twice"),
        (&route("server = \"valkey://user:secret@x:99999\""), "server \"valkey://***\""),
        (&route("server = \"valkey://user:secret@x"), "line 3: "),
        (&route("server = \"valkey://x\"\nuser = \"app\""), "user = \"app\" needs a password_file"),
        (
            &route("server = \"valkey://x\"\npassword_file = \"/no/file\""),
            "password_file \"/no/file\": No such file",
        ),
        ("[[route]]\nlisten = \"valkey://user:secret@x\"", "line 2: listen: a value is not of the kind"),
        (
            "[[route]]\nlisten = [\"tcp://user:secret@x\", \"tcp:1\"]\nserver = \"valkey://x\"",
            "cannot listen on \"tcp:1\"",
        ),
        (
            "[[route]]\nlisten = \"rdma+sentinel://x/m?sentinel_password=secret\"",
            "line 2: listen: a value is not",
        ),
        (
            &route("server = \"rdma+sentinel://x/m?sentinel_password=secret&bogus=1\""),
            "\"rdma+sentinel://***\": ",
        ),
        (&route("server = [\n\"valkey://a:secret@x?timeout=5s\" \"valkey://y\"]"), "line 4: "),
        (&route("server = [\n\"valkey://a:secret@x?timeout=5s\", 7]"), "line "),
        (
            &route("server = \"valkey://x\"\n[limits]\nclients = \"7\""),
            "line 5: clients: invalid type: string \"7\", expected a whole number",
        ),
    ] {
        let error = Config::parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{part} in: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn all_that_is_of_the_wrong_kind_is_named_at_once() {
    let text = r#"metrics = "9121"
[[route]]
listen = 7
server = "valkey://x"
sahre = "auto"
share = "some"
[limits]
clients = "many"
"#;
    let error = Config::parse(text).unwrap_err();
    let each: Vec<_> = error.each().iter().map(ToString::to_string).collect();
    assert_eq!(each.len(), 5, "{each:#?}");
    for (part, number) in [("metrics: ", 1), ("listen: ", 3), ("sahre", 5), ("some", 6), ("clients: ", 8)] {
        let line = format!("configuration: line {number}: ");
        assert!(each.iter().any(|each| each.contains(part) && each.starts_with(&line)), "{part} {each:#?}");
    }
    assert!(each.iter().any(|each| each.contains("ADDR:PORT")), "{each:#?}");
}

#[test]
fn all_mistakes_are_named_at_once_each_with_its_route() {
    let route = "[[route]]\nlisten = [\"tcp:127.0.0.1:1\"]\n";
    let other = "[[route]]\nlisten = [\"tcp:127.0.0.1:1\", \"tcp:127.0.0.1:2\"]\n";
    let text = format!(
        "metrics = \"127.0.0.1:2\"\n{route}server = []\nuser = \"app\"\n{other}server = \"valkey://y\"\n[limits]\nclients = 0\nupstreams = 1\n"
    );
    let error = Config::parse(&text).unwrap_err();
    let each: Vec<_> = error.each().iter().map(ToString::to_string).collect();
    assert_eq!(
        each,
        [
            "configuration: limits.clients = 0: at least 1",
            "configuration: limits.upstreams = 1: at least 2",
            "route 1: configuration: user = \"app\" needs a password_file",
            "route 1: configuration: a route needs the URL of a server",
            "route 2: configuration: tcp:127.0.0.1:1 is there twice",
            "route 2: configuration: tcp:127.0.0.1:2 is there twice",
        ]
    );
    assert_eq!(error.to_string(), format!("6 mistakes: {}", each.join("; ")));
}

#[test]
fn what_has_no_meaning_does_not_hide_what_is_wrong() {
    let text = r#"metrics = "9121"
[[route]]
listen = []
server = "valkey://x:99999"
[[route]]
listen = ["tcp:127.0.0.1:1"]
server = ["http://x", "ftp://y"]
sahre = "auto"
cluster = true
"#;
    let error = Config::parse(text).unwrap_err();
    let each: Vec<_> = error.each().iter().map(ToString::to_string).collect();
    let parts = ["line 1: metrics", "line 8: ", "route 1: server", "route 1: configuration: listen = []"];
    assert_eq!(each.len(), 6, "{each:#?}");
    for (each, part) in each
        .iter()
        .zip(parts.iter().chain(&["\"http://***, number 1 of 2\"", "\"ftp://***, number 2 of 2\""]))
    {
        assert!(each.contains(part), "{part} in: {each}");
    }
    // The line that was left out would have said that it is a cluster.
    let route = "[[route]]\nlisten = [\"tcp:127.0.0.1:1\"]\nserver = [\"valkey://x\", \"valkey://y\"]\n";
    let error = Config::parse(&format!("{route}cluster = \"yes\"\n")).unwrap_err();
    assert_eq!(error.each().len(), 1, "{error}");
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_named() {
    let route = |len: usize| {
        let path = format!("/{}", "x".repeat(len - 1));
        Config::parse(&format!("[[route]]\nlisten = [\"unix:{path}\"]\nserver = \"valkey://x\"\n"))
    };
    assert!(route(107).is_ok());
    let error = route(108).unwrap_err().to_string();
    assert!(error.contains("the path has 108 bytes, and that of a Unix socket at most 107"), "{error}");
}

#[test]
fn all_addresses_that_are_none_are_named() {
    let text = |between: &str| {
        format!(
            "[[route]]\nlisten = [{between}\"tcp:6379\",{between}\"tcp:127.0.0.1:1\",{between}\"udp:1.2.3.4:5\"]\nserver = \"valkey://x\"\n[limits]\nclients = 0\nupstreams = \"many\"\n"
        )
    };
    for between in ["", "\n  "] {
        let error = Config::parse(&text(between)).unwrap_err();
        let each: Vec<_> = error.each().iter().map(ToString::to_string).collect();
        assert_eq!(each.len(), 3, "{each:#?}");
        let named = ["line 2: ", "\"tcp:6379\"", "\"udp:1.2.3.4:5\""];
        assert!(named.iter().all(|part| each[0].contains(part)), "{each:#?}");
        assert!(each[1].contains("upstreams: "), "{each:#?}");
        // The mistake in the route does not hide this one.
        assert!(each[2].contains("limits.clients = 0: at least 1"), "{each:#?}");
    }
}

#[test]
fn a_socket_in_a_directory_that_is_missing_is_doubtful() {
    let config = |path: &str| {
        Config::parse(&format!("[[route]]\nlisten = [\"unix:{path}\"]\nserver = \"valkey://x\"\n")).unwrap()
    };
    let doubts = config("/no/such/v.sock").doubts();
    assert!(doubts.len() == 1 && doubts[0].contains("there is no directory /no/such;"), "{doubts:?}");
    assert!(config("/v.sock").doubts().is_empty() && config("v.sock").doubts().is_empty());
}
