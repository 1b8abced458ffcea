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
            listen = "tcp:127.0.0.1:6380"
            server = "redis://10.0.0.8"
            share = "never"
            [[route]]
            listen = ["tcp:127.0.0.1:6381"]
            server = ["valkey://10.0.0.9", "valkey://10.0.0.10"]
            cluster = true
            direct = false
            direct_prefix = "LO"
        "#;
    let config = Config::parse(text).unwrap();
    let direct: Vec<Option<Arc<str>>> = config.routes.iter().map(RouteConfig::direct_prefix).collect();
    assert_eq!(direct, [Some::<Arc<str>>("BLOB".into()), None, None], "not without sharing");
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
        (&route("server = \"valkey://x\"\nshare = \"some\""), "line 4: share: \"some\" is not auto or never"),
        (&format!("metrics = \"9121\"\n{}", route("server = \"valkey://x\"")), "line 1: metrics: "),
        (
            "[[route]]\nlisten = [\n\"tcp:127.0.0.1:1\",\n\"tcp:6379\"]\nserver = \"valkey://x\"",
            "line 2: listen: cannot listen on \"tcp:6379\"",
        ),
        (&route("server = [\"valkey://x\", \"ftp://y\"]\ncluster = true"), "\"ftp://***, number 2 of 2\""),
        (
            &[route("server = \"valkey://x\"\n"), route("server = []")].concat(),
            "route 2: configuration: a route needs",
        ),
        (&route("server = 7"), "line 3: server: expected a string, or a list of strings"),
        (&route("server = []"), "needs the URL of a server"),
        ("[[route]]\nlisten = []\nserver = \"valkey://x\"", "listen = []: it needs an address"),
        (&route("server = [\"valkey://x\", \"valkey://y\"]"), "cluster: --cluster, or cluster = true"),
        (&route("server = \"valkey+cluster://x\""), "the URL is that of a cluster: --cluster, or"),
        (&route("server = [\"valkey://x\", \"rdma://y\"]\ncluster = true"), "the same for all servers"),
        (&route("server = \"valkey://x\"\ncluster = true\nshare = \"never\""), "needs each command's keys"),
        (&route("server = \"valkey://x\"\n[limits]\ncommand_bytes = 1"), "1024 to 16777216"),
        (
            &route("server = \"valkey://x\"\n[limits]\ndirect_bytes_total = 65536"),
            "at most direct_bytes_total",
        ),
        (&route("server = \"valkey://x\"\n[limits]\nclient_buffer_bytes = 1"), "65536 to 16777216"),
        (&[route("server = \"valkey://x\"\n"), route("server = \"valkey://x\"")].concat(), "twice"),
        (&route("server = \"valkey://user:secret@x:99999\""), "server \"valkey://***\""),
        (&route("server = \"valkey://user:secret@x"), "line 3: "),
        (&route("server = \"valkey://x\"\nuser = \"app\""), "user = \"app\" needs a password_file"),
        (&route("server = \"valkey://app@x?password_file=/p\""), "has a password_file in its URL"),
        (
            &route("server = \"valkey://x\"\npassword_file = \"/no/file\""),
            "password_file \"/no/file\": No such file",
        ),
        (
            "[[route]]\nlisten = \"valkey://user:secret@x\"",
            "line 2: listen: cannot listen on \"valkey://***\": use unix:PATH",
        ),
        ("[[route]]\nlisten = 7", "line 2: listen: expected a string, or a list of strings"),
        ("metrics = \"127.0.0.1:1\"\n[route]\nlisten = \"unix:v\"", "line 2: write [[route]]"),
        (
            "[[route]]\nlisten = [\"tcp://user:secret@x\", \"tcp:1\"]\nserver = \"valkey://x\"",
            "cannot listen on \"tcp://***\"",
        ),
        (
            "[[route]]\nlisten = \"rdma+sentinel://x/m?sentinel_password=secret\"",
            "line 2: listen: cannot listen on \"rdma+sentinel://***\"",
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
fn listeners_that_exclude_each_other_are_named() {
    let config = |metrics: &str, listen: &str| {
        let route = |listen: &str| format!("[[route]]\nlisten = \"{listen}\"\nserver = \"valkey://x\"\n");
        let (one, other) = (route(listen), route("tcp:127.0.0.1:6379"));
        Config::parse(&format!("metrics = \"{metrics}\"\n{one}{other}"))
    };
    let error = config("[::1]:1", "tcp:0.0.0.0:6379").unwrap_err().to_string();
    assert!(error.contains("route 2: configuration: tcp:0.0.0.0:6379 includes tcp:127.0.0.1:"), "{error}");
    let error = config("0.0.0.0:7", "tcp:10.0.0.1:7").unwrap_err().to_string();
    assert!(error.contains("tcp:0.0.0.0:7 includes tcp:10.0.0.1:7"), "{error}");
    let doubts = config("127.0.0.1:7", "tcp:[::]:7").unwrap().doubts();
    assert!(doubts.len() == 1 && doubts[0].contains("tcp:[::]:7 includes tcp:127.0.0.1:7"), "{doubts:?}");
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

#[test]
fn a_configuration_with_share_always_names_what_to_use() {
    let text = "[[route]]\nlisten = [\"tcp:127.0.0.1:1\"]\nserver = \"valkey://h\"\nshare = \"always\"\n";
    let error = Config::parse(text).unwrap_err().to_string();
    assert!(error.contains("line 4") && error.contains("share=always was removed: use auto"), "{error}");
}

#[test]
fn buffers_of_clients_pin_what_the_documentation_says() {
    let pinned = |client_buffer_bytes| {
        let transport = Limits { client_buffer_bytes, ..Limits::default() }.client_transport();
        (transport.pinned_bytes_at_first(), transport.pinned_bytes())
    };
    assert_eq!(pinned(Limits::default().client_buffer_bytes), (2_195_968, 3_244_544));
    assert_eq!(pinned(65_536), (229_888, 229_888));
}
