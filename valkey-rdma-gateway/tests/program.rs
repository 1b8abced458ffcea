//! The program from its start to its end. Not in the package, which has no test kit.

#![cfg(feature = "emulated")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "gateway/support.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod support;

#[path = "gateway/scripted.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod scripted;

#[path = "program/descriptors.rs"]
mod descriptors;

#[path = "program/log.rs"]
mod log;

#[path = "program/offline.rs"]
mod offline;

#[path = "program/passed.rs"]
mod passed;

#[path = "program/tls.rs"]
#[cfg(feature = "tls")]
mod tls;

#[path = "program/refusals.rs"]
mod refusals;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use valkey_rdma_mock::{Mock, Server};
use valkey_rdma_testkit::{Child, ReservedPort, Signal};

use support::{Client, PATIENCE, encode, mock_with, socket_path};

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_valkey-rdma-gateway"));
    command.args(args).env_remove("RUST_LOG");
    command
}

#[test]
fn a_wrong_flag_is_refused_in_one_line() {
    let refused = program(&["--nosuch"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(text, "error: unexpected argument '--nosuch' found; see --help\n");
}

/// Before, the reason was hidden because a URL may have a password.
#[test]
fn a_scheme_that_no_listener_has_is_answered_with_those_that_there_are() {
    for line in [
        &["--server", "valkey://h", "--listen", "tls://user:hush@127.0.0.1:6379"][..],
        &["--server", "valkey://h", "--listen", "valkeys://127.0.0.1:6379"],
    ] {
        let output = program(line).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains("use unix:PATH, tcp:ADDR:PORT, rdma:ADDR:PORT, or with TLS tls:ADDR:PORT"),
            "{text}"
        );
        assert!(!text.contains("hush") && text.lines().count() == 1, "{text}");
    }
    let line =
        ["--listen", "tcp:127.0.0.1:0", "--server", "valkey://h", "--metrics", "http://127.0.0.1:9121"];
    let output = program(&line).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("'--metrics <ADDR:PORT>': not an address and port: use ADDR:PORT"), "{text}");
}

#[test]
fn an_address_that_top_does_not_connect_to_is_answered_with_those_that_it_does() {
    for address in ["/run/valkey.sock", "valkey://user:hush@127.0.0.1:6379", "rdma:127.0.0.1:6379"] {
        let output = program(&["top", address]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("'<ADDRESS>': top connects to unix:PATH or tcp:ADDR:PORT; see"), "{text}");
        assert!(!text.contains("hush") && text.lines().count() == 1, "{text}");
    }
}

/// Before, an address of the emulated device, or of an RDMA device, was refused without a reason.
#[test]
fn an_address_that_it_cannot_listen_on_comes_with_the_reason_and_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let socket = socket_path();
    let unix = format!("unix:{}", socket.display());
    for (args, status, parts) in [
        (
            ["--listen", &format!("emulated:{taken}")],
            1,
            ["Address already in use", "stop the program that listens there"],
        ),
        (
            ["--listen", &format!("tcp:{taken}")],
            1,
            ["Address already in use", "stop the program that listens there"],
        ),
        (
            ["--metrics", &taken.to_string()],
            1,
            ["Address already in use", "stop the program that listens there"],
        ),
        (["--listen", "tcp:203.0.113.1:1"], 1, ["Cannot assign requested address", "`ip address`"]),
        (["--listen", "tcp:[fe80::1]:6379"], 1, ["Invalid argument", "as in fe80::1%eth0"]),
        (
            ["--listen", "emulated:[fe80::1%nosuch0]:1"],
            2,
            ["cannot listen", "no network interface `nosuch0`"],
        ),
        (["--metrics", "[fe80::1%nosuch0]:1"], 2, ["--metrics", "no network interface `nosuch0`"]),
    ] {
        let listen = if args[0] == "--metrics" { vec!["--listen", &unix] } else { vec![] };
        let refused =
            program(&args).args(listen).args(["--server", "valkey://127.0.0.1:1"]).output().unwrap();
        let text = String::from_utf8_lossy(&refused.stderr);
        let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!((refused.status.code(), errors.len()), (Some(status), 1), "{args:?}: {text}");
        for part in parts {
            assert!(errors[0].contains(part), "{args:?}: {text}");
        }
    }
}

#[test]
fn the_check_says_where_direct_transfers_are_offered() {
    let lines = |more: &[&str]| {
        let flags = [
            "--listen",
            "unix:/run/vrg",
            "--listen",
            "rdma:127.0.0.1:1",
            "--server",
            "valkey://127.0.0.1:1",
            "--check",
        ];
        let checked = program(&[&flags, more].concat()).output().unwrap();
        (
            checked.status.code(),
            String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned(),
        )
    };
    let valid =
        |first: &str| (Some(0), format!("rdma:127.0.0.1:1 offers {first}\nthe configuration is valid\n"));
    assert_eq!(lines(&[]), valid("direct transfers by BLOB.GET and BLOB.SET"));
    assert_eq!(lines(&["--direct-prefix", "LO"]), valid("direct transfers by LO.GET and LO.SET"));
    assert_eq!(lines(&["--direct", "off"]), valid("no direct transfers"));
    assert_eq!(lines(&["--share", "never"]), valid("no direct transfers"));
    for wrong in [["--direct-prefix", ""], ["--direct-prefix", "A B"], ["--direct", "yes"]] {
        assert_eq!(lines(&wrong).0, Some(2), "{wrong:?}");
    }
}

// The mock must answer while the test waits for the program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_checks_reloads_reports_and_stops() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let (socket, other, file) = (socket_path(), socket_path(), socket_path().with_extension("toml"));
    let text = |path: &std::path::Path| {
        format!("[[route]]\nlisten = [\"unix:{}\"]\nserver = \"{url}\"\n", path.display())
    };
    std::fs::write(&file, "route = []\n[limits]\nclients = 0").unwrap();
    let file_name = file.to_str().unwrap();
    let checked = program(&["--config", file_name, "--check"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(2), "{checked:?}");
    let expected = format!("error: {file_name}: configuration: limits.clients = 0: at least 1\n");
    assert_eq!(String::from_utf8_lossy(&checked.stderr), expected);
    std::fs::write(&file, text(&socket)).unwrap();
    assert!(program(&["--config", file_name, "--check"]).status().unwrap().success());

    let notifications = socket_path();
    let systemd = UnixDatagram::bind(&notifications).unwrap();
    let mut command = program(&["--config", file_name]);
    command.env("NOTIFY_SOCKET", &notifications);
    let mut child = Child::start(&mut command).unwrap();
    assert_eq!(child.line_with("ready ", PATIENCE).unwrap(), format!("ready unix:{}", socket.display()));
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 32];
    let len = systemd.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"READY=1");

    let connect =
        async |path: &std::path::Path| Client::new(tokio::net::UnixStream::connect(path).await.unwrap());
    let mut client = connect(&socket).await;
    assert_eq!(client.say("SET k v").await, "OK");
    let top = program(&["top", &format!("unix:{}", socket.display()), "--once"]).output().unwrap();
    let table = String::from_utf8_lossy(&top.stdout);
    assert!(table.contains("2 clients, 0 bytes unread; 1 of 256 connections"), "{table}");
    // Second by second, into a pipe.
    let top = Child::start(&mut program(&["top", &format!("unix:{}", socket.display())])).unwrap();
    top.lines("valkey-rdma-gateway ", 2, PATIENCE).unwrap();
    assert!(!top.stdout().contains('\x1b'), "{}", top.stdout());
    drop(top);
    std::fs::write(&file, text(&other)).unwrap();
    child.signal(Signal::HUP);
    child.line_with(&format!("ready unix:{}", other.display()), PATIENCE).unwrap();
    assert_eq!(client.say("GET k").await, "v", "the listener is gone, its client is not");
    assert_eq!(connect(&other).await.say("GET k").await, "v");
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    client.expect_end().await;
    assert!(!other.exists(), "the socket is removed");
    std::fs::remove_file(&file).unwrap();
    std::fs::remove_file(&notifications).unwrap();
}

#[tokio::test]
async fn top_shows_a_gateway_whose_server_is_away() {
    // Bound, so that nothing else takes the port, and refused: nothing listens on it.
    let reserved = ReservedPort::new();
    let server = format!("valkey://{}", reserved.addr());
    let socket = socket_path();
    let listen = format!("unix:{}", socket.display());
    let child = Child::start(&mut program(&["--listen", &listen, "--server", &server])).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    let mut client = Client::new(tokio::net::UnixStream::connect(&socket).await.unwrap());
    client.send(encode(["GET", "k"])).await;
    // The first attempt to connect may not have failed yet.
    let table = loop {
        let top = program(&["top", &listen, "--once"]).output().unwrap();
        assert!(top.status.success(), "{top:?}");
        let table = String::from_utf8_lossy(&top.stdout).into_owned();
        if table.contains("not connected: ") {
            break table;
        }
    };
    assert!(table.contains(&server) && table.contains(" clients, "), "{table}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_at_the_address_of_a_server_says_that_no_gateway_answers() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let address = url.replace("valkey://", "tcp:");
    let top = program(&["top", &address, "--once"]).output().unwrap();
    let text = String::from_utf8_lossy(&top.stderr);
    assert_eq!(top.status.code(), Some(1), "{text}");
    assert!(text.contains("no gateway answers here: this is the server's own address"), "{text}");
}

/// Ends a server, so that another can listen there. A process that another test starts right now has its listener until it runs its program.
async fn shut_down(server: Server, listens: SocketAddr) {
    server.shutdown().await;
    while tokio::net::TcpStream::connect(listens).await.is_ok() {}
}

// With `share=never` no shared connection shows that the server is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_logged_once_whatever_the_number_of_clients() {
    let reserved = ReservedPort::new();
    let port = reserved.addr();
    let socket = socket_path();
    let (listen, server) = (format!("unix:{}", socket.display()), format!("valkey://{port}"));
    let mut command = program(&["--listen", &listen, "--server", &server, "--share", "never"]);
    let mut child = Child::start(&mut command).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    for _outage in 0..2 {
        for _ in 0..3 {
            let mut client = Client::new(tokio::net::UnixStream::connect(&socket).await.unwrap());
            client.expect_end().await;
        }
        let started = Server::builder(Mock::new()).tcp(port).start().await.unwrap();
        let mut client = Client::new(tokio::net::UnixStream::connect(&socket).await.unwrap());
        assert_eq!(client.say("PING").await, "PONG");
        shut_down(started, port).await;
    }
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    let log = child.stderr();
    assert_eq!(log.matches("cannot connect for a client").count(), 2, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_login_of_the_url_is_logged_and_the_password_is_not() {
    let (_server, _, url) = mock_with(Mock::new().requirepass("right")).await;
    let (socket, server) = (socket_path(), url.replace("://", "://:s3cret@"));
    let listen = format!("unix:{}", socket.display());
    let mut child =
        Child::start(&mut program(&["--listen", &listen, "--server", &server, "--share", "never"])).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    let mut client = Client::new(tokio::net::UnixStream::connect(&socket).await.unwrap());
    let reply = support::text(&client.reply().await);
    assert!(reply.starts_with("-WRONGPASS "), "{reply}");
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    let log = child.stderr();
    assert!(log.contains("cannot connect for a client") && !log.contains("s3cret"), "{log}");
}

// The alert about refused logins says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_names_the_users_whose_logins_are_refused_and_no_passwords() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let socket = socket_path();
    let listen = format!("unix:{}", socket.display());
    let mut child = Child::start(&mut program(&["--listen", &listen, "--server", &url])).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    let mut client = Client::new(tokio::net::UnixStream::connect(&socket).await.unwrap());
    assert_eq!(client.say("CLIENT SETNAME shop").await, "OK");
    for _ in 0..50 {
        let reply = client.say("AUTH app s3cret").await;
        assert!(reply.starts_with("-WRONGPASS "), "{reply}");
    }
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    let log = child.stderr();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("login of a client refused")).collect();
    assert!((1..50).contains(&lines.len()), "{log}");
    assert!(lines[0].contains("app") && lines[0].contains("shop") && lines[0].contains("vrg-"), "{log}");
    assert!(!log.contains("s3cret"), "{log}");
}

/// The next state that a program reports to systemd.
fn reported(systemd: &UnixDatagram) -> String {
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 1024];
    let len = systemd.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..len]).into_owned()
}

// As with LoadCredential= in a unit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_a_credential_is_read_again_and_is_never_logged() {
    let (_server, _, url) = mock_with(Mock::new().requirepass("s3cret-one")).await;
    let folder = socket_path().with_extension("folder");
    std::fs::create_dir(&folder).unwrap();
    let (socket, config, password) =
        (folder.join("socket"), folder.join("config.toml"), folder.join("password"));
    let text = format!(
        "[[route]]\nlisten = [\"unix:{}\"]\nserver = \"{url}\"\npassword_file = \"password\"\n",
        socket.display()
    );
    std::fs::write(&config, text).unwrap();
    let gateway = |arguments: &[&str]| {
        let mut command = program(&["--config", config.to_str().unwrap()]);
        command.args(arguments).env("CREDENTIALS_DIRECTORY", &folder);
        command
    };

    let checked = gateway(&["--check"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(2), "{checked:?}");
    let message = format!(
        "error: {}: password_file {password:?}: No such file or directory (os error 2)\n",
        config.display()
    );
    assert_eq!(String::from_utf8_lossy(&checked.stderr), message);
    std::fs::write(&password, "s3cret-one\n").unwrap();
    assert!(gateway(&["--check"]).status().unwrap().success());

    let (notifications, log) = (folder.join("systemd"), folder.join("log"));
    let systemd = UnixDatagram::bind(&notifications).unwrap();
    let mut command = gateway(&[]);
    command.env("NOTIFY_SOCKET", &notifications).env("RUST_LOG", "trace");
    command.stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
    let mut child = command.spawn().unwrap();
    let signal = |name: &str| {
        let id = child.id().to_string();
        assert!(Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status().unwrap().success());
    };
    assert_eq!(reported(&systemd), "READY=1");
    let mut client = Client::new(tokio::net::UnixStream::connect(&socket).await.unwrap());
    assert_eq!(client.say("CONFIG SET requirepass s3cret-two").await, "OK");
    // The password alone has changed.
    std::fs::write(&password, "s3cret-two\n").unwrap();
    signal("HUP");
    assert_eq!(reported(&systemd), "STATUS=configuration read again");
    // A private connection logs in.
    assert_eq!(client.say("WATCH k").await, "OK");
    std::fs::write(&password, "").unwrap();
    signal("HUP");
    let problem =
        format!("STATUS=the configuration has not changed: password_file {password:?}: it is empty");
    assert_eq!(reported(&systemd), problem);
    assert_eq!(client.say("GET k").await, "(nil)");
    signal("TERM");
    assert!(child.wait().unwrap().success());
    let output = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let printed = [std::fs::read_to_string(&log).unwrap(), output.collect()].concat();
    assert!(printed.contains("configuration read again") && !printed.contains("s3cret"), "{printed}");
    std::fs::remove_dir_all(&folder).unwrap();
}
