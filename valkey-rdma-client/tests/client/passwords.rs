//! Passwords that change: in a file, or supplied by the program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use valkey_rdma_client::{
    Backoff, Client, Command, Config, ConnectCause, Credentials, Endpoint, Error, PasswordError,
};
use valkey_rdma_mock::{DeviceKind, Mock, MockCluster, MockServer, Transports};
use valkey_rdma_testkit::{Folder, wait_until};

/// A folder with a password file. It goes with the test.
struct PasswordFile(Folder);

impl PasswordFile {
    fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let file = Self(Folder::new(name));
        file.write(content);
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("password")
    }

    /// Replaces the file at once, as Kubernetes and systemd do.
    fn write(&self, content: impl AsRef<[u8]>) {
        let next = self.0.path().join("next");
        fs::write(&next, content).expect("written");
        fs::rename(next, self.path()).expect("renamed");
    }

    fn url(&self, server: &str) -> String {
        format!("{server}?password_file={}", self.path().display())
    }
}

async fn server(password: &str) -> MockServer {
    MockServer::start_with(Mock::new().requirepass(password.to_owned())).await.expect("free ports")
}

async fn connect(url: &str) -> Result<Client, Error> {
    Client::connect(url).await
}

/// A connection with a password that is right now: it stays when the password changes.
async fn admin(server: &MockServer, password: &str) -> Client {
    let endpoint: Endpoint = server.tcp_url().parse().expect("a URL");
    Client::connect(endpoint.with_password(password)).await.expect("connected")
}

async fn run(client: &Client, command: &[&str]) {
    client.command(command.to_vec()).await.expect("runs");
}

fn cause(error: &Error) -> &ConnectCause {
    match error {
        Error::Connect(error) => error.cause(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_password_is_the_file_without_the_end_of_its_line() {
    let server = server("s3cret").await;
    for content in ["s3cret", "s3cret\n", "s3cret\r\n"] {
        let file = PasswordFile::new("line", content);
        for url in [server.url(), server.tcp_url()] {
            for url in [file.url(url), file.url(&url.replace("://", "://default@"))] {
                let client = connect(&url).await.unwrap_or_else(|error| panic!("{content:?}: {error:#}"));
                run(&client, &["PING"]).await;
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_password_file_is_named_and_not_quoted() {
    let server = server("s3cret").await;
    let file = PasswordFile::new("bad", "");
    let refused = async |expected: &str| {
        let error = connect(&file.url(server.url())).await.expect_err(expected);
        assert!(matches!(cause(&error), ConnectCause::Password(_)), "{error:?}");
        let text = format!("{error:#}");
        assert!(text.contains(&format!("password_file {:?}: ", file.path())), "{text}");
        assert!(text.contains(expected) && !text.contains("s3cret"), "{text}");
    };
    let long = "s3cret".repeat(1000);
    for (content, expected) in [
        (&b""[..], "it is empty"),
        (b"\n", "it is empty"),
        (b"s3cret\nmore\n", "more than one line"),
        (b"s3cret\0", "more than one line"),
        (b"s3cret\xff", "it is not UTF-8"),
        (long.as_bytes(), "longer than 4096 bytes"),
    ] {
        file.write(content);
        refused(expected).await;
    }
    fs::remove_file(file.path()).expect("removed");
    refused("No such file").await;
    fs::create_dir(file.path()).expect("a folder");
    refused("it is not a regular file").await;
}

#[cfg(unix)]
#[tokio::test]
async fn permissions_are_the_system_s_affair() {
    use std::os::unix::fs::PermissionsExt;
    let server = server("s3cret").await;
    let file = PasswordFile::new("rights", "s3cret\n");
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).expect("changed");
    connect(&file.url(server.url())).await.expect("no refusal");
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o000)).expect("changed");
    // Root may read it.
    if fs::read(file.path()).is_err() {
        let error = connect(&file.url(server.url())).await.expect_err("unreadable");
        assert!(error.to_string().contains("Permission denied"), "{error}");
    }
}

#[tokio::test]
async fn each_connection_beside_the_shared_one_has_the_password_of_now() {
    let server = server("one").await;
    let file = PasswordFile::new("beside", "one\n");
    let client = connect(&file.url(server.url())).await.expect("connected");
    file.write("two\n");
    run(&admin(&server, "one").await, &["CONFIG", "SET", "requirepass", "two"]).await;
    let mut dedicated = client.dedicated().await.expect("connected");
    dedicated.command(["PING"]).await.expect("runs");
    client.subscriber().await.expect("connected");
    // The shared connection was logged in before.
    run(&client, &["PING"]).await;
}

/// Connections that end all the time, and a password that changes meanwhile: each reply is that to its command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_changes_under_load_and_no_command_gets_another_reply() {
    let server = server("password-0").await;
    let file = PasswordFile::new("load", "password-0\n");
    let config =
        Config::default().connections(2).reconnect(Backoff::default().first(Duration::from_millis(5)));
    let client = Client::connect_with(file.url(server.url()), &config).await.expect("connected");
    let (ends, replies) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..8)
        .map(|caller| {
            let (client, ends, replies) = (client.clone(), ends.clone(), replies.clone());
            tokio::spawn(async move {
                let key = format!("caller-{caller}");
                let mut number = 0_u64;
                while !ends.load(Ordering::Relaxed) {
                    number += 1;
                    let value = number.to_string();
                    let set = Command::from_args(["SET", &key, &value]).idempotent();
                    match client.command(set).await {
                        Ok(reply) => assert!(reply.is_ok(), "{reply:?}"),
                        // Between the change of the server's password and that of the file.
                        Err(error) => {
                            assert!(format!("{error:#}").contains("WRONGPASS"), "{error:#}");
                            continue;
                        }
                    }
                    match client.command(["GET", &key]).await {
                        Ok(reply) => assert_eq!(reply.as_str(), Some(&*value)),
                        Err(error) => assert!(format!("{error:#}").contains("WRONGPASS"), "{error:#}"),
                    }
                    replies.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let admin = admin(&server, "password-0").await;
    for round in 1..=20 {
        let password = format!("password-{round}");
        // Both orders occur.
        if round % 2 == 0 {
            file.write(format!("{password}\n"));
            run(&admin, &["CONFIG", "SET", "requirepass", &password]).await;
            run(&admin, &["CLIENT", "KILL", "TYPE", "normal"]).await;
        } else {
            run(&admin, &["CONFIG", "SET", "requirepass", &password]).await;
            run(&admin, &["CLIENT", "KILL", "TYPE", "normal"]).await;
            file.write(format!("{password}\n"));
        }
        let before = replies.load(Ordering::Relaxed);
        let runs = || replies.load(Ordering::Relaxed) > before + 16;
        wait_until("commands run with the new password", Duration::from_secs(30), runs);
    }
    ends.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no wrong reply");
    }
    let connections = client.connections();
    assert!(connections.iter().all(|connection| connection.counters.reconnects > 0), "{connections:?}");
}

#[tokio::test]
async fn each_node_of_a_cluster_is_logged_in_to_with_the_password_of_now() {
    let mocks = MockCluster::builder(3).transports(Transports::Rdma(DeviceKind::Emulated)).start().await;
    let mocks = mocks.expect("free ports");
    for url in mocks.urls() {
        let admin = connect(&url).await.expect("connected");
        run(&admin, &["CONFIG", "SET", "requirepass", "s3cret"]).await;
    }
    let file = PasswordFile::new("cluster", "s3cret\n");
    let seeds: Vec<_> = mocks.urls().into_iter().map(|url| file.url(&url)).collect();
    let client = Client::connect(seeds.clone()).await.expect("connected");
    for node in 0..3 {
        run(&client, &["SET", &mocks.key_of(node, 0), "x"]).await;
    }
    file.write("wrong\n");
    let error = Client::connect(seeds).await.expect_err("refused");
    assert!(format!("{error:#}").contains("WRONGPASS"), "{error:#}");
}

/// The server's password, and how often the provider was called.
fn provider(passwords: &'static [&'static str]) -> (Config, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let config = Config::default().credentials(move || {
        let call = count.fetch_add(1, Ordering::Relaxed);
        async move {
            let password = passwords.get(call).or(passwords.last());
            password
                .map(|password| Credentials::new("default", *password))
                .ok_or(io::Error::other("no token"))
        }
    });
    (config, calls)
}

#[tokio::test]
async fn a_provider_is_called_for_each_connection_and_its_login_goes_before_that_of_the_url() {
    let server = server("one").await;
    let (config, calls) = provider(&["one"]);
    let endpoint: Endpoint = server.url().parse().expect("a URL");
    let client = Client::connect_with(endpoint.with_password("wrong"), &config).await.expect("connected");
    client.dedicated().await.expect("connected");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

/// The client asks a node over TCP where its RDMA listener is.
#[tokio::test]
async fn a_provider_logs_in_where_a_node_is_asked_for_its_rdma_port() {
    let mocks = MockCluster::builder(3).transports(Transports::Both(DeviceKind::Emulated)).start().await;
    let mocks = mocks.expect("free ports");
    for url in mocks.urls() {
        run(&connect(&url).await.expect("connected"), &["CONFIG", "SET", "requirepass", "s3cret"]).await;
    }
    let (config, _) = provider(&["s3cret"]);
    let seeds: Vec<_> = mocks.urls().iter().map(|url| format!("{url}?rdma_port=discover")).collect();
    let client = Client::connect_with(seeds, &config).await.expect("connected");
    for node in 0..3 {
        run(&client, &["SET", &mocks.key_of(node, 0), "x"]).await;
    }
}

#[tokio::test]
async fn a_password_that_has_changed_while_the_server_was_reached_is_read_again() {
    let server = server("two").await;
    let (config, calls) = provider(&["one", "two"]);
    Client::connect_with(server.url(), &config).await.expect("connected");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    // The same one again does not cause another attempt.
    let (config, calls) = provider(&["one"]);
    let error = Client::connect_with(server.url(), &config).await.expect_err("refused");
    assert!(matches!(cause(&error), ConnectCause::Rejected(_)), "{error}");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_provider_that_fails_or_takes_too_long_fails_the_connect() {
    let server = server("one").await;
    let (config, _) = provider(&[]);
    let error = Client::connect_with(server.url(), &config).await.expect_err("no password");
    assert!(error.to_string().ends_with("the program's provider of credentials failed: no token"), "{error}");
    let never = Config::default().credentials(std::future::pending::<Result<Credentials, io::Error>>);
    let url = format!("{}?timeout=20ms", server.url());
    let error = Client::connect_with(url, &never).await.expect_err("no password");
    let ConnectCause::Password(reason) = cause(&error) else { panic!("{error:?}") };
    assert!(matches!(**reason, PasswordError::SlowProvider { .. }), "{error}");
}

#[test]
fn no_debug_output_has_a_password() {
    let config =
        Config::default().credentials(async || Ok::<_, io::Error>(Credentials::new("app", "s3cret")));
    let shown = format!("{config:?} {:?}", Credentials::new("app", "s3cret"));
    assert!(!shown.contains("s3cret") && shown.contains("app"), "{shown}");
    let endpoint: Endpoint = "valkey://app@h?password_file=/run/secrets/app".parse().expect("a URL");
    assert_eq!(endpoint.to_string(), "valkey://app:***@h:6379");
    assert_eq!(endpoint.password_file(), Some(Path::new("/run/secrets/app")));
}
